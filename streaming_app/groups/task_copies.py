"""Copies of tasks: which there are, how far behind, and what lasts of that: behind, too few, restored. Pure.

Theory of operation
-------------------
Clients report to the coordinator, in their heartbeats, how much of its changelogs each of their tasks has, and where
these end (`TaskOffsets`, `TaskEndOffsets` of StreamsGroupDescribe; Kafka 4.4). The coordinator keeps it in memory only,
so after it has moved nothing is known until the next reports, and it says -1, 2^63-1, or nothing, for what a client
does not know. A task with several changelogs of which one is unknown is reported as 0. So 0 of more is unknown, too.
An active task that runs is reported without an offset; one with an offset below the end still restores its state. A
member also reports tasks that it does not have, of which state is left on its disk: such a copy is dormant. Nobody
keeps it up to date, but a process with it needs less of a restore.

A status is made from each description of the group and the status before it. What it says since when lasts as long as
it is so, and no status is made while a group rebalances: tasks and their copies move then.

A restore ends when its pace by its newest reports says so. A thread restores all its tasks with one consumer, which
goes on faster with the rest when one is done. So no task takes longer than all that is left to the thread does at the
pace of the thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
    rate: float | None = None
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
    def process_and_task(self) -> tuple[str, str, TaskId]:
        """What identifies the directory with its state."""
        return self.group_id, self.process_id or self.member_id, self.task

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


def copies_of_description(
    described: Mapping[str, Any], acceptable_lag: int | None, before: Iterable[TaskCopy], now: datetime
) -> list[TaskCopy]:
    """Return the copies in a group of a StreamsGroupDescribe response.

    Offsets that are the same as those of the copies `before` were reported when these were.
    """
    stateful, earlier = _stateful(described["topology"] or {}), {copy.place: copy for copy in before}
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
            copy = TaskCopy(*own, DORMANT, *task, offset is not None, offset, end, lag_of(offset, end))
            if (offset, end) != (None, None):
                old = earlier.get(copy.place, copy)
                is_same = (old.task_offset, old.task_end_offset) == (offset, end)
                copy = copy._replace(reported_at=(is_same and old.reported_at) or now)
            reported.append(copy)
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

    And the dormant ones that are known of `members`: one in each process that has no other copy of the task, as all its
    threads report what lies in its directory. All copies of a task are stateful if one is, as only some clients may
    have reported offsets.
    """
    by_place = {one.place: one for one in known}
    found = []
    for copy in copies:
        one = by_place.pop(copy.place, copy)
        role = RESTORING if copy.role == ACTIVE and one.lag else copy.role
        one = one._replace(process_id=copy.process_id, client_host=copy.client_host, role=role)
        found.append(one._replace(stateful=copy.stateful or one.stateful))
    has = {copy.process_and_task for copy in found}
    for one in by_place.values():
        if one.role == DORMANT and one.stateful and one.member_id in members and one.process_and_task not in has:
            has.add(one.process_and_task)
            found.append(one)
    of_tasks = {(copy.group_id, copy.task) for copy in found if copy.stateful}
    return [copy._replace(stateful=(copy.group_id, copy.task) in of_tasks) for copy in found]


def _stateful(topology: Mapping[str, Any]) -> set[str]:
    """Return the subtopologies that have changelogs."""
    return {one["subtopology_id"] for one in topology.get("subtopologies") or () if one["state_changelog_topics"]}


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
    rate: float | None = None
    """Offsets a second; None if it is not known of any."""
    ready_at: datetime | None = None
    """When the last of them is at the end of its changelogs; None if that is not known of each."""


def sum_copies(copies: Iterable[TaskCopy]) -> dict[str, CopiesSum]:
    """Sum up the copies of one group, by role; every role has a sum."""
    by_role: defaultdict[str, list[TaskCopy]] = defaultdict(list)
    for copy in copies:
        by_role[copy.role].append(copy)
    return {role: _sum(by_role[role]) for role in ROLE_ORDER}


def _sum(copies: Sequence[TaskCopy]) -> CopiesSum:
    lags = [copy.lag for copy in copies if copy.lag is not None]
    rates = [copy.rate for copy in copies if copy.rate is not None]
    ends = [copy.ready_at for copy in copies if copy.ready_at is not None]
    return CopiesSum(
        len(copies),
        sum(lags) if lags else None,
        sum(copy.is_behind for copy in copies),
        len(copies) - len(lags),
        sum(rates) if rates else None,
        max(ends) if ends and len(ends) == len(copies) else None,
    )


class Report(NamedTuple):
    """What was left of the changelogs of a copy, or of all that a thread restores, and when the report of it came."""

    at: datetime
    lag: int


_FEWEST, _MOST = 2, 6  # reports that a pace is made of, and that are kept: what came last counts
_LONGEST_SECONDS = 365 * 86_400.0  # of a restore


class Progress(NamedTuple):
    """How a copy that restores, or a standby that is further behind than acceptable, has come on by its reports."""

    copy: TaskCopy
    reports: tuple[Report, ...]
    """The newest of those that came nearer to the end than each before, in order: at least one."""
    ends_at: datetime | None = None
    """When it is done if it goes on like that; None if that is not known yet."""

    @property
    def rate(self) -> float | None:
        """Offsets a second, by these; None if it is not known yet."""
        return _rate(self.reports)

    @property
    def lag(self) -> int:
        """The fewest offsets that were left."""
        return self.reports[-1].lag

    @property
    def fell_at(self) -> datetime:
        """When the report of these came: it has not come nearer to the end after it."""
        return self.reports[-1].at


