"""Rewrites tables of the release before whose columns this release replaces. A table of its own rows is written anew.

The new rows and the new columns are one commit, so a process that dies leaves the old table. A column that only comes
needs no entry here: see `columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalake import QueryBuilder, write_deltalake

from streaming_app.tables.arrow import to_arrow
from streaming_app.tables.definitions import table as definition
from streaming_app.tables.table_creation import schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from streaming_app.tables.rust_table import CommitOptions, RustTable


_BEHAVED = "status IN ('STALLED', 'STOPPED', 'BEHIND', 'CATCHING_UP')"
_SLOW = "CASE WHEN status IN ('BEHIND', 'CATCHING_UP') AND lag_seconds >= 600 THEN status_since END"
RESHAPES: Mapping[str, Mapping[str, str]] = {
    "lag": {
        "offset_status": f"CASE WHEN {_BEHAVED} OR (status = 'OK' AND behind_since IS NOT NULL) THEN 'WAITS' "
        "ELSE status END",
        "offset_status_since": "status_since",
        "waits_since": "coalesce(behind_since, CASE WHEN status IN ('RECREATED', 'AHEAD') THEN status_since END)",
        # It is STALLED a minute after the first of several commits of one offset.
        "unmoved_since": "CASE WHEN status = 'STALLED' THEN status_since - INTERVAL '60 seconds' "
        "WHEN committed_offset IS NULL THEN coalesce(behind_since, observed_at) ELSE committed_at END",
        "late_since": _SLOW,
        "slow_since": _SLOW,
    },
}
"""Table -> column that comes -> its value in SQL, from the old ones. Other columns that come are null."""


def has_old_shape(table: DeltaTable, name: str) -> bool:
    """Return whether a table still has columns that go."""
    return any(field.name in definition(name).gone for field in table.schema().fields)


def reshape(own: RustTable) -> None:
    """Write the rows of all clusters in the columns of this release. Raises as `RustTable.change`."""
    name = own.location.name
    schema = schema_of(definition(name))

    def write(table: DeltaTable, commit: CommitOptions) -> None:
        if has_old_shape(table, name):  # another job may have done it
            rows, partitions = _rows(table, name, schema), table.metadata().partition_columns
            write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=partitions, **commit)

    own.change(write)


def _rows(table: DeltaTable, name: str, schema: pa.Schema) -> pa.Table:
    """Return all rows: as many as each pass of the job replaces."""
    known, new = {field.name for field in table.schema().fields}, RESHAPES[name]
    columns = [new.get(one, one if one in known else "NULL") + f" AS {one}" for one in schema.names]
    found = QueryBuilder().register("t", table).execute(f"SELECT {', '.join(columns)} FROM t")  # noqa: S608 - our own
    return to_arrow(found).cast(schema)
