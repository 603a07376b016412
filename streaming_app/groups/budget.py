"""How large one group may be, whatever its tenant writes: members, tasks, text, topology, events, steps. Pure.

A tenant chooses how many members its group has and how long their ids and tags are. A row of `groups` is read and
written whole with every batch that concerns the group, so one group could take all memory. A group that exceeds its
budget is set aside: its row stays as it was before, with a reason that counts what it has, until somebody raises the
budget and releases it.

What is counted are records, bytes and steps, and never seconds: a slow machine must not change a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from streaming_app.groups.group import Group, Member

_TEXTS = attrgetter("member_id", "instance_id", "rack_id", "client_id", "client_host", "process_id", "user_endpoint")
"""All text of a member but its tags and tasks."""
_TASK_BYTES = 40  # of a task in a row, besides the id of its subtopology
_VALUE_BYTES = 30  # of what is no text
_MEMBER_BYTES = 4 * _VALUE_BYTES  # of a member, besides its text and tasks
_EPOCHS = 100  # topology epochs whose times are kept, the newest


class OverBudgetError(Exception):
    """A group, or one operation or batch of it, exceeds its budget; the text says what it has, and what is allowed."""


@dataclass(frozen=True)
class Budget:
    """The budget of one group; `members`, `tasks` and `bytes` are the keys of the section `group_budget`."""

    members: int = 10_000
    tasks: int = 200_000
    """Of all members, for each of current, target and pending."""
    bytes: int = 4 << 20
    """Of text of members: ids, hosts, tasks and client tags. A topology may have half of it."""
    events: int = 100_000
    """Of one batch; their text may have 8 times `bytes`."""
    steps: int = 5_000_000
    """Of one batch: records, and members looked at because of them. A group that needs more is set aside."""


DEFAULT = Budget()


def check_size(group: Group, budget: Budget) -> int:
    """Return how many bytes the group has, roughly, and forget the oldest topology epochs. Raises OverBudgetError."""
    for epoch in sorted(group.topology_epochs)[:-_EPOCHS]:
        del group.topology_epochs[epoch]
    members = {**group.members, **{one: Member(one) for one in group.targets.keys() - group.members.keys()}}
    tasks, text = 0, _size(group.assignment_configs)
    for member_id, member in members.items():  # targets may come first
        own = (*group.targets.get(member_id, ()), *member.current, *member.pending_revocation)
        tasks += len(own)
        text += _MEMBER_BYTES + sum(map(len, filter(None, _TEXTS(member)))) + _size(member.client_tags)
        text += _TASK_BYTES * len(own) + sum(len(subtopology_id) for _, subtopology_id, _ in own)
    topology = _size(group.subtopologies)
    over = (
        f"{has.format(size)}, where {key} allows {most:,}"
        for size, most, has, key in (
            (len(members), budget.members, "{:,} members", "`group_budget.members`"),
            (tasks, budget.tasks, "{:,} tasks", "`group_budget.tasks`"),
            (text, budget.bytes, "{:,} bytes of text", "`group_budget.bytes`"),
            (topology, budget.bytes // 2, "a topology of {:,} bytes", "half of `group_budget.bytes`"),
        )
        if size > most
    )
    if reason := "; ".join(over):
        raise OverBudgetError(f"it has {reason}")
    return topology + text


def _size(value: Any) -> int:  # noqa: ANN401 - values of a record: text, numbers, and lists and dicts of them
    """Return the characters of all text in a value, and something for each other value.

    The text is not made: lists of copartitioned topics name one long topic any number of times.
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(one) for pair in value.items() for one in pair)
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return _VALUE_BYTES
