"""Copies of tasks: which there are, and how far behind. Pure.

Theory of operation
-------------------
Clients report to the coordinator, in their heartbeats, how much of its changelogs each of their tasks has, and where
these end (`TaskOffsets`, `TaskEndOffsets` of StreamsGroupDescribe; Kafka 4.4). The coordinator keeps it in memory only,
so after it has moved nothing is known until the next reports, and it says -1, 2^63-1, or nothing, for what a client
does not know. A task with several changelogs of which one is unknown is reported as 0. So 0 of more is unknown, too.
An active task that runs is reported without an offset; one with an offset below the end still restores its state. A
member also reports tasks that it does not have, of which state is left on its disk: such a copy is dormant, unless
another member of its process has the task, as the threads of a process share the directory. Nobody keeps it up to date,
but a process with it needs less of a restore.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups.group import ROLES
from streaming_app.text import host_of

ACTIVE, STANDBY, WARMUP = ROLES
RESTORING, DORMANT = "restoring", "dormant"
ROLE_ORDER = (ACTIVE, RESTORING, STANDBY, WARMUP, DORMANT)
"""Of all roles of copies, the one that matters most first."""
DEFAULT_ACCEPTABLE_LAG = 10_000
"""Kafka's default of `acceptable.recovery.lag`."""

_UNKNOWN = (1 << 63) - 1  # Java's Long.MAX_VALUE, which Kafka Streams reports of a task whose offsets it does not know

TaskId = tuple[str, int]
"""Subtopology, partition."""


class TaskCopy(NamedTuple):
    """A row of `task_copies`, without the cluster."""

    group_id: str
    member_id: str
    process_id: str | None
    client_host: str | None
    role: str
    subtopology_id: str
    partition: int
    stateful: bool = False
    task_offset: int | None = None
    task_end_offset: int | None = None
    lag: int | None = None
    acceptable_lag: int | None = None
    reported_at: datetime | None = None
    ready_at: datetime | None = None

    @property
    def task(self) -> TaskId:
        """The task."""
        return self.subtopology_id, self.partition

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What identifies the row within its cluster."""
        return self.group_id, self.member_id, self.role, self.subtopology_id, self.partition

    @property
    def place(self) -> tuple[str, str, TaskId]:
        """What identifies the copy whatever its role becomes."""
        return self.group_id, self.member_id, self.task

    @property
    def known_acceptable_lag(self) -> int:
        """The `acceptable.recovery.lag` of the group, or Kafka's default where that is not known."""
        return DEFAULT_ACCEPTABLE_LAG if self.acceptable_lag is None else self.acceptable_lag

    @property
    def is_behind(self) -> bool:
        """Whether it is known to be further behind than is acceptable."""
        return self.lag is not None and self.lag > self.known_acceptable_lag


def format_task(task: TaskId) -> str:
    """Return a task in the notation of Kafka's logs: `0_3`."""
    return f"{task[0]}_{task[1]}"


def known_offset(offset: int | None) -> int | None:
    """Return an offset that a client reported; None for the values that stand for an unknown one."""
    return None if offset is None or not 0 <= offset < _UNKNOWN else offset


def lag_of(offset: int | None, end_offset: int | None) -> int | None:
    """Return how far behind a copy is, never negative; None if it is not known."""
    if offset is None or end_offset is None or offset == 0 < end_offset:
        return None
    return max(0, end_offset - offset)


def copies_of_description(described: Mapping[str, Any], acceptable_lag: int | None = None) -> list[TaskCopy]:
    """Return the copies in a group of a StreamsGroupDescribe response."""
    stateful = _stateful(described["topology"] or {})
    held, reported = [], []
    for member in described["members"]:
        own = described["group_id"], member["member_id"], member["process_id"], host_of(member["client_host"])
        held += [
            TaskCopy(*own, role, tasks["subtopology_id"], one, tasks["subtopology_id"] in stateful)
            for role in ROLES
            for tasks in member["assignment"][f"{role}_tasks"]
            for one in tasks["partitions"]
        ]
        offsets, ends = _by_task(member["task_offsets"]), _by_task(member["task_end_offsets"])
        for task in {**offsets, **ends}:
            offset, end = known_offset(offsets.get(task)), known_offset(ends.get(task))
            reported.append(TaskCopy(*own, DORMANT, *task, offset is not None, offset, end, lag_of(offset, end)))
    copies = with_offsets(held, reported, {member["member_id"] for member in described["members"]})
    return [copy._replace(acceptable_lag=acceptable_lag) for copy in copies]


