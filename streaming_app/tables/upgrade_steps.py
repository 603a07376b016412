"""What this release changes in the tables of the release before, and in a table that lacks columns of this release.

Each step finds in a table itself what is left to do, and leaves the same rows at each of its commits (see `upgrade`).
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from streaming_app.chunks import chunks
from streaming_app.errors import StorageError
from streaming_app.tables.arrow import to_arrow, with_plain_types
from streaming_app.tables.data_files import BOUNDED, CLUSTER
from streaming_app.tables.definitions import table as definition
from streaming_app.tables.formats import is_older
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS, read_file
from streaming_app.tables.rust_table import CommitOptions, RustTable
from streaming_app.tables.table_creation import schema_of
from streaming_app.text import count, megabytes
from streaming_app.threads import in_parallel


class Work(NamedTuple):
    """What is to be done, or is done, in tables."""

    tables: int = 0
    files: int = 0
    size: int = 0

    def __str__(self) -> str:
        """Return the work for users: `812 files (210 MB) of 16 tables`."""
        files = f"{count(self.files, 'file')} ({megabytes(self.size)}) of " if self.files else ""
        return f"{files}{count(self.tables, 'table')}"


class UpgradeStep(NamedTuple):
    """A change that this release makes in tables."""

    table: str | None
    """The name of the table; None: all."""
    find: Callable[[DeltaTable], Work]
    """Returns what is left to do in a table of any format; no tables: nothing."""
    do: Callable[[RustTable, Callable[[int, int], None]], None]
    """Does it, and calls a function with the number and bytes of the files that are done."""


def lacks_columns(location: Location, table: DeltaTable, schema: pa.Schema) -> bool:
    """Return whether a table lacks columns of `schema`, or fields of its nested columns.

    Raises StorageError if the table has columns that are not in `schema`, or have another type there.
    """
    actual = with_plain_types(pa.schema(table.schema().to_arrow()).empty_table()).schema
    found, wanted = (dict(_fields(pa.struct(list(one)), "")) for one in (actual, schema))
    unknown = [f"{path} that this release does not know" for path in sorted(found.keys() - wanted.keys())]
    other = [
        f"{path} of type {kind}, and not {wanted.get(path)}" for path, kind in found.items() if kind != wanted.get(path)
    ]
    if unknown or other:
        advice = "use the release that created it, or another --warehouse"
        raise StorageError(f"{location} has a column {(unknown or other)[0]}: {advice}")
    return found != wanted


def _fields(kind: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields(field.type, f"{path}.{field.name}".removeprefix("."))
    elif pa.types.is_list(kind):
        yield from _fields(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _fields(kind.item_type, f"{path}.value")
    else:
        yield path, str(kind)


def add_columns(own: RustTable, schema: pa.Schema) -> None:
    """Add these columns, in one commit; they are null in existing rows. Raises as `RustTable.change`."""

    def write(table: DeltaTable, commit: CommitOptions) -> None:
        if lacks_columns(own.location, table, schema):  # another job may have added them
            known = {field.name for field in table.schema().fields}
            # an existing column gets only new fields; its comment in the table stays
            fields = Schema.from_arrow(schema).fields
            new = [Field(field.name, field.type) if field.name in known else field for field in fields]
            table.alter.add_columns(new, **commit)

    own.change(write)


#
# Every reader finds a file by its path in the log, but some (polars for one) take the cluster from that path. A file
# cannot be renamed in a store, so it is copied, and a commit replaces it by its copy: the same rows (`dataChange` is
# false), so who streams from the table gets nothing twice. The old file stays as long as the retention of the table
# says, for readers of older versions. The copy of a file always has the same name. If the process dies, the copies that
# no commit names are written again, or removed with all files that no version names (see `maintenance`).

_FILES_PER_COMMIT = 200  # what a process that dies has copied for nothing
_VECTORS = "deletionVectors"


class RootFile(NamedTuple):
    """A file in the root of a table."""

    name: str
    size: int
    cluster: str
    stats: str
    """As in the log, with the bounds of `group_id` only."""

    @property
    def target(self) -> str:
        """The path of its copy."""
        return f"{CLUSTER}={self.cluster}/{self.name}"


def root_files(table: DeltaTable) -> list[RootFile]:
    """Return the files in the root of a table, but for those of which a deletion vector deletes rows."""
    names = ("path", "size_bytes", "partition", "num_records", "null_count", "min", "max")
    found = pa.table(table.get_add_actions())
    rows = found.select([name for name in names if name in found.column_names]).to_pylist()
    vectors = _VECTORS in (table.protocol().reader_features or ())
    marked = set(pa.table(table.deletion_vectors())["filepath"].to_pylist()) if vectors else set[str]()
    return [
        RootFile(row["path"], row["size_bytes"], row["partition"][CLUSTER], _stats(row))
        for row in rows
        if "/" not in row["path"] and not any(one.endswith(f"/{row['path']}") for one in marked)
    ]


def _files_to_move(table: DeltaTable) -> Work:
    files = root_files(table)
    return Work(min(1, len(files)), len(files), sum(one.size for one in files))


def _move_files(own: RustTable, moved: Callable[[int, int], None]) -> None:
    """Move the files in the root of a table, of all clusters; call `moved` with the number and bytes of some.

    Files that another job has just replaced do not move. Raises as `RustTable.change`.
    """
    table = own.open()
    for some in chunks(root_files(table), _FILES_PER_COMMIT):
        in_parallel(partial(_copy, own, table), some, REQUESTS)
        own.change(partial(_replace, some))
        moved(len(some), sum(one.size for one in some))


def _copy(own: RustTable, table: DeltaTable, file: RootFile) -> None:
    (own.location / file.target).write_bytes(read_file(table, file.name, file.size))


def _replace(files: list[RootFile], table: DeltaTable, commit: CommitOptions) -> None:
    still, now = {file.name for file in root_files(table)}, int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = []
    for one in files:
        if one.name in still:
            of: dict[str, str | None] = {CLUSTER: one.cluster}
            actions += [
                RemoveAction(one.name, data_change=False, deletion_timestamp=now, size=one.size, partition_values=of),
                AddAction(one.target, one.size, of, now, data_change=False, stats=one.stats),
            ]
    if actions:
        table.create_write_transaction(actions, "append", table.schema(), [CLUSTER], **commit)
        table.update_incremental()


def _stats(row: Mapping[str, Any]) -> str:
    bounds = {"nullCount": "null_count", "minValues": "min", "maxValues": "max"}
    found = {name: (row.get(column) or {}).get(BOUNDED) for name, column in bounds.items()}
    known = {name: {BOUNDED: value} for name, value in found.items() if value is not None}
    return json.dumps({"numRecords": row["num_records"], **known}, ensure_ascii=False)


#
# The new rows and the new columns are one commit, so a process that dies leaves the old table.

_BEHAVED = "status IN ('STALLED', 'STOPPED', 'BEHIND', 'CATCHING_UP')"
_SLOW = "CASE WHEN status IN ('BEHIND', 'CATCHING_UP') AND lag_seconds >= 600 THEN status_since END"
RESHAPED = "lag"
_NEW_VALUES = {
    "offset_status": f"CASE WHEN {_BEHAVED} OR (status = 'OK' AND behind_since IS NOT NULL) THEN 'WAITS' "
    "ELSE status END",
    "offset_status_since": "status_since",
    "waits_since": "coalesce(behind_since, CASE WHEN status IN ('RECREATED', 'AHEAD') THEN status_since END)",
    # It is STALLED a minute after the first of several commits of one offset.
    "unmoved_since": "CASE WHEN status = 'STALLED' THEN status_since - INTERVAL '60 seconds' "
    "WHEN committed_offset IS NULL THEN coalesce(behind_since, observed_at) ELSE committed_at END",
    "late_since": _SLOW,
    "slow_since": _SLOW,
}
"""Column that comes -> its value in SQL, from the old ones. Other columns that come are null."""


def _rows_to_reshape(table: DeltaTable) -> Work:
    return Work(int(any(field.name in definition(RESHAPED).gone for field in table.schema().fields)))


def _reshape(own: RustTable, _moved: Callable[[int, int], None]) -> None:
    """Write the rows of all clusters in the columns of this release. Raises as `RustTable.change`."""
    schema = schema_of(definition(RESHAPED))

    def write(table: DeltaTable, commit: CommitOptions) -> None:
        if _rows_to_reshape(table).tables:  # another job may have done it
            known, partitions = {field.name for field in table.schema().fields}, table.metadata().partition_columns
            columns = (_NEW_VALUES.get(one, one if one in known else "NULL") + f" AS {one}" for one in schema.names)
            query = f"SELECT {', '.join(columns)} FROM t"  # noqa: S608 - our own
            # All rows: as many as each pass of the job replaces.
            rows = to_arrow(QueryBuilder().register("t", table).execute(query)).cast(schema)
            write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=partitions, **commit)

    own.change(write)


#
# There `group_health` was a table with the newest verdict of each group, and the history had less columns. Now it is a
# view of the newest row of each group. So each of its rows becomes the newest one in the history; a group without such
# a row was deleted, and its history gets an end. A row of this release has `judged_at`: a group with one is done.

_HISTORY, _OLD = "group_health_history", "group_health"
_NEWEST = """
WITH known AS (
  SELECT cluster, group_id, max(at) + INTERVAL '1 microsecond' AS at, bool_or(judged_at IS NOT NULL) AS is_done
  FROM history GROUP BY cluster, group_id)
