"""What lasts of the copies of one group's tasks: standbys that fall behind, tasks without a copy, restores, skew. Pure.

A status is made from each description of the group and the status before it. What it says since when lasts as long as
it is so, and no status is made while a group rebalances: tasks and their copies move then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from streaming_app.groups.task_copies import ACTIVE, DORMANT, RESTORING, STANDBY, TaskCopy, TaskId


class BehindCopy(NamedTuple):
    """A standby that is further behind than acceptable and does not catch up."""

    copy: TaskCopy
    since: datetime
    """Since when it has not been nearer to the end."""
    least_lag: int
    """The smallest lag since it was last within the acceptable one."""


class Restore(NamedTuple):
    """A task that its owner restores, by its reports."""

    member_id: str
    since: datetime
    first_lag: int
    """How many offsets were left at the first report."""
    lag: int
    """How many are."""
    fell_at: datetime
    """When the newest report came by which fewer were left than before."""

    @property
    def ends_at(self) -> datetime | None:
        """When it is done if it goes on like that; None if that is not known yet."""
        done, took = self.first_lag - self.lag, self.fell_at - self.since
        return self.fell_at + took * (self.lag / done) if done > 0 and took else None


class ProcessLoad(NamedTuple):
    """How many active tasks a process has, and how many members."""

    process_id: str
    client_host: str | None
    tasks: int
    members: int

    @property
    def tasks_per_member(self) -> float:
        """The active tasks of each of its members, which are its stream threads."""
        return self.tasks / self.members


@dataclass(frozen=True)
class GroupCopies:
    """The copies of the tasks of one group, at the newest description of it."""

    group_id: str
    standby_replicas: int | None = None
    """The group's `num.standby.replicas`; None if it is not known."""
    behind: tuple[BehindCopy, ...] = ()
    """Those that have been behind for the longest time first."""
    uncopied: Mapping[TaskId, datetime] = field(default_factory=dict)
    """Stateful tasks without a copy in another process, although there are two processes or more; and since when."""
    restoring: Mapping[TaskId, Restore] = field(default_factory=dict)
    loads: tuple[ProcessLoad, ...] = ()
    """The processes, those with the most active tasks for each member first."""
    loads_since: datetime | None = None
    """Since when each process has had as many tasks as it has."""


def next_status(
    copies: Iterable[TaskCopy], standby_replicas: int | None, before: GroupCopies | None, now: datetime
) -> GroupCopies:
    """Return the status of a group that does not rebalance; `copies` are all that it has."""
    known = [copy for copy in copies if copy.role != DORMANT]  # nobody keeps those up to date
    before = before or GroupCopies(known[0].group_id if known else "")
    loads = _loads(known)
    return GroupCopies(
        known[0].group_id if known else before.group_id,
        standby_replicas,
        _behind(known, before, now),
        _uncopied(known, before, now),
        _restoring(known, before, now),
        loads,
        before.loads_since if loads == before.loads and before.loads_since else now,
    )


def _behind(copies: Iterable[TaskCopy], before: GroupCopies, now: datetime) -> tuple[BehindCopy, ...]:
    earlier = {one.copy.key: one for one in before.behind}
    found = []
    for copy in copies:
        old = earlier.get(copy.key)
        if copy.role != STANDBY:
            continue
        if copy.lag is None:
            found += [old] if old else []  # its client has not reported since the coordinator moved
            continue
        if not copy.is_behind:
            continue
        is_nearer = old is None or copy.lag < old.least_lag
        found.append(BehindCopy(copy, now, copy.lag) if old is None or is_nearer else old._replace(copy=copy))
    return tuple(sorted(found, key=lambda one: (one.since, one.copy.key)))


def _restoring(copies: Iterable[TaskCopy], before: GroupCopies, now: datetime) -> dict[TaskId, Restore]:
    found = {}
    for copy in copies:
        if copy.role != RESTORING or copy.lag is None:
            continue
        old = before.restoring.get(copy.task)
        if old is None or old.member_id != copy.member_id or copy.lag > old.first_lag:
            found[copy.task] = Restore(copy.member_id, now, copy.lag, copy.lag, now)
        else:
            found[copy.task] = old._replace(lag=copy.lag, fell_at=now) if copy.lag < old.lag else old
    return found


def _uncopied(copies: Iterable[TaskCopy], before: GroupCopies, now: datetime) -> dict[TaskId, datetime]:
    places: defaultdict[TaskId, set[str | None]] = defaultdict(set)
    processes = set()
    stateful = set()
    for copy in copies:
        places[copy.task].add(copy.process_id)
        processes.add(copy.process_id)
        if copy.stateful:
            stateful.add(copy.task)
    if len(processes) < 2:  # noqa: PLR2004 - there is nowhere to put another copy
        return {}
    return {task: before.uncopied.get(task, now) for task in sorted(stateful) if len(places[task]) == 1}


def _loads(copies: Iterable[TaskCopy]) -> tuple[ProcessLoad, ...]:
    tasks: defaultdict[str, int] = defaultdict(int)
    members: defaultdict[str, set[str]] = defaultdict(set)
    hosts: dict[str, str | None] = {}
    for copy in copies:
        process = copy.process_id or copy.member_id
        members[process].add(copy.member_id)
        hosts[process] = copy.client_host
        tasks[process] += copy.role in {ACTIVE, RESTORING}
    loads = (ProcessLoad(process, hosts[process], tasks[process], len(members[process])) for process in members)
    return tuple(sorted(loads, key=lambda one: (-one.tasks_per_member, one.process_id)))
