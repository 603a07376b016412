"""The copies of each task, their lag, and conditions over time: standbys behind, too few copies, restores. Pure.

Theory of operation
-------------------
In their heartbeats, clients report for each task the offset in its changelogs and the end of these (`TaskOffsets` and
`TaskEndOffsets` of StreamsGroupDescribe; Kafka 4.4). The coordinator keeps the reports only in memory: after the
coordinator moves, nothing is known until the next reports. For an unknown value a client reports -1, 2^63-1 or nothing.
For a task with several changelogs it reports 0 if one of them is unknown, so an offset of 0 before a later end is
unknown, too. A running active task is reported without an offset; an active task with an offset below the end restores
its state. If that offset is 0, the restore has not begun, or one of its changelogs is unknown: then its lag is at most
the end. A member also reports tasks that it does not have but whose state is on its disk. Such a copy is dormant:
nobody keeps it up to date, but it makes a restore in this process shorter.

Each description of the group gives a new status (`GroupCopies`), made from the status before. A time since when a
condition holds stays the same as long as the condition holds. While a group rebalances there is no new status, because
tasks and copies move.

The end of a restore is estimated from the rate of its newest reports. A thread restores all its tasks with one
consumer: when one task is done, the others become faster. So the estimate for a task is never later than the estimate
for everything that the thread restores.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.groups.classic import AT_END, furthest
from streaming_app.groups.group import ACTIVE, CLASSIC, ROLES, STANDBY, STREAMS, WARMUP
from streaming_app.text import host_of

RESTORING, DORMANT = "restoring", "dormant"
ROLE_ORDER = (ACTIVE, RESTORING, STANDBY, WARMUP, DORMANT)
DEFAULT_ACCEPTABLE_LAG = 10_000
"""Kafka's default of `acceptable.recovery.lag`."""

_UNKNOWN = (1 << 63) - 1  # Java's Long.MAX_VALUE: Kafka Streams reports it for a task with unknown offsets

TaskId = tuple[str, int]
"""Subtopology id, partition."""


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
    protocol: str = STREAMS

    @property
    def task(self) -> TaskId:
        """The task."""
        return self.subtopology_id, self.partition

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """The columns that identify the row within its cluster."""
        return self.group_id, self.member_id, self.role, self.subtopology_id, self.partition

    @property
    def place(self) -> tuple[str, str, TaskId]:
        """The identity of the copy when its role changes."""
        return self.group_id, self.member_id, self.task

    @property
    def process_and_task(self) -> tuple[str, str, TaskId]:
        """The identity of the directory with its state."""
        return self.group_id, self.process_id or self.member_id, self.task

    @property
    def known_acceptable_lag(self) -> int:
        """The `acceptable.recovery.lag` of the group, or Kafka's default if the group's value is not known."""
        return DEFAULT_ACCEPTABLE_LAG if self.acceptable_lag is None else self.acceptable_lag

    @property
    def is_behind(self) -> bool:
        """Whether its lag is known and above `acceptable.recovery.lag`."""
        return self.lag is not None and self.lag > self.known_acceptable_lag


def format_task(task: TaskId) -> str:
    """Return a task in the notation of Kafka's logs: `0_3`."""
    return f"{task[0]}_{task[1]}"


def known_offset(offset: int | None) -> int | None:
    """Return an offset that a client reported; None for the values with the meaning unknown."""
    return None if offset is None or not 0 <= offset < _UNKNOWN else offset


def lag_of(offset: int | None, end_offset: int | None) -> int | None:
    """Return the lag of a copy, at least 0; None if it is not known."""
    if offset is None or end_offset is None or offset == 0 < end_offset:
        return None
    return max(0, end_offset - offset)


