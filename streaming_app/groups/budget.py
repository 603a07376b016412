"""Limits for one group: members, tasks, text, topology, events and steps of a batch. Pure.

A tenant chooses how many members its group has, and how long their ids and tags are. Each batch with records of a group
reads and writes its whole row of `groups`, so one group could take all memory. A group that exceeds its budget is set
aside: its row stays as it was, with a reason that names the size, until somebody raises the budget and releases it.

The budget counts records, bytes and steps, and never seconds: a slow machine must not change a row.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from streaming_app.groups.group import Group, Member

_TEXTS = attrgetter("member_id", "instance_id", "rack_id", "client_id", "client_host", "process_id", "user_endpoint")
"""All text of a member except its tags and tasks."""
_TASK_BYTES = 40  # for a task in a row, without the id of its subtopology
_VALUE_BYTES = 30  # for a value that is not text
_MEMBER_BYTES = 4 * _VALUE_BYTES  # for a member, without its text and tasks
_EPOCHS = 100  # how many topology epochs keep their times: the newest


class OverBudgetError(Exception):
    """A group, or one operation or batch of it, exceeds its budget. The text names the size and the limit."""


@dataclass(frozen=True)
class Budget:
    """The budget of one group; `members`, `tasks` and `bytes` are the keys of the section `group_budget`."""

    members: int = 10_000
    tasks: int = 200_000
    """Sum over all members of their current and target tasks, of those that they are to revoke, and of their sums."""
    bytes: int = 4 << 20
    """Text of the members: ids, hosts, tasks and client tags. A topology may have half as many bytes."""
    events: int = 100_000
    """Events of one batch. Their text may have 8 times `bytes`."""
    steps: int = 5_000_000
    """Steps of one batch: each record is one, and so is each member that a record makes the fold visit."""


DEFAULT = Budget()


def check_size(group: Group, budget: Budget) -> int:
    """Return the rough size of the group in bytes. Also removes the oldest topology epochs. Raises OverBudgetError."""
    for epoch in sorted(group.topology_epochs)[:-_EPOCHS]:
        del group.topology_epochs[epoch]
    members = {**group.members, **{one: Member(one) for one in group.targets.keys() - group.members.keys()}}
    tasks, text = 0, _size(group.assignment_configs)
    for member_id, member in members.items():  # a target may be read before its member
        own = (*group.targets.get(member_id, ()), *member.current, *member.pending_revocation)
        own += tuple(("", *task) for task in member.task_sums)
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
    """Return the number of characters of all text in a value, plus `_VALUE_BYTES` for each value that is not text.

    It does not format the value: lists of copartitioned topics can name one long topic any number of times.
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(len, value)) + sum(map(_size, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return _VALUE_BYTES
