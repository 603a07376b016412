"""Which tables this release uses: by their format, which says what release wrote them, and by their Delta features.

Each table has its format as a property. A release upgrades the format of the release before (see `upgrade`), and no
older one. Until 0.3 the format never changed: there, columns tell the releases apart. Other tools may add features that
delta-rs cannot write. A table names its features by the writer version 7 of Delta's protocol; the lower versions stand
for some of them.
"""

from deltalake import DeltaTable

from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT
from streaming_app.tables.location import Location

RELEASES = {1: "0.3", 2: "0.4"}
BEFORE, THIS = RELEASES[WAREHOUSE_FORMAT - 1], RELEASES[WAREHOUSE_FORMAT]
_NEW_IN_0_3 = {"alerts": "alert_id", "groups": "log_epoch"}
"""By table, a column that older releases do not have."""
WRITABLE = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
"""The names of the features that delta-rs can write (deltalake 1.6); a test tries them."""
_OF_VERSION = {6: ("identityColumns",)}
"""By writer version below 7, its features that delta-rs cannot write."""
ADVICE = (
    "drop it where it was added (ALTER TABLE ... DROP FEATURE), restore a copy of the table from before, or move the "
    "table away: the job creates it again"
)


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


def unwritable_feature(table: DeltaTable) -> str | None:
    """Return why delta-rs cannot write a table, in a few words with one feature; None if it can."""
    protocol = table.protocol()
    named = _OF_VERSION.get(protocol.min_writer_version, protocol.writer_features or ())
    missing = sorted(set(named) - WRITABLE)
    return f"has the table feature {missing[0]}, which delta-rs cannot write" if missing else None
