"""Which rows of a history expire, and which of the expired rows are kept.

Of each subject (a group's state, a member's tasks, ...) the newest of the expired events is kept, unless it describes
an end: a group that has been Stable for a year has had no event since, and if its last ones were deleted, nobody could
query what state it was in yesterday, or which member had a task. For a group whose row was deleted none is kept. For
the same reason the newest of the expired topologies of a group is kept.
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
"""What an event is about: some kinds share a subject."""


class _Kept(NamedTuple):
    """Of the expired rows of a table, the newest by a key is kept; in SQL."""

    candidates: str
    """The rows that may be kept."""
    key: str
    newest: str
    """The order in which the first is the newest."""
    condition: str
    """What the newest must be."""


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
"""By table; the expired rows of any other table are all deleted."""


class Expired(NamedTuple):
    """The expired rows of a table."""

    condition: str
    """In SQL: the rows whose time is before the end of the retention."""
    kept: pa.Table
    """Of these the rows that are kept."""
    deleted: int
    """How many are not."""

    @classmethod
    def find(cls, table: DeltaTable, groups: DeltaTable, definition: Table, own_rows: str, days: float) -> Expired:
        """Return what is older than `days`, of the rows that match `own_rows`. Raises delta-rs' errors."""
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
