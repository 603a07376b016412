"""Writes `offset_commits` and `group_records`. Views select the newest row of each key from them.

The job only appends rows, so an older record cannot replace a newer one. What a new query will read again is marked:
the offset of the row falls far below 0. So the row stands until a row of its key is appended, whatever its offset, and
nothing is there twice. Among themselves, marked rows keep their order.

The log of a table has the number of the batch with each append, so a repeated batch appends nothing. The views could do
without: DISTINCT makes `offsets` a quarter slower. But users read these tables, too. A job that is killed in a batch
would leave each of its rows twice, after a first start those of all keys, until a compaction. No way would go either:
the history of the same batch needs the number. And since Delta skips a number that it has, a checkpoint that is older
than the tables must be noticed (`stream.table_versions`).

A compaction keeps only the newest row of each key. It drops tombstones together with the rows that they deleted. If a
batch is repeated after a compaction, it still holds at least the newest row of each of its keys.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pyarrow as pa

from streaming_app.groups.group import READ_AGAIN
from streaming_app.tables.data_files import EncodedFile, encode_file, write_file
from streaming_app.tables.definitions import table
from streaming_app.tables.reader import of_groups, query_bounded, time_literal
from streaming_app.tables.rust_table import BatchId
from streaming_app.tables.table_files import MAINTAINED_AFTER, TableFiles
from streaming_app.tables.writer import TableWriter

COMMITS, RECORDS = "offset_commits", "group_records"
NAMES = (COMMITS, RECORDS)
_BELOW = 1 << 62  # a marked row has an offset that is lower by this
_FILE_BYTES = 32 << 20  # of Arrow, in a compacted file: 200,000 commits, or a few hundred members of large groups
_TAIL_ROWS = 200_000  # that are appended before a compaction at least, however small the table is


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
"""The tombstones of a group's metadata prove its last type: kept for the retention, see `stream.commits_writer`."""


class NewestTables:
    """The rows of one cluster in these tables. Brokers write tombstones for expired records: no row expires here."""

    def __init__(self, writer: TableWriter, cluster: str, retention_days: float) -> None:
        self._writer, self._cluster, self._retention_days = writer, cluster, retention_days

    def append(self, name: str, rows: pa.Table | Sequence[EncodedFile], batch: BatchId | None) -> None:
        """Append rows, or the rows of files; those of a batch exactly once. Raises OSError.

        Where much was appended, the table is maintained sooner.
        """
        own = self._writer.table(name)
        count = rows.num_rows if isinstance(rows, pa.Table) else sum(one.num_rows for one in rows)
        limit = max(_TAIL_ROWS, own.count_rows() // 2)
        own.append(rows, batch and batch.of_table(name), max(1, MAINTAINED_AFTER * count // limit))

    def mark(self, condition: str) -> None:
        """Mark the rows of the cluster that match: their records will be read again."""
        for name in NAMES:
            own = self._writer.table(name)
            own.update({"last_offset": f"last_offset - {_BELOW}"}, f"({condition}) AND last_offset > {READ_AGAIN}")

    def find_metadata_records(self, group_ids: Iterable[str] | None) -> list[dict[str, Any]]:
        """Return the records that prove the types of these groups (None: of all); maybe several per type and group.

        Those of marked rows are not among them. Times are in microseconds since 1970.
        """
        columns = "group_id, record_type, deleted, CAST(recorded_at AS bigint) AS recorded_at, last_offset"
        where = f"{of_groups(self._cluster, group_ids)} AND {_KEPT_TOMBSTONES} AND last_offset > {READ_AGAIN}"
        rows: list[dict[str, Any]] = self._writer.table(RECORDS).select(columns, where).to_pylist()
        return rows

    def compact(self, name: str, current: TableFiles) -> None:
        """Keep only the newest row of each key. That rewrites all of the table, so it waits until there is enough.

        Rows that are appended meanwhile stay, in files of their own. The others come sorted by group.
        """
        own, files = self._writer.table(name), current.files()
        if not current.has_grown and len(files) < MAINTAINED_AFTER:
            return
        newest = query_bounded(self._newest_rows(name, own.own_rows), t=current.table)
        added = [write_file(own.location, own.cluster, encode_file(rows)) for rows in _parts(newest, own.schema())]
        current.replace(files, added)

    def _newest_rows(self, name: str, own_rows: str) -> str:
        form, columns = _FORMS[name], ", ".join(f'"{column}"' for column in table(name).names)
        kept = f"NOT coalesce({form.is_tombstone}, false)"
        if name == RECORDS:
            since = datetime.now(timezone.utc) - timedelta(days=self._retention_days)
            kept += f" OR ({_KEPT_TOMBSTONES} AND recorded_at >= {time_literal(since)})"
        rank = f"row_number() OVER (PARTITION BY {form.key} ORDER BY last_offset DESC) AS _rank"
        ranked = f"SELECT *, {rank} FROM t WHERE {own_rows}"  # noqa: S608 - quoted
        return f"SELECT {columns} FROM ({ranked}) WHERE _rank = 1 AND ({kept})"  # noqa: S608 - as above


def _parts(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    some, size = list[pa.Table](), 0
    for batch in rows:
        some.append(pa.Table.from_batches([batch]).cast(schema))
        size += some[-1].nbytes
        if size >= _FILE_BYTES:
            yield pa.concat_tables(some)
            some, size = [], 0
    if some:
        yield pa.concat_tables(some)
