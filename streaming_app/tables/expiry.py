"""Decides which rows of a history expire, and which expired rows are kept.

The newest expired event of each subject (a group's state, a member's tasks, ...) is kept, unless it describes an end.
Example: a group that has been Stable for a year has had no event since. Without its last events nobody could query its
state of yesterday, or which member had a task. For the same reason the newest expired topology of a group is kept. If
the row of a group was deleted, nothing of the group is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deltalake import QueryBuilder

from streaming_app.tables.arrow import to_arrow, with_plain_types

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming_app.tables.rust_table import RustTable

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


def find_kept(own: RustTable, groups: RustTable, condition: str) -> pa.Table:
    """Return the rows to keep among the expired rows of a table, which match `condition`. Raises delta-rs' errors."""
    kept = _KEPT.get(own.location.name)
    if kept is None:
        return own.schema().empty_table()
    ranked = (
        f"SELECT *, row_number() OVER (PARTITION BY {kept.key} ORDER BY {kept.newest}) AS _rank "  # noqa: S608 - quoted
        f"FROM t WHERE {own.own_rows} AND {condition} AND {kept.candidates}"
    )
    of_groups = f"group_id IN (SELECT group_id FROM groups WHERE {own.own_rows})"  # noqa: S608 - as above
    query = f"SELECT * FROM ({ranked}) WHERE _rank = 1 AND {kept.condition} AND {of_groups}"  # noqa: S608 - as above
    builder = QueryBuilder().register("t", own.open()).register("groups", groups.open())
    return with_plain_types(to_arrow(builder.execute(query)).drop_columns("_rank"))