SELECT o.cluster, o.group_id, CASE WHEN known.at > o.judged_at THEN known.at ELSE o.judged_at END AS at, o.verdict,
  o.severity, o.since, o.why, o.evidence, o.judged_at, o.caught_up_at, o.losing_at, NULL AS pending_verdict,
  NULL AS pending_at, o.inputs_at, o.labels, false AS is_end
FROM old o LEFT JOIN known ON known.cluster = o.cluster AND known.group_id = o.group_id
WHERE NOT coalesce(known.is_done, false)
UNION ALL
SELECT known.cluster, known.group_id, known.at, 'Off' AS verdict, NULL AS severity, known.at AS since,
  'It was deleted.' AS why, NULL AS evidence, known.at AS judged_at, NULL AS caught_up_at, NULL AS losing_at,
  NULL AS pending_verdict, NULL AS pending_at, NULL AS inputs_at, NULL AS labels, true AS is_end
FROM known LEFT ANTI JOIN old o ON known.cluster = o.cluster AND known.group_id = o.group_id
WHERE NOT known.is_done
"""


def _verdicts_to_move(history: DeltaTable) -> Work:
    return Work(int(is_older(history) and _old_table(Location.of(history.table_uri)) is not None))


def _old_table(history: Location) -> DeltaTable | None:
    try:
        return (history.parent / _OLD).delta_table()
    except TableNotFoundError:
        return None


@retry(
    retry=retry_if_exception_type((OSError, DeltaError)),
    wait=wait_fixed(0.5),
    stop=stop_after_attempt(10),
    reraise=True,
)
def _move_verdicts(own: RustTable, _moved: Callable[[int, int], None]) -> None:
    """Move the verdicts of all clusters in one commit; remove the old table if no other cluster writes it.

    A job of 0.3 that still runs for another cluster needs its table, and goes on; later rows of the history count. An
    error may come of another job that has moved all of it, and is removing files of the old table: it is tried again.
    """
    old = _old_table(own.location)
    if old is None:
        return

    clusters = {one["cluster"] for one in pa.table(old.get_add_actions())["partition"].to_pylist()}

    def write(history: DeltaTable, commit: CommitOptions) -> None:
        query = QueryBuilder().register("old", old).register("history", history)
        found = with_plain_types(to_arrow(query.execute(_NEWEST)))
        if found.num_rows:
            write_deltalake(history, found.select(own.schema().names).cast(own.schema()), mode="append", **commit)

    add_columns(own, schema_of(definition(_HISTORY)))
    own.change(write)
    if clusters <= {own.cluster}:
        (own.location.parent / _OLD).remove_directory()


STEPS_TO = 2
"""The format that these steps make of the one before."""
STEPS = (
    UpgradeStep(None, _files_to_move, _move_files),
    UpgradeStep(RESHAPED, _rows_to_reshape, _reshape),
    UpgradeStep(_HISTORY, _verdicts_to_move, _move_verdicts),
)
