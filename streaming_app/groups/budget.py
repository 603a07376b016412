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
from streaming_app.text import count

_TEXTS = attrgetter("member_id", "instance_id", "rack_id", "client_id", "client_host", "process_id", "user_endpoint")
"""All text of a member but its tags and tasks."""
_TASK_BYTES = 40  # of a task in a row, besides the id of its subtopology
_VALUE_BYTES = 30  # of what is no text
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

    @property
    def topology_bytes(self) -> int:
        """Bytes of text of the topology."""
        return self.bytes // 2

    @property
    def event_bytes(self) -> int:
        """Bytes of text in the events of one batch."""
        return 8 * self.bytes

    @property
    def operation_bytes(self) -> int:
        """Bytes of records between two moments at which the size of a group is looked at."""
        return 32 * (self.bytes + self.topology_bytes)


DEFAULT = Budget()


def check_size(group: Group, budget: Budget) -> int:
    """Return how many bytes the group has, roughly, and forget the oldest topology epochs. Raises OverBudgetError."""
    for epoch in sorted(group.topology_epochs)[:-_EPOCHS]:
        del group.topology_epochs[epoch]
    strangers = [Member(one) for one in group.targets.keys() - group.members.keys()]  # targets may come first
    members = [*group.members.values(), *strangers]
    tasks = sum(_task_count(group, one) for one in members)
    own = sum(_all_bytes(group, one) for one in group.members.values())
    text = own + sum(_all_bytes(group, one) for one in strangers) + _size(group.assignment_configs)
    topology = _size(group.subtopologies)
    sizes = {"members": len(members), "tasks": tasks, "bytes": text, "topology_bytes": topology}
    if over := [key for key, size in sizes.items() if size > getattr(budget, key)]:
        has = {
            "members": count(len(members), "member"),
            "tasks": count(tasks, "task"),
            "bytes": f"{text:,} bytes of text",
            "topology_bytes": f"a topology of {topology:,} bytes in {len(group.subtopologies):,} parts",
        }
        limits = {key: f"`group_budget.{key}`" for key in has} | {"topology_bytes": "half of `group_budget.bytes`"}
        allowed = (f"{has[key]}, where {limits[key]} allows {getattr(budget, key):,}" for key in over)
        raise OverBudgetError(f"it has {'; '.join(allowed)}")
    return topology + own


def _all_bytes(group: Group, member: Member) -> int:
    return _member_bytes(member) + _task_bytes(group, member) + _size(member.client_tags)


def _member_bytes(member: Member) -> int:
    return _VALUE_BYTES * 4 + sum(map(len, filter(None, _TEXTS(member))))


def _task_bytes(group: Group, member: Member) -> int:
    own = group.targets.get(member.member_id, {}), member.current, member.pending_revocation
    return sum(_TASK_BYTES + len(subtopology_id) for tasks in own for _, subtopology_id, _ in tasks)


def _task_count(group: Group, member: Member) -> int:
    return len(group.targets.get(member.member_id, {})) + len(member.current) + len(member.pending_revocation)


def _size(value: Any) -> int:  # noqa: ANN401 - values of a record: text, numbers, and lists and dicts of them
    """Return the characters of all text in a value, and something for each other value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(one) for pair in value.items() for one in pair)
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return _VALUE_BYTES
