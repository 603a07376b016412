"""How much of one group is kept, whatever its tenant writes: members, tasks, text, topology and events. Pure.

Theory of operation
-------------------
A tenant chooses how many members its group has and how long their ids and tags are. A row of `groups` is read and
written whole with every batch that concerns the group, so one group could take all memory. `trim` leaves out what
exceeds the budget: of members and subtopologies those with the first ids stay, so that what stays does not depend on
where the log is cut into batches. Client tags of a member that are large by themselves are left out in any case, as
they would be read and written again with every batch of the group. Of a group that is over its budget, counts and the
state are as of what is kept, and `Group.members_left_out` is how many members at least are not.

A group is trimmed between operations only: what is left out must not look like a change.

What is counted are records, bytes and steps, and never seconds: a slow machine must not change a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from streaming_app.groups.group import CONFIGS, TOPOLOGY, Group, Member

_TEXTS = attrgetter("member_id", "instance_id", "rack_id", "client_id", "client_host", "process_id", "user_endpoint")
"""All text of a member but its tags and tasks."""
_TASK_BYTES = 40  # of a task in a row, besides the id of its subtopology
_VALUE_BYTES = 30  # of what is no text
_MEMBER_TAGS = 64 << 10  # bytes of one member's client tags; those of Kafka Streams have 250
_EPOCHS = 100  # topology epochs whose times are kept, the newest
MEMBERS, TASKS, TAGS = "members", "tasks", "client tags"
PARTS = (MEMBERS, TASKS, TAGS, TOPOLOGY, CONFIGS)
"""What may be left out, in the words of the column `over_budget`."""


class OverBudgetError(Exception):
    """One operation or batch of a group exceeds what is kept of it while it is folded; the text says what."""


@dataclass(frozen=True)
class Budget:
    """The budget of one group; the fields are the keys of the section `group_budget`."""

    members: int = 10_000
    tasks: int = 200_000
    """Of all members, for each of current, target and pending."""
    bytes: int = 4 << 20
    """Of text of members: ids, hosts, tasks and client tags."""
    topology_bytes: int = 2 << 20
    events: int = 100_000
    """Of one batch; their text may have 8 times `bytes`."""
    steps: int = 5_000_000
    """Of one batch: records, and members looked at because of them. A group that needs more is set aside."""

    @property
    def event_bytes(self) -> int:
        """Bytes of text in the events of one batch."""
        return 8 * self.bytes

    @property
    def operation_bytes(self) -> int:
        """Bytes of records between two moments at which a group can be trimmed."""
        return 32 * (self.bytes + self.topology_bytes)


DEFAULT = Budget()


def trim(group: Group, budget: Budget) -> int:
    """Leave out of the group what exceeds the budget, and return how many bytes the rest has, roughly."""
    over, members_size = _trim_members(group, budget)
    over |= _still_over(group)
    if (topology := _first_that_fit(group.subtopologies, budget.topology_bytes)) is not None:
        over.add(TOPOLOGY)
        group.subtopologies = topology
    if _size(group.assignment_configs) > budget.bytes:
        over.add(CONFIGS)
        group.assignment_configs = {}
    for epoch in sorted(group.topology_epochs)[:-_EPOCHS]:
        del group.topology_epochs[epoch]
    group.over_budget = ", ".join(one for one in PARTS if one in over) or None
    group.truncated = group.over_budget is not None
    return _size(group.subtopologies) + members_size


def _still_over(group: Group) -> set[str]:
    """Return what was left out before, and that no record has brought again since."""
    before = set((group.over_budget or "").split(", "))
    if not group.members:
        before -= {TASKS, TAGS}
    return before if group.members_left_out else before - {MEMBERS}


def _trim_members(group: Group, budget: Budget) -> tuple[set[str], int]:
    """Return what was left out, and how many bytes the members have that are left."""
    over: set[str] = set()
    for one in group.members.values():
        if one.client_tags and _size(one.client_tags) > _MEMBER_TAGS:
            one.client_tags = {}
            over.add(TAGS)
    strangers = [Member(one) for one in group.targets.keys() - group.members.keys()]  # targets may come first
    members = [*group.members.values(), *strangers]
    tasks = sum(_task_count(group, one) for one in members)
    own = sum(_all_bytes(group, one) for one in group.members.values())
    size = own + sum(_all_bytes(group, one) for one in strangers)
    if len(members) > budget.members or tasks > budget.tasks or size > budget.bytes:
        over.update(_keep_first(group, budget))
        own = sum(_all_bytes(group, one) for one in group.members.values())
    return over, own


def _keep_first(group: Group, budget: Budget) -> Iterator[str]:
    """Keep the members with the first ids, then their tasks, then their tags, each as far as there is room."""
    ids = sorted({*group.members, *group.targets})
    members = [group.members.get(member_id) or Member(member_id) for member_id in ids]
    kept, room = _fitting(map(_member_bytes, members), budget.bytes)
    kept = min(kept, budget.members)
    if kept < len(ids):
        yield MEMBERS
        group.leave_out(ids[kept:])
    members = members[:kept]
    with_tasks, room = _fitting((_task_bytes(group, one) for one in members), room)
    with_tasks = min(with_tasks, _fitting((_task_count(group, one) for one in members), budget.tasks)[0])
    if with_tasks < len(members):
        yield TASKS
        for one in members[with_tasks:]:
            group.targets.pop(one.member_id, None)
            one.current, one.pending_revocation = {}, {}
    with_tags, _ = _fitting((_size(one.client_tags) for one in members), room)
    if with_tags < len(members):
        yield TAGS
        for one in members[with_tags:]:
            one.client_tags = {}


def _fitting(sizes: Iterable[int], room: int) -> tuple[int, int]:
    """Return how many of the first sizes fit, and the room that is left; none is where not all do."""
    fitting = 0
    for one in sizes:
        if one > room:
            return fitting, 0
        room -= one
        fitting += 1
    return fitting, room


def _first_that_fit(subtopologies: list[dict[str, Any]], room: int) -> list[dict[str, Any]] | None:
    """Return the subtopologies with the first ids that fit; None if all do."""
    if _size(subtopologies) <= room:
        return None
    ordered = sorted(subtopologies, key=lambda part: str(part["subtopology_id"]))
    return ordered[: _fitting(map(_size, ordered), room)[0]]


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