def copies_of_description(
    described: Mapping[str, Any], acceptable_lag: int | None, before: Iterable[TaskCopy], now: datetime
) -> list[TaskCopy]:
    """Return the copies of a group, which is an element of a StreamsGroupDescribe response.

    A copy with the same offsets as in `before` keeps its `reported_at`.
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
    """Return the copies in a row of `groups`. The log has offsets only with the classic protocol."""
    members = {member["member_id"]: member for member in row["members"] or ()}
    is_classic = row.get("protocol") == CLASSIC
    stateful = _stateful(row)
    copies = [
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
    return _with_sums(copies, row, members) if is_classic else copies


def _with_sums(
    copies: Iterable[TaskCopy], row: Mapping[str, Any], members: Mapping[str, Mapping[str, Any]]
) -> list[TaskCopy]:
    """Return the copies of a classic group with the offsets that members reported when they joined, and dormant copies.

    A thread may report the offset of a task that another thread of its process has. A task that changes hands has no
    dormant copies: where it is in no member, it is not known which copies stay.
    """
    told = furthest(
        (
            member["process_id"] or member["member_id"],
            (one["subtopology_id"], one["partition"]),
            AT_END if one["at_end"] else one["task_offset"],
            member,
        )
        for member in members.values()
        for one in member["task_sums"] or ()
    )
    found = []
    for copy in copies:
        one = told.pop((copy.process_id or copy.member_id, copy.task), None)
        stateful = copy.stateful or one is not None
        of_sum = _of_sum(one, is_active=copy.role == ACTIVE)
        found.append(copy._replace(protocol=CLASSIC, stateful=stateful, **of_sum))
    active = {copy.task for copy in found if copy.role == ACTIVE}
    for (_, task), one in told.items():
        if task in active or not row["tasks_moving"]:
            member = one[1]
            own = row["group_id"], member["member_id"], member["process_id"], host_of(member["client_host"])
            found.append(TaskCopy(*own, DORMANT, *task, stateful=True, protocol=CLASSIC, **_of_sum(one)))
    return found


def _of_sum(one: tuple[int, Mapping[str, Any]] | None, *, is_active: bool = False) -> dict[str, Any]:
    """Return the columns of an offset that a member reported: a running active task is at the end of its changelogs."""
    if one is None:
        return {}
    offset, member = one
    at_end = offset == AT_END
    reported = {"task_offset": None if at_end else offset, "reported_at": member["updated_at"]}
    return reported | {"lag": 0 if is_active and at_end else None}


def with_offsets(copies: Iterable[TaskCopy], known: Iterable[TaskCopy], members: Collection[str]) -> list[TaskCopy]:
    """Return `copies` with the offsets of those copies in `known` that have the same member and task, in any role.

    Also returns the dormant copies in `known` that belong to `members`: at most one for each process and task, because
    all threads of a process report the same directory, and none if the process has another copy of the task. If one
    copy of a task is stateful, all are: perhaps only some clients have reported offsets.
    """
    by_place = {one.place: one for one in known}
    found = []
    for copy in copies:
        one = by_place.pop(copy.place, copy)
        if copy.role == ACTIVE and one.task_offset == 0:
            one = one._replace(lag=one.task_end_offset)
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
    """Return the subtopologies that have changelogs, or of which members of a classic group reported offsets."""
    parts = topology.get("subtopologies") or ()
    return {one["subtopology_id"] for one in parts if one["state_changelog_topics"] or one.get("has_state")}


def _by_task(offsets: Iterable[Mapping[str, Any]]) -> dict[TaskId, int]:
    return {(one["subtopology_id"], one["partition"]): one["offset"] for one in offsets}


class CopiesSum(NamedTuple):
    """Sums over the copies of all tasks of one group in one role."""

    copies: int = 0
    lag: int | None = None
    """The sum of the reported lags; None if no client has reported any."""
    behind: int = 0
    """How many have a lag above `acceptable.recovery.lag`."""
    unknown: int = 0
    """How many have no reported lag. If there are any, `lag` is a lower bound."""
    rate: float | None = None
    """Offsets a second; None if no rate is known."""
    ready_at: datetime | None = None
    """When all of them are at the end of their changelogs; None if this is not known for every copy."""


def sum_copies(copies: Iterable[TaskCopy]) -> dict[str, CopiesSum]:
    """Return the sums of one group by role. Every role is in the result."""
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


class LagReport(NamedTuple):
    """A report of the lag of one copy, or of all copies that a thread restores, and when the job saw it."""

    at: datetime
    lag: int


_FEWEST, _MOST = 2, 6  # reports: how many a rate needs, and how many are kept, the newest
_LONGEST_SECONDS = 365 * 86_400.0  # the longest estimate for a restore that is believed


class CopyProgress(NamedTuple):
    """The progress of a copy that restores, or of a standby with a lag above `acceptable.recovery.lag`."""

    copy: TaskCopy
    reports: tuple[LagReport, ...]
    """The newest reports with a lower lag than all reports before, in order: at least one."""
    ends_at: datetime | None = None
    """When the copy has caught up if the rate stays the same; None if this is not known yet."""

    @property
    def rate(self) -> float | None:
        """Offsets a second, from these reports; None if it is not known yet."""
        return _rate(self.reports)

    @property
    def lag(self) -> int:
        """The lowest reported lag."""
        return self.reports[-1].lag

    @property
    def fell_at(self) -> datetime:
        """When the lag last became lower."""
        return self.reports[-1].at


def _rate(reports: Sequence[LagReport]) -> float | None:
    """Return the offsets a second between the reports; None if there is only one.

    From three reports on, the first one is ignored: the client may have sent it long before the job saw it.
    """
    first, last = reports[1 if len(reports) > _FEWEST else 0], reports[-1]
    seconds = (last.at - first.at).total_seconds()
    return (first.lag - last.lag) / seconds if seconds > 0 else None


def _ends_at(reports: Sequence[LagReport]) -> datetime | None:
    """Return when the lag is 0 at this rate. None: not known, or so far in the future that the reports are not real."""
    if not (rate := _rate(reports)) or (seconds := reports[-1].lag / rate) > _LONGEST_SECONDS:
        return None
    return reports[-1].at + timedelta(seconds=seconds)


class TooFew(NamedTuple):
    """A task with copies in fewer processes than configured, although there are more processes."""

    since: datetime
    processes: int


@dataclass(frozen=True)
class GroupCopies:
    """The status of the copies of one group, as of its newest description."""

    standby_replicas: int | None = None
    """The group's `num.standby.replicas`; None if it is not known."""
    behind: tuple[CopyProgress, ...] = ()
    """Standbys with a lag above `acceptable.recovery.lag`. The one whose lag fell longest ago is the first."""
    uncopied: Mapping[TaskId, TooFew] = field(default_factory=dict)
    """Stateful tasks with fewer copies than configured."""
    restoring: Mapping[str, CopyProgress] = field(default_factory=dict)
    """Task, such as `0_3` -> the progress of its restore, as its owner reports it."""
    threads: Mapping[str, tuple[LagReport, ...]] = field(default_factory=dict)
    """Member id -> reports of the lag of everything that the member restores. A member is one stream thread."""

    @property
    def is_at_rest(self) -> bool:
        """Whether it stays the same while the copies do."""
        return not (self.behind or self.uncopied or self.restoring or self.threads)


