"""What lasts of the copies of one group's tasks: behind, too few, restored. Pure.

A status is made from each description of the group and the status before it. What it says since when lasts as long as
it is so, and no status is made while a group rebalances: tasks and their copies move then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from streaming_app.groups.task_copies import DORMANT, RESTORING, STANDBY, TaskCopy, TaskId


class Progress(NamedTuple):
    """How a copy that restores, or a standby that is further behind than acceptable, has come on by its reports."""

    copy: TaskCopy
    since: datetime
    """When it was first seen like that."""
    first_lag: int
    """How many offsets were left then."""
    lag: int
    """The fewest that were left since."""
    fell_at: datetime
    """When the report of these came: it has not come nearer to the end after it."""

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
    behind: tuple[Progress, ...] = ()
    """Standbys; those that have not come nearer to the end for the longest time first."""
    uncopied: Mapping[TaskId, TooFew] = field(default_factory=dict)
    """Stateful tasks with fewer copies than are asked for."""
    restoring: Mapping[TaskId, Progress] = field(default_factory=dict)


def next_status(
    copies: Iterable[TaskCopy], standby_replicas: int | None, before: GroupCopies | None, now: datetime
) -> GroupCopies:
    """Return the status of a group that does not rebalance; `copies` are all that it has."""
    known = [copy for copy in copies if copy.role != DORMANT]  # nobody keeps those up to date
    before = before or GroupCopies(known[0].group_id if known else "")
    earlier = {one.copy.key: one for one in (*before.behind, *before.restoring.values())}
    progress = [_next_progress(copy, earlier.get(copy.key), now) for copy in known]
    late = [one for one in progress if one and one.copy.role == STANDBY]
    return GroupCopies(
        known[0].group_id if known else before.group_id,
        standby_replicas,
        tuple(sorted(late, key=lambda one: (one.fell_at, one.copy.key))),
        _uncopied(known, standby_replicas or 0, before, now),
        {one.copy.task: one for one in progress if one and one.copy.role == RESTORING},
    )


def _next_progress(copy: TaskCopy, old: Progress | None, now: datetime) -> Progress | None:
    """Return how a copy has come on; None if nothing is to be said of it."""
    if copy.lag is None:
        return old  # its client has not reported since the coordinator moved
    if copy.role != RESTORING and not (copy.role == STANDBY and copy.is_behind):
        return None
    if old is None or (copy.role == RESTORING and copy.lag > old.first_lag):
        return Progress(copy, now, copy.lag, copy.lag, now)
    if copy.lag < old.lag:
        return old._replace(copy=copy, lag=copy.lag, fell_at=now)
    return old._replace(copy=copy)


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
