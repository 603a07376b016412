"""Decides which rows of a history expire, and which expired rows are kept.

The newest expired event of each subject (a group's state, a member's tasks, ...) is kept, unless it describes an end.
Example: a group that has been Stable for a year has had no event since. Without its last events nobody could query its
state of yesterday, or which member had a task. For the same reason the newest expired topology of a group is kept. If
the row of a group was deleted, nothing of the group is kept.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

from deltalake import DeltaTable, QueryBuilder

from streaming_app.tables.arrow import to_arrow, with_plain_types
from streaming_app.tables.reader import time_literal

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming_app.tables.definitions import Table

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


_KEPT = {
    "group_events": _Kept(
        # Pushes and truncations change no state.
        candidates="kind NOT IN ('unsolicited_push', 'log_truncated') AND NOT coalesce(void, false)",
        key=f"group_id, {_SUBJECT}, member_id",
        newest='at DESC, "offset" DESC',
        condition="new IS NOT NULL",
    ),
    "topologies": _Kept(
        candidates="true", key="group_id", newest='first_seen_at DESC, "offset" DESC', condition="true"
    ),
}
"""By table; in any other table all expired rows are deleted."""


class Expired(NamedTuple):
    """The expired rows of a table."""

    condition: str
    """SQL condition for the rows that are older than the retention."""
    kept: pa.Table
    """The expired rows to keep."""
    deleted: int
    """The number of the other expired rows."""

    @classmethod
    def find(cls, table: DeltaTable, groups: DeltaTable, definition: Table, own_rows: str, days: float) -> Expired:
        """Find the rows that match `own_rows` and are older than `days`. Raises delta-rs' errors."""
        end = datetime.now(timezone.utc) - timedelta(days=days)
        condition = f"{definition.expires_by} < {time_literal(end)}"
        builder = QueryBuilder().register("t", table).register("groups", groups)
        expired = f"SELECT * FROM t WHERE {own_rows} AND {condition}"  # noqa: S608 - quoted
        count = int(to_arrow(builder.execute(f"SELECT count(*) FROM ({expired})"))[0][0].as_py())  # noqa: S608 - as above
        query = _kept_rows(_KEPT.get(definition.name) if count else None, expired, own_rows)
        kept = with_plain_types(to_arrow(builder.execute(query))).select(list(definition.names))
        return cls(condition, kept, count - kept.num_rows)


def _kept_rows(kept: _Kept | None, expired: str, own_rows: str) -> str:
    if kept is None:
        return f"{expired} LIMIT 0"
    ranked = (
        f"SELECT *, row_number() OVER (PARTITION BY {kept.key} ORDER BY {kept.newest}) AS _rank "  # noqa: S608 - quoted
        f"FROM ({expired}) WHERE {kept.candidates}"
    )
    groups = f"SELECT group_id FROM groups WHERE {own_rows}"  # noqa: S608 - as above
    return f"SELECT * FROM ({ranked}) WHERE _rank = 1 AND {kept.condition} AND group_id IN ({groups})"  # noqa: S608 - as above
