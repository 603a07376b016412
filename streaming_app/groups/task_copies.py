"""Copies of tasks: which there are, how far behind, and which process may be stopped without a restore. Pure.

Theory of operation
-------------------
Clients report to the coordinator, in their heartbeats, how much of its changelogs each of their tasks has, and where
these end (`TaskOffsets`, `TaskEndOffsets` of StreamsGroupDescribe; Kafka 4.4). The coordinator keeps it in memory only,
so after it has moved nothing is known until the next reports, and it says -1, 2^63-1, or nothing, for what a client
does not know. A task with several changelogs of which one is unknown is reported as 0. So 0 of more is unknown, too.
An active task that runs is reported without an offset; one with an offset below the end still restores its state. A
member also reports tasks that it does not have, of which state is left on its disk: such a copy is dormant. Nobody
keeps it up to date, but a process with it needs less of a restore.

A process may be stopped if every stateful task that it has would go on elsewhere without a restore: another process has
the task active, or has a copy that is at most `acceptable.recovery.lag` behind. Copies of static members that left
temporarily do not count: nobody runs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups.group import ROLES
from streaming_app.groups.snapshot import AWAY_EPOCH
from streaming_app.text import host_of

ACTIVE, STANDBY, WARMUP = ROLES
RESTORING, DORMANT = "restoring", "dormant"
ROLE_ORDER = (ACTIVE, RESTORING, STANDBY, WARMUP, DORMANT)
"""Of all roles of copies, the one that matters most first."""
_RUNS = (ACTIVE, RESTORING)
"""Of copies whose member owns the task."""
DEFAULT_ACCEPTABLE_LAG = 10_000
"""Kafka's default of `acceptable.recovery.lag`."""

_UNKNOWN = (1 << 63) - 1  # Java's Long.MAX_VALUE, which Kafka Streams reports of a task whose offsets it does not know

TaskId = tuple[str, int]
"""Subtopology, partition."""


def effective_acceptable_lag(own: int | None) -> int:
    """Return the `acceptable.recovery.lag` of a group: its own, or Kafka's default where that is not known."""
    return DEFAULT_ACCEPTABLE_LAG if own is None else own


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
    def is_behind(self) -> bool:
        """Whether it is known to be further behind than is acceptable."""
        acceptable = effective_acceptable_lag(self.acceptable_lag)
        return self.lag is not None and self.lag > acceptable


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
    topology = described["topology"] or {}
    stateful = {one["subtopology_id"] for one in topology.get("subtopologies") or () if one["state_changelog_topics"]}
    copies = []
    for member in described["members"]:
        offsets, ends = _by_task(member["task_offsets"]), _by_task(member["task_end_offsets"])
        owned = {
            (tasks["subtopology_id"], partition): role
            for role in ROLES
            for tasks in member["assignment"][f"{role}_tasks"]
            for partition in tasks["partitions"]
        }
        dormant = {task: DORMANT for task in offsets if task not in owned and known_offset(offsets[task]) is not None}
        for task, role in (owned | dormant).items():
            offset, end = known_offset(offsets.get(task)), known_offset(ends.get(task))
            lag = lag_of(offset, end)
            copies.append(
                TaskCopy(
                    described["group_id"],
                    member["member_id"],
                    member["process_id"],
                    host_of(member["client_host"]),
                    _role(role, lag),
                    *task,
                    task[0] in stateful or offset is not None,
                    offset,
                    end,
                    lag,
                    acceptable_lag,
                )
            )
    return _with_state_of_tasks(copies)


def _role(owned: str, lag: int | None) -> str:
    """Return the role of a copy whose member owns the task in that role, or not at all."""
    return RESTORING if owned == ACTIVE and lag else owned


def copies_of_row(row: Mapping[str, Any]) -> list[TaskCopy]:
    """Return the copies in a row of `groups`, of which the log has everything but the offsets."""
    members = {member["member_id"]: member for member in row["members"] or ()}
    stateful = {one["subtopology_id"] for one in row["subtopologies"] or () if one["state_changelog_topics"]}
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


def away_members(row: Mapping[str, Any]) -> frozenset[str]:
    """Return the static members of a row of `groups` that left temporarily: they own tasks and run none."""
    return frozenset(member["member_id"] for member in row["members"] or () if member["member_epoch"] == AWAY_EPOCH)


def with_offsets(copies: Iterable[TaskCopy], known: Iterable[TaskCopy]) -> list[TaskCopy]:
    """Return the copies with the offsets that are known of the same tasks of the same members, in whatever role.

    And the dormant ones that are known of members which have a copy.
    """
    by_place = {one.place: one for one in known}
    found, members = [], set()
    for copy in copies:
        members.add((copy.group_id, copy.member_id))
        one = by_place.pop(copy.place, None)
        role = _role(copy.role, one.lag if one else None)
        found.append(one._replace(role=role, process_id=copy.process_id, client_host=copy.client_host) if one else copy)
    left = [one for one in by_place.values() if one.role == DORMANT and (one.group_id, one.member_id) in members]
    return _with_state_of_tasks([*found, *left])


