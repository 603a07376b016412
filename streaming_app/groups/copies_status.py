"""What lasts of the copies of one group's tasks: behind, too few, restored. Pure.

A status is made from each description of the group and the status before it. What it says since when lasts as long as
it is so, and no status is made while a group rebalances: tasks and their copies move then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from streaming_app.groups.task_copies import DORMANT, RESTORING, STANDBY, TaskCopy, TaskId


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


class TooFew(NamedTuple):
    """A task with copies in fewer processes than the group asks for, although there are others."""

    since: datetime
    processes: int
    """That have a copy."""


@dataclass(frozen=True)
class GroupCopies:
    """The copies of the tasks of one group, at the newest description of it."""

    group_id: str
    standby_replicas: int | None = None
    """The group's `num.standby.replicas`; None if it is not known."""
    behind: tuple[BehindCopy, ...] = ()
    """Those that have been behind for the longest time first."""
    uncopied: Mapping[TaskId, TooFew] = field(default_factory=dict)
    """Stateful tasks with fewer copies than are asked for."""
    restoring: Mapping[TaskId, Restore] = field(default_factory=dict)


def next_status(
    copies: Iterable[TaskCopy], standby_replicas: int | None, before: GroupCopies | None, now: datetime
) -> GroupCopies:
    """Return the status of a group that does not rebalance; `copies` are all that it has."""
    known = [copy for copy in copies if copy.role != DORMANT]  # nobody keeps those up to date
    before = before or GroupCopies(known[0].group_id if known else "")
    return GroupCopies(
        known[0].group_id if known else before.group_id,
        standby_replicas,
        _behind(known, before.behind, now),
        _uncopied(known, standby_replicas or 0, before, now),
        _restoring(known, before, now),
    )


def _behind(copies: Iterable[TaskCopy], before: Iterable[BehindCopy], now: datetime) -> tuple[BehindCopy, ...]:
    """Return the standbys that are behind and do not advance."""
    earlier = {one.copy.key: one for one in before}
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
        advances = old is None or copy.lag < old.least_lag
        found.append(BehindCopy(copy, now, copy.lag) if old is None or advances else old._replace(copy=copy))
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


def _uncopied(
    copies: Iterable[TaskCopy], standby_replicas: int, before: GroupCopies, now: datetime
) -> dict[TaskId, TooFew]:
    places: defaultdict[TaskId, set[str | None]] = defaultdict(set)
    processes = set()
    stateful = set()
    for copy in copies:
        places[copy.task].add(copy.process_id)
        processes.add(copy.process_id)
        if copy.stateful:
            stateful.add(copy.task)
    wanted = min(1 + standby_replicas, len(processes))  # of more there is nowhere to put another copy
    return {
        task: TooFew(old.since if (old := before.uncopied.get(task)) else now, len(places[task]))
        for task in sorted(stateful)
        if len(places[task]) < wanted
    }
