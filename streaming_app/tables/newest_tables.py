"""Writes `offset_commits` and `group_records`. Views select the newest row of each key from them.

The job only appends rows, so an older record cannot replace a newer one. The log of a table has the number of the batch
with each append, so a repeated batch appends nothing.

A compaction keeps only the newest row of each key. It drops tombstones together with the rows that they deleted. If a
batch is repeated after a compaction, it still holds at least the newest row of each of its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from deltalake import DeltaTable, QueryBuilder, write_deltalake

from streaming_app.tables.definitions import Table, table
from streaming_app.tables.kept_table import newest_table
from streaming_app.tables.reader import of_groups, time_literal
from streaming_app.tables.rust_table import Batch, Commit

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming_app.tables.data_files import EncodedFile
    from streaming_app.tables.writer import TableWriter

COMMITS, RECORDS = "offset_commits", "group_records"
NAMES = (COMMITS, RECORDS)


_SORT_MEMORY = "256M"  # for a compaction; what exceeds it goes to temporary files


class _Form(NamedTuple):
    key: str
    """The key columns without the cluster, in SQL."""
    is_tombstone: str
    """SQL condition for tombstones."""


_FORMS = {
    COMMITS: _Form("group_id, topic, partition", "committed_offset IS NULL"),
    RECORDS: _Form("group_id, record_type, member_id", "deleted"),
}
_KEPT_TOMBSTONES = "record_type IN (2, 3, 11, 17)"
"""The tombstones of a group's metadata prove its last type: kept for the retention, see `stream.commits_batch`."""


class NewestTables:
    """The rows of one cluster in these tables. `Maintenance` uses it like a `TableWriter`."""

    def __init__(self, writer: TableWriter, cluster: str, retention_days: float) -> None:
        self._writer, self._cluster, self._retention_days = writer, cluster, retention_days

    def append(self, name: str, rows: pa.Table | Sequence[EncodedFile], writer: str, batch_id: int) -> None:
        """Append rows, or the rows of files, exactly once; see `TableWriter.append`. Raises OSError."""
        if isinstance(rows, Sequence):
            self._writer.append(name, rows, writer, batch_id)
        else:
            self._writer.table(name).append(rows, Batch([f"{writer}-{name}"], batch_id))

    def delete(self, condition: str | None = None) -> None:
        """Delete the rows of the cluster that match; by default all."""
        for name in NAMES:
            self._writer.table(name).delete(condition)

    def find_metadata_records(self, group_ids: Iterable[str] | None) -> list[dict[str, Any]]:
        """Return the records that prove the types of these groups (None: of all); maybe several per type and group.

        Times are in microseconds since 1970.
        """
        columns = "group_id, record_type, deleted, CAST(recorded_at AS bigint) AS recorded_at, last_offset"
        where = f"{of_groups(self._cluster, group_ids)} AND {_KEPT_TOMBSTONES}"
        rows: list[dict[str, Any]] = self._writer.table(RECORDS).select(columns, where).to_pylist()
        return rows

    def find_keys(self, name: str, columns: Sequence[str], offsets: Iterable[int], where: str) -> set[tuple[Any, ...]]:
        """Return the values of `columns` in the rows that have one of these offsets and match `where`."""
        names = ", ".join(f'"{column}"' for column in columns)
        of_offsets = f'"offset" IN ({", ".join(map(str, offsets)) or "NULL"})'
        rows = self._writer.table(name).select(names, f"{where} AND {of_offsets}").to_pylist()
        return {tuple(row.values()) for row in rows}

    def count_rows(self, name: str) -> int:
        """Return the number of rows of all clusters in a table. Takes milliseconds: the log has the numbers."""
        import pyarrow as pa  # noqa: PLC0415 - as above
        import pyarrow.compute as pc  # noqa: PLC0415 - as above

        actions = pa.table(newest_table(self._writer.location / name).get_add_actions())
        return int(pc.sum(actions["num_records"]).as_py() or 0)

    def compact(self, name: str) -> None:
        """Keep only the newest row of each key."""
        own = self._writer.table(name)
        newest = self._newest_rows(name, own.own_rows)

        def write(target: DeltaTable, commit: Commit) -> None:
            builder = QueryBuilder().register("t", target)
            builder.execute(f"SET datafusion.runtime.memory_limit = '{_SORT_MEMORY}'").read_all()
            rows = builder.execute(newest)
            write_deltalake(target, rows, mode="overwrite", predicate=own.own_rows, **commit)

        own.change(write)

    def clean_up_log(self, name: str) -> None:
        """Remove the log entries of versions that are older than the table's log retention."""
        self._writer.clean_up_log(name)

    def delete_expired(self, definition: Table, days: float) -> int:  # noqa: ARG002 - see `MaintainedTables`
        """Do nothing: for expired records, brokers write tombstones."""
        return 0

    def vacuum(self, name: str) -> None:
        """Remove data files that are older than the table's retention and that no newer version needs."""
        self._writer.vacuum(name)

    def _newest_rows(self, name: str, own_rows: str) -> str:
        form, columns = _FORMS[name], ", ".join(f'"{column}"' for column in table(name).names)
        kept = f"NOT coalesce({form.is_tombstone}, false)"
        if name == RECORDS:
            since = datetime.now(timezone.utc) - timedelta(days=self._retention_days)
            kept += f" OR ({_KEPT_TOMBSTONES} AND recorded_at >= {time_literal(since)})"
        rank = f"row_number() OVER (PARTITION BY {form.key} ORDER BY last_offset DESC) AS _rank"
        ranked = f"SELECT *, {rank} FROM t WHERE {own_rows}"  # noqa: S608 - quoted
        return f"SELECT {columns} FROM ({ranked}) WHERE _rank = 1 AND ({kept})"  # noqa: S608 - as above