def _rate(reports: Sequence[Report]) -> float | None:
    """Return how many offsets a second were done; None of a single report.

    The first is left out once there are three: it may have been made long before the job saw it.
    """
    first, last = reports[1 if len(reports) > _FEWEST else 0], reports[-1]
    seconds = (last.at - first.at).total_seconds()
    return (first.lag - last.lag) / seconds if seconds > 0 else None


def _ends_at(reports: Sequence[Report]) -> datetime | None:
    """Return when nothing is left at that rate; None if it is not known, or so far away that a client made it up."""
    if not (rate := _rate(reports)) or (seconds := reports[-1].lag / rate) > _LONGEST_SECONDS:
        return None
    return reports[-1].at + timedelta(seconds=seconds)


class TooFew(NamedTuple):
    """A task with copies in fewer processes than the group asks for, although there are others."""

    since: datetime
    processes: int
    """That have a copy."""


@dataclass(frozen=True)
class GroupCopies:
    """The copies of the tasks of one group, at the newest description of it."""

    standby_replicas: int | None = None
    """The group's `num.standby.replicas`; None if it is not known."""
    behind: tuple[Progress, ...] = ()
    """Standbys; those that have not come nearer to the end for the longest time first."""
    uncopied: Mapping[TaskId, TooFew] = field(default_factory=dict)
    """Stateful tasks with fewer copies than are asked for."""
    restoring: Mapping[str, Progress] = field(default_factory=dict)
    """By task, such as `0_3`: what its owner reports of its restore."""
    threads: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)
    """By member what was left of all that it restores."""


def next_status(
    copies: Iterable[TaskCopy], standby_replicas: int | None, before: GroupCopies | None, now: datetime
) -> GroupCopies:
    """Return the status of a group that does not rebalance; `copies` are all that it has."""
    known = [copy for copy in copies if copy.role != DORMANT]  # nobody keeps those up to date
    before = before or GroupCopies()
    earlier = {one.copy.key: one for one in (*before.behind, *before.restoring.values())}
    progress = [one for copy in known if (one := _next_progress(copy, earlier.get(copy.key), now))]
    threads = _next_threads(known, progress, before, now)
    late = [one for one in progress if one.copy.role == STANDBY]
    return GroupCopies(
        standby_replicas,
        tuple(sorted(late, key=lambda one: (one.fell_at, one.copy.key))),
        _uncopied(known, standby_replicas or 0, before, now),
        {format_task(one.copy.task): _with_thread(one, threads) for one in progress if one.copy.role == RESTORING},
        threads,
    )


def _next_progress(copy: TaskCopy, old: Progress | None, now: datetime) -> Progress | None:
    """Return how a copy has come on; None if nothing is to be said of it."""
    if copy.lag is None:
        return old  # its client has not reported since the coordinator moved
    if copy.role != RESTORING and not (copy.role == STANDBY and copy.is_behind):
        return None
    reports = _next_reports(old and old.reports, copy.lag, now, is_restore=copy.role == RESTORING)
    return Progress(copy, reports, _ends_at(reports))


def _next_reports(
    old: tuple[Report, ...] | None, lag: int, now: datetime, *, is_restore: bool = True
) -> tuple[Report, ...]:
    """Return the reports with one more, if that comes nearer to the end; a restore of which more is left is another."""
    if old is None or (is_restore and lag > old[0].lag):
        return (Report(now, lag),)
    return (*old[1 - _MOST :], Report(now, lag)) if lag < old[-1].lag else old


def _next_threads(
    copies: Iterable[TaskCopy], progress: Iterable[Progress], before: GroupCopies, now: datetime
) -> dict[str, tuple[Report, ...]]:
    """Return by member what was left of all that it restores, from when on none of that went to another member."""
    left, has = Counter[str](), {copy.place for copy in copies}
    for one in progress:
        if one.copy.role == RESTORING:
            left[one.copy.member_id] += one.lag
    lost = {one.copy.member_id for one in before.restoring.values() if one.copy.place not in has}
    kept = {member_id: old for member_id, old in before.threads.items() if member_id not in lost}
    return {member_id: _next_reports(kept.get(member_id), lag, now) for member_id, lag in left.items()}


def _with_thread(one: Progress, threads: Mapping[str, tuple[Report, ...]]) -> Progress:
    """Return the progress of a task that ends, at the latest, when its thread is done with all."""
    ends = one.ends_at, _ends_at(threads[one.copy.member_id])
    return one._replace(ends_at=min(filter(None, ends), default=None))


def _uncopied(
    copies: Sequence[TaskCopy], standby_replicas: int, before: GroupCopies, now: datetime
) -> dict[TaskId, TooFew]:
    places: defaultdict[TaskId, set[str | None]] = defaultdict(set)
    for copy in copies:
        places[copy.task].add(copy.process_id)
    processes = {process for own in places.values() for process in own}
    wanted = min(1 + standby_replicas, len(processes))  # of more there is nowhere to put another copy
    return {
        task: TooFew(old.since if (old := before.uncopied.get(task)) else now, len(places[task]))
        for task in sorted({copy.task for copy in copies if copy.stateful})
        if len(places[task]) < wanted
    }
