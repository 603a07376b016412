"""Which features of a Delta table delta-rs can write: other tools may add some that it cannot.

A table names its features by the writer version 7 of Delta's protocol; the lower versions stand for some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

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


def unwritable_feature(table: DeltaTable) -> str | None:
    """Return why delta-rs cannot write a table, in a few words with one feature; None if it can."""
    protocol = table.protocol()
    named = _OF_VERSION.get(protocol.min_writer_version, protocol.writer_features or ())
    missing = sorted(set(named) - WRITABLE)
    return f"has the table feature {missing[0]}, which delta-rs cannot write" if missing else None
