"""Moves the data files of a table into the directories of their clusters.

0.3 wrote some files into the root of a table. Every reader finds a file by its path in the log, but some (polars for
one) take the cluster from that path. A file cannot be renamed in a store, so it is copied, and a commit replaces it by
its copy: the same rows (`dataChange` is false), so who streams from the table gets nothing twice. The old file stays
as long as the retention of the table says, for readers of older versions.

The copy of a file always has the same name. If the process dies, the copies that no commit names are written again, or
removed with all files that no version names (see `rust_table`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction

from streaming_app.chunks import chunks
from streaming_app.tables.data_files import BOUNDED, CLUSTER
from streaming_app.tables.object_store import REQUESTS, read_file
from streaming_app.threads import in_parallel

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.tables.rust_table import CommitOptions, RustTable

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


def move_files(own: RustTable, moved: Callable[[int, int], None]) -> None:
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
    """Commit the copies of the files that the table still has."""
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