def next_status(
    copies: Iterable[TaskCopy], standby_replicas: int | None, before: GroupCopies | None, now: datetime
) -> GroupCopies:
    """Return the status of a group that does not rebalance. `copies` are all copies of the group."""
    known = [copy for copy in copies if copy.role != DORMANT]  # nobody keeps dormant copies up to date
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


def _next_progress(copy: TaskCopy, old: CopyProgress | None, now: datetime) -> CopyProgress | None:
    if copy.lag is None:
        return old  # the client has not reported since the coordinator moved
    if copy.role != RESTORING and not (copy.role == STANDBY and copy.is_behind):
        return None
    reports = _next_reports(old and old.reports, copy.lag, now, is_restore=copy.role == RESTORING)
    return CopyProgress(copy, reports, _ends_at(reports))


def _next_reports(
    old: tuple[LagReport, ...] | None, lag: int, now: datetime, *, is_restore: bool = True
) -> tuple[LagReport, ...]:
    """Return the reports, with a new one if its lag is lower. A restore with more lag than at first starts again."""
    if old is None or (is_restore and lag > old[0].lag):
        return (LagReport(now, lag),)
    return (*old[1 - _MOST :], LagReport(now, lag)) if lag < old[-1].lag else old


def _next_threads(
    copies: Iterable[TaskCopy], progress: Iterable[CopyProgress], before: GroupCopies, now: datetime
) -> dict[str, tuple[LagReport, ...]]:
    """Return the reports of each member. They begin again when a task that it restored moved to another member."""
    left, has = Counter[str](), {copy.place for copy in copies}
    for one in progress:
        if one.copy.role == RESTORING:
            left[one.copy.member_id] += one.lag
    lost = {one.copy.member_id for one in before.restoring.values() if one.copy.place not in has}
    kept = {member_id: old for member_id, old in before.threads.items() if member_id not in lost}
    return {member_id: _next_reports(kept.get(member_id), lag, now) for member_id, lag in left.items()}


def _with_thread(one: CopyProgress, threads: Mapping[str, tuple[LagReport, ...]]) -> CopyProgress:
    ends = one.ends_at, _ends_at(threads[one.copy.member_id])
    return one._replace(ends_at=min(filter(None, ends), default=None))


def _uncopied(
    copies: Sequence[TaskCopy], standby_replicas: int, before: GroupCopies, now: datetime
) -> dict[TaskId, TooFew]:
    places: defaultdict[TaskId, set[str | None]] = defaultdict(set)
    for copy in copies:
        places[copy.task].add(copy.process_id)
    processes = {process for own in places.values() for process in own}
    wanted = min(1 + standby_replicas, len(processes))  # a process has at most one copy of a task
    return {
        task: TooFew(old.since if (old := before.uncopied.get(task)) else now, len(places[task]))
        for task in sorted({copy.task for copy in copies if copy.stateful})
        if len(places[task]) < wanted
    }
