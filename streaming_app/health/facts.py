"""What a verdict is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import EMPTY, NOT_READY
from streaming_app.groups.task_copies import Progress
from streaming_app.health.history import NO_HISTORY, GroupHistory
from streaming_app.health.time_intervals import TimeInterval
from streaming_app.health.verdict import Verdict
from streaming_app.lag.work import NO_WORK, GroupWork

MOMENT = timedelta(microseconds=1)
"""After a time by so much it is over."""
WORK_OLD = timedelta(minutes=3)
_RUNS = frozenset({"Stable", "Reconciling", "Assigning", "Unknown"})
_RECENTLY = 600.0
_USUAL_GAPS = 2


@dataclass(frozen=True)
class HealthSettings:
    """From when on something is wrong, for one group."""

    patience: timedelta = timedelta(minutes=5)
    """How long it may be without members or ready tasks while work waits."""
    behind_for: timedelta = timedelta(minutes=15)
    lost_after: timedelta = timedelta(minutes=1)
    successor: str | None = None
    """The group that is to take over, as declared."""
    running_hours: Sequence[TimeInterval] = ()
    """When it is meant to run, as declared; empty: always."""

    @property
    def patience_unknown(self) -> timedelta:
        """How long it may be without members while it is not known whether work waits."""
        return max(self.patience, timedelta(minutes=15))


DEFAULTS = HealthSettings()
Away = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a group at a time, each with the time that it is true for."""

    group: GroupSnapshot
    now: datetime
    history: GroupHistory = NO_HISTORY
    work: GroupWork = NO_WORK
    restores: Mapping[str, Progress] = field(default_factory=dict)
    """As `GroupCopies.restoring`."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records, of those that do not keep them for ever."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader, such as `orders-3`, by the broker that led them."""
    watched_since: datetime | None = None
    """Since when this run of the job has judged."""
    is_deleted: bool = False
    """The group was deleted: the other facts are those before that."""
    successor: str | None = None
    """The group that has taken over."""
    settings: HealthSettings = DEFAULTS
    previous: Verdict | None = None
    """The verdict before; None for the first one."""

    @property
    def was(self) -> str | None:
        """The verdict before."""
        return self.previous.verdict if self.previous else None

    # By the records of the group

    @property
    def state_since(self) -> datetime:
        """Since when it has its state; if the log does not say, since when it is known to exist."""
        group = self.group
        return group.state_since or group.updated_at or group.first_seen_at or self.watched_since or self.now

    @property
    def runs(self) -> bool:
        """Whether it has members that may process."""
        return self.group.state in _RUNS and self.group.member_count > 0

    @property
    def runs_since(self) -> datetime:
        """Since when it has had members and was ready, or if that is not known, members."""
        ready = (one.at for one in self.history.states if one.old == NOT_READY and one.new in _RUNS)
        return max((self.group.members_since or self.state_since, *ready))

    def ran_between(self, since: datetime, until: datetime) -> timedelta:
        """Return for how long it had members and was ready in this time, by the changes that are known."""
        ran, at = timedelta(0), since
        for change in self.history.states:
            if change.old in _RUNS:
                ran += max(timedelta(0), min(change.at, until) - at)
            at = max(at, change.at)
        return ran

    @property
    def ended(self) -> bool:
        """Whether it is Empty, and had members before."""
        first_seen = self.group.first_seen_at
        return self.group.state == EMPTY and first_seen is not None and self.state_since > first_seen

    @property
    def reason(self) -> str | None:
        """Why it was NotReady last, as far as that is known."""
        reasons = self.history.reasons
        return self.group.not_ready_reason or (reasons[-1].new if reasons else None)

    @property
    def gave_up(self) -> str | None:
        """Why it was NotReady when its last members left."""
        ended = self.state_since if self.ended else None
        is_so = any(one.at == ended and one.gave_up for one in reversed(self.history.states))
        return (self.reason or "unknown reason") if is_so else None

    # By its lag

    @property
    def work_at(self) -> datetime | None:
        """What is known of work is true for this time."""
        return to_time(self.work.known_at) if self.work.known_at else None

    @property
    def known_at(self) -> datetime | None:
        """The same, also by an earlier run of the job."""
        return self.work_at or (self.previous.facts_at if self.previous else None)

    @property
    def waits(self) -> bool | None:
        """Whether work waits, whatever came before; None: that is not known."""
        work = self.work
        if work.unknown >= work.partitions or (self.now - to_time(work.known_at) > WORK_OLD and not self.is_deleted):
            return None
        return work.waiting > 0 if work.has_commits or work.waiting or not work.uncertain else None

    @property
    def is_not_read_yet(self) -> bool:
        """Whether only an earlier run of the job knew whether work waits: this one has not read it yet."""
        return self.work_at is None and self.known_at is not None

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether nothing is known to wait, and to come."""
        return self._rests(_RECENTLY)

    @property
    def is_idle(self) -> bool:
        """The same; but a group whose records are rare is not idle between them."""
        return self._rests(max(_RECENTLY, _USUAL_GAPS * self.work.arrival_gap))

    def _rests(self, seconds: float) -> bool:
        arrived_at = self.work.arrived_at
        return self.waits is False and (arrived_at is None or self.work.known_at - arrived_at >= seconds)

    @property
    def caught_up_at(self) -> datetime | None:
        """When nothing will wait, if it goes on like that."""
        work = self.work
        seconds = work.catch_up_seconds if work.waiting else None
        return None if seconds is None else to_time(work.known_at + seconds)

    @property
    def losing_at(self) -> datetime | None:
        """When retention deletes the oldest record that waits, as far as that is known."""
        oldest = self.work.oldest.items()
        times = [written + self.retention[topic] for topic, written in oldest if topic in self.retention]
        return to_time(min(times)) if times else None


def to_time(seconds: float) -> datetime:
    """Return a time of a pass as other facts have times."""
    return datetime.fromtimestamp(seconds, timezone.utc)
