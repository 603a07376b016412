"""Deletes the expired rows of a table, and decides which of them are kept.

The newest expired event of each subject (a group's state, a member's tasks, ...) is kept, unless it describes an end.
Example: a group that has been Stable for a year has had no event since. Without its last events nobody could query its
state of yesterday, or which member had a task. For the same reason the newest expired topology of a group is kept. If
the row of a group was deleted, nothing of the group is kept but its verdict: a bad one lasts until the alert ends.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streaming_app.chunks import chunks
from streaming_app.tables.arrow import with_plain_types
from streaming_app.tables.data_files import CLUSTER, EncodedFile, StoredFile, encode_file, write_file
from streaming_app.tables.definitions import table
from streaming_app.tables.object_store import read_file
from streaming_app.tables.reader import query_bounded, time_literal
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_files import TableFiles

_FILES_PER_COMMIT = 20
_ROWS = 250_000  # of a file that takes the place of one with expired rows

_SUBJECT = """CASE kind
    WHEN 'member_joined' THEN 'member' WHEN 'member_left' THEN 'member'
    WHEN 'created' THEN 'group' WHEN 'deleted' THEN 'group'
    ELSE kind END"""
"""The subject of an event: some kinds share one."""


class _Kept(NamedTuple):
    """SQL that selects the expired rows to keep: the newest row of each key."""

    candidates: str
    """Condition for the rows that may be kept."""
    key: str
    newest: str
    """The order that puts the newest first."""
    condition: str
    """Condition for the newest row: it is kept only if this is true."""
    outlives: bool = False
    """Whether it is kept when the row of the group is deleted, too."""


_KEPT = {
    "group_events": _Kept(
        # Pushes, truncations, and what is done to offsets and topics change no state of a group.
        candidates="kind NOT IN ('unsolicited_push', 'log_truncated') AND topic IS NULL AND NOT coalesce(void, false)",
        key=f"group_id, {_SUBJECT}, member_id",
        newest='at DESC, "offset" DESC',
        condition="new IS NOT NULL",
    ),
    "topologies": _Kept(
        candidates="true", key="group_id", newest='first_seen_at DESC, "offset" DESC', condition="true"
    ),
    "group_health_history": _Kept("true", "group_id", "at DESC", "NOT coalesce(is_end, false)", outlives=True),
}
"""By table; in any other table all expired rows are deleted."""


def delete_expired(own: RustTable, current: TableFiles, groups: RustTable | None, days: float) -> int:
    """Delete the rows that are older than so many days, but for those to keep; return how many.

    Files of which others delete rows at the same time stay until the next day. Raises OSError and delta-rs' errors.
    """
    definition = table(own.location.name)
    time, cutoff = str(definition.expires_by), datetime.now(timezone.utc) - timedelta(days=days)
    condition = f"{own.own_rows} AND {time} < {time_literal(cutoff)}"
    counted = query_bounded(f"SELECT count(*) AS n FROM t WHERE {condition}", t=current.table)  # noqa: S608 - quoted
    (count,) = counted.read_all()["n"].to_pylist()
    kept = _find_kept(current.table, groups.open(), own, condition) if count and groups else []
    key = [name for name in definition.key if name != CLUSTER]
    is_kept = {tuple(row[name] for name in key) for row in kept}

    def is_gone(rows: pa.Table) -> pa.BooleanArray:
        is_old = _expired(rows, time, cutoff)
        if not is_kept:
            return is_old
        keys = zip(*(rows[name].to_pylist() for name in key), strict=True)
        return pa.array([old and one not in is_kept for old, one in zip(is_old.to_pylist(), keys, strict=True)])

    deleted = 0
    for some in chunks(current.files(), _FILES_PER_COMMIT) if count > len(is_kept) else ():
        removed, rest, gone = list[StoredFile](), list[EncodedFile](), 0
        for file in some:
            content = pq.ParquetFile(pa.BufferReader(read_file(current.table, file.path, file.size)))
            if any(_expired(rows, time, cutoff).true_count for rows in _read(content, [time])):
                kept_rows = [(rows.num_rows, rows.filter(pc.invert(is_gone(rows)))) for rows in _read(content, None)]
                if of_file := sum(before - rows.num_rows for before, rows in kept_rows):
                    removed.append(file)
                    rest += [encode_file(rows) for _, rows in kept_rows if rows.num_rows]
                    gone += of_file
        if removed and current.replace(removed, [write_file(own.location, own.cluster, one) for one in rest]):
            deleted += gone
    return deleted


def _read(content: pq.ParquetFile, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield the rows of a file in parts, each small enough for the memory."""
    for batch in content.iter_batches(_ROWS, columns=columns, use_threads=False):
        yield with_plain_types(pa.Table.from_batches([batch]))  # Arrow filters no maps of delta-rs' string views


def _expired(rows: pa.Table, time: str, cutoff: datetime) -> pa.BooleanArray:
    """Return which rows are older than that; those without a time are not."""
    times = rows[time].combine_chunks()
    return pc.fill_null(pc.less(times, pa.scalar(cutoff, times.type)), False)  # noqa: FBT003 - the value of Arrow


def _find_kept(expiring: DeltaTable, groups: DeltaTable, own: RustTable, condition: str) -> list[dict[str, Any]]:
    kept = _KEPT.get(own.location.name)
    if kept is None:
        return []
    ranked = (
        f"SELECT *, row_number() OVER (PARTITION BY {kept.key} ORDER BY {kept.newest}) AS _rank "  # noqa: S608 - quoted
        f"FROM t WHERE {condition} AND {kept.candidates}"
    )
    of_groups = f"group_id IN (SELECT group_id FROM groups_of_all_clusters WHERE {own.own_rows})"  # noqa: S608 - as above
    of_groups = "true" if kept.outlives else of_groups
    names = ", ".join(f'"{name}"' for name in table(own.location.name).key)
    found = f"SELECT {names} FROM ({ranked}) WHERE _rank = 1 AND {kept.condition} AND {of_groups}"  # noqa: S608 - as above
    rows: list[dict[str, Any]] = query_bounded(found, t=expiring, groups_of_all_clusters=groups).read_all().to_pylist()
    return rows
