"""What a verdict is made of, and what is wrong by it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from streaming_app.groups.task_copies import Progress
from streaming_app.health.activity import Activity
from streaming_app.health.verdict import Verdict
from streaming_app.lag.work import GroupWork
from streaming_app.time_intervals import TimeInterval

MINUTE = 60.0
WORK_OLD = timedelta(minutes=3)
_RECENTLY = timedelta(minutes=10)
_USUAL_GAPS = 2


@dataclass(frozen=True)
class HealthSettings:
    """From when on something is wrong, for one group. In seconds."""

    down_after: float = 5 * MINUTE
    """Without members or ready tasks, while work waits."""
    down_unknown_after: float = 15 * MINUTE
    """The same while it is not known whether work waits."""
    not_ready_after: float = 5 * MINUTE
    stay_up: float = 10 * MINUTE
    """An application that was started again and again is up after so long without interruption."""
    behind_age: float = 10 * MINUTE
    behind_for: float = 15 * MINUTE
    longest_rebalance: float = 15 * MINUTE
    lost_after: float = MINUTE
    successor: str | None = None
    """The group that is to take over, as declared."""
    running_hours: Sequence[TimeInterval] = ()
    """When it is meant to run, as declared; empty: always."""


DEFAULTS = HealthSettings()
Restores = Mapping[str, Progress]
Away = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a group at a time, each with the time that it is true for."""

    activity: Activity
    now: datetime
    settings: HealthSettings = DEFAULTS
    previous: Verdict | None = None
    """The verdict before; None for the first one."""
    work: GroupWork | None = None
    """None: nothing is known of it."""
    is_deleted: bool = False
    """The group was deleted: the other facts are those before that."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records, of those that do not keep them for ever."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader, such as `orders-3`, by the broker that led them."""
    restores: Restores = field(default_factory=dict)
    """By task, such as `0_3`: what its owner reports of its restore."""
    watched_since: datetime | None = None
    """Since when this run of the job has judged."""
    successor: str | None = None
    """The group that has taken over."""

    @property
    def was(self) -> str | None:
        """The verdict before."""
        return self.previous.verdict if self.previous else None

    @property
    def work_at(self) -> datetime | None:
        """What is known of work is true for this time."""
        return to_time(self.work.known_at) if self.work and self.work.known_at else None

    @property
    def is_known(self) -> bool:
        """Whether it is known whether work waits."""
        work = self.work
        if work is None or work.unknown >= work.partitions:
            return False
        if self.now - to_time(work.known_at) > WORK_OLD and not self.is_deleted:
            return False
        return work.has_commits or work.waiting > 0 or not work.uncertain

    @property
    def is_not_read_yet(self) -> bool:
        """Whether only an earlier run of the job knew whether work waits: this one has not read it yet."""
        return self.previous is not None and self.previous.facts_at is not None and self.work_at is None

    @property
    def work_waits(self) -> bool:
        """Whether work is known to wait, whatever came before."""
        return self.work is not None and self.is_known and self.work.waiting > 0

    @property
    def has_work(self) -> bool:
        """Whether work is known to wait or to come."""
        return self.work_waits or (self.is_known and self._came_within(_RECENTLY.total_seconds()))

    @property
    def is_busy(self) -> bool:
        """Whether records come from time to time: a group whose records are rare is not idle between them."""
        gap = self.work.arrival_gap if self.work else 0.0
        return self._came_within(max(_RECENTLY.total_seconds(), _USUAL_GAPS * gap))

    def _came_within(self, seconds: float) -> bool:
        work = self.work
        return work is not None and work.arrived_at is not None and work.known_at - work.arrived_at < seconds

    @property
    def caught_up_at(self) -> datetime | None:
        """When nothing will wait, if it goes on like that."""
        work = self.work
        known = work is not None and work.waiting and work.catch_up_seconds is not None
        return to_time(work.known_at + (work.catch_up_seconds or 0.0)) if work and known else None

    @property
    def losing_at(self) -> datetime | None:
        """When retention deletes the oldest record that waits, as far as that is known."""
        oldest = self.work.oldest.items() if self.work else ()
        times = [written + self.retention[topic] for topic, written in oldest if topic in self.retention]
        return to_time(min(times)) if times else None


class Check(NamedTuple):
    """What is, or will be, wrong."""

    verdict: str
    since: datetime
    due: datetime
    """From when on it is the verdict."""
    severity: str | None
    why: str
    evidence: Mapping[str, Any] = {}
    ends_at: datetime | None = None
    """When it may end by itself."""


def to_time(seconds: float) -> datetime:
    """Return a time of a pass as other facts have times."""
    return datetime.fromtimestamp(seconds, timezone.utc)
