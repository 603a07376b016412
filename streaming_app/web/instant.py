"""A group at an instant: rows as those of now, with what the tables know of then. Pure.

Events do not name processes, so a line of the task matrix is a member. Events tell that nobody has a task only if
somebody had it before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streaming_app.groups.task_copies import ACTIVE
from streaming_app.queries.history import parse_tasks
from streaming_app.tables.definitions import table

Row = Mapping[str, Any]


class Then(NamedTuple):
    """What the tables know of a group at a time."""

    row: Row
    """As of `groups`, with null for what events do not tell; a member also has `tasks_since`."""
    lag: Sequence[Row]
    """The newest sample of each partition, from `lag_at`."""
    knows_topology: bool
    """Whether a topology in the tables is so old. If not, the subtopologies are those of now."""


def row_at(group: Row, subtopologies: Sequence[Row]) -> Row:
    """Return a group, from `group_at`, as a row of `groups`; `member_id` is None in tasks that nobody had."""
    epochs = {name: value and int(value) for name, value in group.items() if name.endswith("_epoch")}
    return {
        **dict.fromkeys(table("groups").names),
        **group,
        **epochs,
        "member_count": len(group["members"]),
        "members": [{**dict.fromkeys(table("members").names), **one} for one in group["members"].values()],
        "assignments": [*_assignments(group)],
        "subtopologies": subtopologies,
    }


def _assignments(group: Row) -> Iterator[Row]:
    owned = [(member_id, one["tasks"]) for member_id, one in group["members"].items()]
    for member_id, tasks in [*owned, (None, f"{ACTIVE} {','.join(group['unowned'])}")]:
        for role, subtopology_id, partition in parse_tasks(tasks):
            task = {"role": role, "subtopology_id": subtopology_id, "partition": partition}
            held = {"current": bool(member_id), "target": True, "pending_revocation": False}
            yield {**task, "member_id": member_id, **held}