def with_report_times(copies: Iterable[TaskCopy], before: Iterable[TaskCopy], now: datetime) -> list[TaskCopy]:
    """Return the copies with the time at which their offsets were new: of those `before` if these had the same."""
    earlier = {copy.place: copy for copy in before}
    return [copy._replace(reported_at=_reported_at(copy, earlier.get(copy.place), now)) for copy in copies]


def _reported_at(copy: TaskCopy, before: TaskCopy | None, now: datetime) -> datetime | None:
    offsets = (copy.task_offset, copy.task_end_offset)
    if offsets == (None, None):
        return None
    return before.reported_at if before and offsets == (before.task_offset, before.task_end_offset) else now


def _with_state_of_tasks(copies: list[TaskCopy]) -> list[TaskCopy]:
    """Return the copies, all of a task stateful if one is: only some clients may have reported offsets."""
    stateful = {(copy.group_id, copy.task) for copy in copies if copy.stateful}
    return [copy._replace(stateful=(copy.group_id, copy.task) in stateful) for copy in copies]


def _by_task(offsets: Iterable[Mapping[str, Any]]) -> dict[TaskId, int]:
    return {(one["subtopology_id"], one["partition"]): one["offset"] for one in offsets}


@dataclass(frozen=True)
class CopiesSum:
    """The copies of all tasks of one group. Lags are None if the client of no such copy has reported any."""

    standbys: int
    standby_lag: int | None
    standbys_behind: int
    """Those whose lag is not acceptable."""
    warmups: int
    warmup_lag: int | None
    standbys_unknown: int = 0
    """Those of which no lag is reported: if there are any, the sum is a lower bound."""
    warmups_unknown: int = 0


def sum_copies(copies: Iterable[TaskCopy]) -> CopiesSum:
    """Sum up the copies of one group."""
    by_role: defaultdict[str, list[TaskCopy]] = defaultdict(list)
    for copy in copies:
        by_role[copy.role].append(copy)
    standbys, warmups = by_role[STANDBY], by_role[WARMUP]
    behind = sum(copy.is_behind for copy in standbys)
    (standby_lag, standbys_unknown), (warmup_lag, warmups_unknown) = _sum_of_lags(standbys), _sum_of_lags(warmups)
    return CopiesSum(len(standbys), standby_lag, behind, len(warmups), warmup_lag, standbys_unknown, warmups_unknown)


def _sum_of_lags(copies: Sequence[TaskCopy]) -> tuple[int | None, int]:
    lags = [copy.lag for copy in copies if copy.lag is not None]
    return sum(lags) if lags else None, len(copies) - len(lags)


# Whether a process may be stopped


@dataclass(frozen=True)
class StopCheck:
    """Whether a process may be stopped now without a restore."""

    process_id: str | None
    client_host: str | None
    tasks: int
    """How many copies of tasks it has."""
    obstacles: tuple[str, ...]
    """Why not, one for each task that would be restored."""

    @property
    def may_stop(self) -> bool:
        """Whether nothing would be restored."""
        return not self.obstacles


def check_stops(
    copies: Iterable[TaskCopy], acceptable_lag: int = DEFAULT_ACCEPTABLE_LAG, away: Collection[str] = ()
) -> list[StopCheck]:
    """Return a check for each process of a group, by host and process; `away` are members that left temporarily."""
    by_process: defaultdict[tuple[str, str], list[TaskCopy]] = defaultdict(list)
    by_task: defaultdict[TaskId, list[TaskCopy]] = defaultdict(list)
    for copy in copies:
        by_process[copy.client_host or "", copy.process_id or ""].append(copy)
        if copy.member_id not in away:
            by_task[copy.task].append(copy)
    return [
        StopCheck(
            own[0].process_id,
            own[0].client_host,
            len(own),
            tuple(_obstacles(own, by_task, acceptable_lag)),
        )
        for _, own in sorted(by_process.items())
    ]


def _obstacles(own: Iterable[TaskCopy], by_task: Mapping[TaskId, list[TaskCopy]], acceptable: int) -> Iterator[str]:
    for task, copy in sorted({copy.task: copy for copy in own if copy.stateful and copy.role != DORMANT}.items()):
        others = [one for one in by_task.get(task, ()) if one.process_id != copy.process_id]
        if any(one.role in _RUNS or (one.lag is not None and one.lag <= acceptable) for one in others):
            continue
        name, lags = format_task(task), [one.lag for one in others if one.lag is not None]
        if not others:
            yield f"{name} has no other copy"
        elif lags:
            yield f"{name}: the best other copy is {min(lags):,} behind, more than {acceptable:,}"
        else:
            yield f"{name}: how far behind the other {'copies are' if len(others) > 1 else 'copy is'} is not known"