def copies_of_row(row: Mapping[str, Any]) -> list[TaskCopy]:
    """Return the copies in a row of `groups`, of which the log has everything but the offsets."""
    members = {member["member_id"]: member for member in row["members"] or ()}
    stateful = _stateful(row)
    return [
        TaskCopy(
            row["group_id"],
            task["member_id"],
            members[task["member_id"]]["process_id"],
            host_of(members[task["member_id"]]["client_host"]),
            task["role"],
            task["subtopology_id"],
            task["partition"],
            task["subtopology_id"] in stateful,
        )
        for task in row["assignments"] or ()
        if task["current"] and task["member_id"] in members
    ]


def with_offsets(copies: Iterable[TaskCopy], known: Iterable[TaskCopy], members: Collection[str]) -> list[TaskCopy]:
    """Return the copies with the offsets that are known of the same tasks of the same members, in whatever role.

    And the dormant ones that are known of `members`. All copies of a task are stateful if one is, as only some clients
    may have reported offsets.
    """
    by_place, held = {one.place: one for one in known}, set()
    found = []
    for copy in copies:
        held.add((copy.group_id, copy.process_id or copy.member_id, copy.task))
        if one := by_place.pop(copy.place, None):
            role = RESTORING if copy.role == ACTIVE and one.lag else copy.role
            one = one._replace(process_id=copy.process_id, client_host=copy.client_host, role=role)
            found.append(one._replace(stateful=copy.stateful or one.stateful))
        else:
            found.append(copy)
    left = (one for one in by_place.values() if one.role == DORMANT and one.stateful and one.member_id in members)
    found += [one for one in left if (one.group_id, one.process_id or one.member_id, one.task) not in held]
    of_tasks = {(copy.group_id, copy.task) for copy in found if copy.stateful}
    return [copy._replace(stateful=(copy.group_id, copy.task) in of_tasks) for copy in found]


def _stateful(topology: Mapping[str, Any]) -> set[str]:
    """Return the subtopologies that have changelogs."""
    return {one["subtopology_id"] for one in topology.get("subtopologies") or () if one["state_changelog_topics"]}


def with_report_times(copies: Iterable[TaskCopy], before: Iterable[TaskCopy], now: datetime) -> list[TaskCopy]:
    """Return the copies with the time at which their offsets were new: of those `before` if these had the same."""
    earlier = {copy.place: copy for copy in before}
    return [copy._replace(reported_at=_reported_at(copy, earlier.get(copy.place), now)) for copy in copies]


def _reported_at(copy: TaskCopy, before: TaskCopy | None, now: datetime) -> datetime | None:
    offsets = (copy.task_offset, copy.task_end_offset)
    if offsets == (None, None):
        return None
    return before.reported_at if before and offsets == (before.task_offset, before.task_end_offset) else now


def _by_task(offsets: Iterable[Mapping[str, Any]]) -> dict[TaskId, int]:
    return {(one["subtopology_id"], one["partition"]): one["offset"] for one in offsets}


class CopiesSum(NamedTuple):
    """The copies of all tasks of one group in one role."""

    copies: int = 0
    lag: int | None = None
    """None if no client has reported any."""
    behind: int = 0
    """Those whose lag is not acceptable."""
    unknown: int = 0
    """Those of which no lag is reported: if there are any, the sum is a lower bound."""


def sum_copies(copies: Iterable[TaskCopy]) -> dict[str, CopiesSum]:
    """Sum up the copies of one group, by role; every role has a sum."""
    by_role: dict[str, list[TaskCopy]] = {role: [] for role in ROLE_ORDER}
    for copy in copies:
        by_role.setdefault(copy.role, []).append(copy)
    sums = {}
    for role, own in by_role.items():
        lags = [copy.lag for copy in own if copy.lag is not None]
        behind = sum(copy.is_behind for copy in own)
        sums[role] = CopiesSum(len(own), sum(lags) if lags else None, behind, len(own) - len(lags))
    return sums
