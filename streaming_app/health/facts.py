"""The facts that decide the verdict on a group."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from streaming_app.groups.group import ASSIGNMENT_ERRORS, CLASSIC
from streaming_app.groups.snapshot import GroupSnapshot, gave_up, shown_at
from streaming_app.groups.state_rules import EMPTY, NOT_READY
from streaming_app.groups.task_copies import CopyProgress
from streaming_app.health.group_history import NO_HISTORY, GroupHistory
from streaming_app.health.time_intervals import TimeInterval
from streaming_app.health.verdict import BAD, NOTHING_TO_DO, PENDING_SEVERITY, WARNING, Verdict, pending_since
from streaming_app.lag.open_transactions import NO_TRANSACTIONS, Transactions
from streaming_app.lag.work import NO_WORK, GroupWork
from streaming_app.text import first_of, utc

MOMENT = timedelta(microseconds=1)
"""The smallest step of time: `t + MOMENT` is just after `t`."""
WORK_OLD = timedelta(minutes=3)
"""Facts about work that are older say nothing about now."""
_RUNS = frozenset({"Stable", "Reconciling", "Assigning", "Unknown"})
_RECENTLY = 600.0
_USUAL_GAPS = 2
_NAMED_SINKS = 3


@dataclass(frozen=True)
class HealthSettings:
    """How long conditions must hold before they become the verdict, and what is declared for one group."""

    patience: timedelta = timedelta(minutes=5)
    """How long the group may be Empty or NotReady while work waits."""
    behind_for: timedelta = timedelta(minutes=15)
    lost_after: timedelta = timedelta(minutes=1)
    successor: str | None = None
    """The group that takes over from it (`alerts.successors`)."""
    running_hours: Sequence[TimeInterval] = ()
    """When the group has to run (`running_hours`); empty: always."""

    @property
    def patience_unknown(self) -> timedelta:
        """How long the group may be without members while it is not known whether work waits."""
        return max(self.patience, timedelta(minutes=15))


DEFAULTS = HealthSettings()
Away = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a group at one time."""

    group: GroupSnapshot
    now: datetime
    history: GroupHistory = NO_HISTORY
    work: GroupWork = NO_WORK
    restores: Mapping[str, CopyProgress] = field(default_factory=dict)
    """See `GroupCopies.restoring`."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Topic -> retention in seconds, for topics that delete records by age."""
    away: Away = field(default_factory=dict)
    """Broker -> partitions without a leader that it led before, such as `orders-3`."""
    transactions: Transactions | None = NO_TRANSACTIONS
    """None: the brokers have not been asked yet."""
    watched_since: datetime | None = None
    """Since when this run of the job decides verdicts."""
    is_deleted: bool = False
    """Whether the group is deleted. Then the other facts are from before."""
    successor: str | None = None
    """The group that has taken over from this one."""
    sinks: Sequence[tuple[str, str]] = ()
    """The topics to which the group writes and cannot now, each with `does not exist` or `has no leader`."""
    settings: HealthSettings = DEFAULTS
    previous: Verdict | None = None
    """The previous verdict; None for the first one."""

    @property
    def was(self) -> str | None:
        """The name of the previous verdict."""
        return self.previous.verdict if self.previous else None

    @property
    def sinks_text(self) -> str:
        """Which of its sink topics do not exist or have no leader, as text; empty if none is known."""
        by_problem = {what: [one for one, of in self.sinks if of == what] for _, what in self.sinks}
        named = ((what, first_of(topics, _NAMED_SINKS)) for what, topics in by_problem.items())
        return "".join(f"; a topic to which it writes {what}: {topics}" for what, topics in named)

    # From the records of the group

    @property
    def state_since(self) -> datetime:
        """Since when the group has its state. If the log does not prove it: since when it has it at least."""
        group, changes = self.group, self.history.states
        if group.state_since:
            return min(group.state_since, self.pending_since or group.state_since)
        shown = [one.at for one in changes[-1:] if one.new == group.state]  # it stays while the group writes more
        if self.is_classic and not changes:  # it had members at each of its rebalances
            shown = [one.at for one in self.history.assignments[:1]]
        return min((at for at in (*shown, shown_at(group)) if at), default=self.watched_since or self.now)

    @property
    def pending_since(self) -> datetime | None:
        """Since when an earlier verdict has counted, if a wrong clock wrote when members left.

        A run that begins takes a time in the future for now, and would count anew.
        """
        is_known = self.previous and self.group.state == EMPTY
        is_corrected = is_known and self.group.state_since in dict(self.group.moved_times).values()
        return pending_since(self.previous) if self.previous and is_corrected else None

    @property
    def since_text(self) -> str:
        """`state_since` as text: with `at least` if the log does not prove it."""
        return f"{'' if self.group.state_since else 'at least '}{utc(self.state_since)}"

    @property
    def runs(self) -> bool:
        """Whether the group has members and is in a state in which they may process."""
        return self.group.state in _RUNS and self.group.member_count > 0 and not self.is_refused

    @property
    def is_classic(self) -> bool:
        """Whether the group has the classic protocol: its members are those of the last rebalance."""
        return self.group.protocol == CLASSIC

    @property
    def is_refused(self) -> bool:
        """Whether the leader of a classic group told its members an error instead of tasks at the last rebalance."""
        return self.group.member_count > 0 and self.group.assignment_error is not None

    @property
    def not_ready_since(self) -> datetime | None:
        """Since when the group is NotReady, or its members have an error instead of tasks; None: neither holds."""
        if self.is_refused:
            return self.group.updated_at or self.now
        return self.state_since if self.group.state == NOT_READY else None

    @property
    def not_ready_text(self) -> str:
        """`not_ready_since` as text."""
        if self.is_refused:
            return f"since the last rebalance, {utc(self.not_ready_since or self.now)}, its members have no tasks"
        return f"NotReady since {self.since_text}"

    @property
    def runs_since(self) -> datetime:
        """Since when the group has members and is not NotReady; if this is not known, since when it has members."""
        ready = (one.at for one in self.history.states if one.old == NOT_READY and one.new in _RUNS)
        return max((self.group.members_since or self.state_since, *ready))

    def ran_between(self, since: datetime, until: datetime) -> timedelta:
        """Return how long the group ran between two times, by the known changes of its state."""
        ran, at = timedelta(0), since
        for change in self.history.states:
            if change.old in _RUNS:
                ran += max(timedelta(0), min(change.at, until) - at)
            at = max(at, change.at)
        return ran

    @property
    def reason(self) -> str | None:
        """Why the group is, or was last, NotReady, or without tasks; None if it is not known."""
        if (code := self.group.assignment_error) is not None:
            return ASSIGNMENT_ERRORS.get(code, f"error {code}")
        reasons = self.history.reasons
        return self.group.not_ready_reason or (reasons[-1].new if reasons else None)

    @property
    def gave_up(self) -> str | None:
        """Why the group was NotReady when its last members left; None if it was not NotReady then."""
        return (self.reason or "unknown reason") if gave_up(self.group) else None

    # From its lag

    @property
    def work_at(self) -> datetime | None:
        """The time of the facts about work; None if this run of the job has none."""
        return to_time(self.work.known_at) if self.work.known_at else None

    @property
    def known_at(self) -> datetime | None:
        """The time of the facts about work, also those of an earlier run of the job."""
        return self.work_at or (self.previous.facts_at if self.previous else None)

    @property
    def complete_at(self) -> datetime | None:
        """The time of the newest facts about all of its work, also those of an earlier run of the job."""
        if not (self.work.unknown and self.work_at):
            return self.known_at
        before = self.previous.facts_at if self.previous else None
        return to_time(self.work.complete_at) if self.work.complete_at else before

    @property
    def waits(self) -> bool | None:
        """Whether work waits in those partitions of which it is known; None: it is not known of any now."""
        work = self.work
        if work.unknown >= work.partitions or (self.now - to_time(work.known_at) > WORK_OLD and not self.is_deleted):
            return None
        return work.waiting > 0 if work.has_commits or work.waiting or not work.uncertain else None

    @property
    def is_not_read_yet(self) -> bool:
        """Whether this run has not read facts about work yet, and an earlier run has, or none has judged the group."""
        is_first = not self.previous or bool(self.watched_since and self.previous.at >= self.watched_since)
        return self.work_at is None and (self.known_at is not None or is_first)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether nothing waits, and no records came recently. While that is not known, it stays as it was."""
        rests = self._rests(_RECENTLY)
        if self.waits is None or (rests and self.work.unknown):
            if (before := self.previous) is None:
                return False
            if self.was in BAD:
                return NOTHING_TO_DO in before.evidence
            return bool(before.evidence.get(PENDING_SEVERITY) == WARNING)
        return rests

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known to wait, and no records came for longer than usual."""
        return self._rests(max(_RECENTLY, _USUAL_GAPS * self.work.arrival_gap))

    def _rests(self, seconds: float) -> bool:
        # Right after a start it may not be known when records came: then offsets that have just moved prove some.
        work = self.work
        arrived_at = work.progressed_at if work.arrived_at is None else work.arrived_at
        return self.waits is False and (arrived_at is None or work.known_at - arrived_at >= seconds)

    @property
    def caught_up_at(self) -> datetime | None:
        """When no record will wait if the rate stays the same; None if it is not known."""
        seconds = self.work.catch_up_seconds
        return None if seconds is None else to_time(self.work.known_at + seconds)

    @property
    def losing_at(self) -> datetime | None:
        """When retention deletes the oldest waiting record; None if it is not known."""
        oldest = self.work.oldest.items()
        times = [written + self.retention[topic] for topic, written in oldest if topic in self.retention]
        return to_time(min(times)) if times else None


def to_time(seconds: float) -> datetime:
    """Return seconds since 1970 as a UTC datetime."""
    return datetime.fromtimestamp(seconds, timezone.utc)
