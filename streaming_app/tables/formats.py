"""The format of a warehouse: which release wrote it, and which ones this release upgrades (see `upgrade`) or refuses.

Each table has its format as a property. A release upgrades the format of the release before, and no older one. Until
0.3 the format never changed: there, columns tell the releases apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.tables.location import Location

RELEASES = {1: "0.3", 2: "0.4"}
"""By format, the release that introduced it."""
BEFORE, THIS = RELEASES[WAREHOUSE_FORMAT - 1], RELEASES[WAREHOUSE_FORMAT]
_NEW_IN_0_3 = {"alerts": "alert_id", "groups": "log_epoch"}
"""By table, a column that older releases do not have."""


def format_of(table: DeltaTable) -> int | None:
    """Return the format of a table; None if it has none, so that it is not one of ours."""
    found = table.metadata().configuration.get(FORMAT_PROPERTY, "")
    return int(found) if found.isdecimal() else None


def is_older(table: DeltaTable) -> bool:
    """Return whether the release before wrote the table, so that this one upgrades it."""
    return format_of(table) == WAREHOUSE_FORMAT - 1


def why_refused(location: Location, table: DeltaTable) -> str | None:
    """Return, in one line, why this release neither uses nor upgrades a table; None if it does."""
    found = format_of(table)
    if found is None:
        return f"{location} was not created by streams-groups: choose another --warehouse"
    if found > WAREHOUSE_FORMAT:
        return f"{location} is of a release after {THIS}: use that one, or restore a copy from before its upgrade"
    column = _NEW_IN_0_3.get(location.name) if found == 1 else None
    if found < WAREHOUSE_FORMAT - 1 or (column and column not in {field.name for field in table.schema().fields}):
        way = f'go through {BEFORE}, see "Upgrade and roll back" in docs/operating.md'
        return f"{location} is of a release before {BEFORE}, and this is {THIS}: {way}"
    return None
