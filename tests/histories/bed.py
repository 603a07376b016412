"""Runs a history through fold and alert engine in simulated time, as the job does with its default settings.

The job reads and evaluates every five seconds. Evaluations that cannot bring anything new are left out: before the next
record or answer of brokers, and the next time at which an alert or a verdict changes by itself. `every_step` runs them
all, which a test compares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from itertools import groupby
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.alerts.alert import FIRING, HEALTH, Alert
from streaming_app.alerts.engine import AlertEngine
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.alerts.open_alerts import calm_until
from streaming_app.config.alerts import AlertSettings
from streaming_app.config.declared import GroupTimesSettings, NamedIntervals, make_times_of
from streaming_app.groups.budget import OverBudgetError
from streaming_app.groups.fold import Fold
from streaming_app.groups.group import Group, GroupEvent, LogRecord
from streaming_app.groups.not_ready import set_reasons
from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import GroupSnapshot, WrittenBetween, correct_snapshot, group_snapshot
from streaming_app.groups.state_rules import STABLE_MEMBER
from streaming_app.groups.task_copies import GroupCopies, next_status
from streaming_app.health.board import NOT_JUDGED, Change
from streaming_app.health.group_history import COLUMNS, GroupHistories
from streaming_app.health.time_intervals import TimeInterval
from streaming_app.health.verdict import Verdict
from streaming_app.job.lag_ends import SEED_SECONDS
from streaming_app.lag.ends import NO_ENDS, LogEnds, TopicPartition
from streaming_app.lag.model import Commit, CommitKey, GroupTasks, LagRow, ReadUntil, group_tasks
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import GroupWork
from streaming_app.notify.outbox import Outbox
from tests.histories.clients import START
from tests.histories.history import HOUR, MINUTE, History
from tests.histories.traffic import Seen
from tests.histories.world import Transform, World
from tests.notify.kept import Told as Sink
from tests.support.failed_rules import no_rule_fails

RunningHoursLookup = Callable[[str], Sequence[TimeInterval]]
STEP = 5.0
_QUIET_STEP = 10 * MINUTE
_READ_PLUGIN = HOUR
_PAGER = "pager"
_READ = 200  # members of a group, as in `job.group_cache`


class StoredLag(NamedTuple):
    """What the tables have of lag."""

    samples: Mapping[TopicPartition, tuple[str | None, Sequence[tuple[int, float]]]] = MappingProxyType({})
    """Partition -> the id of its topic, and pairs of end offset and time."""
    rows: Sequence[LagRow] = ()


class LagPasses:
    """The passes of a job over the lag, as `job.lag_pass` does them, over what the traffic of a history shows."""

    def __init__(
        self,
        seen: Sequence[Seen],
        states: Mapping[str, Group],
        before: StoredLag,
        patience: Callable[[str], float],
    ) -> None:
        """Begin with what the passes of the run before left in the tables."""
        self._seen, self._states = seen, states
        self._next: int | None = None
        self._tracker = LagTracker(patience=patience)
        self._rows = before.rows
        self._tasks: dict[str, tuple[int, GroupTasks]] = {}
        self.work: Mapping[str, GroupWork] | None = None
        """That of the newest pass of this run; None before the first one."""
        self.away: dict[str, frozenset[str]] = {}
        for (topic, partition), (topic_id, pairs) in before.samples.items():
            self._tracker.restore_samples(topic, partition, topic_id, pairs)
        for row in before.rows:
            self._tracker.restore_row(row)

    def stored(self) -> StoredLag:
        """Return what the tables have after the newest pass."""
        samples = {key: (one.topic_id, one.pairs()) for key, one in self._tracker.samples().items()}
        return StoredLag(samples, self._rows)

    def read(self, after: float, at: float) -> None:
        """Do the newest pass that is due at a time; the first one is none that was due `after` or earlier."""
        if self._next is None:
            self._next = bisect_right(self._seen, after, key=attrgetter("at"))
        first = self._next
        while self._next < len(self._seen) and self._seen[self._next].at <= at:
            self._next += 1
        seen = self._seen[first : self._next]
        newest = {one.group_id: one for one in seen if one.at == seen[-1].at and one.group_id in self._states}
        if not newest:
            return
        commits = {(g, *key): commit for g, one in newest.items() for key, commit in one.commits.items()}
        ends = {key: end for one in newest.values() for key, end in one.ends.items()}
        away = frozenset(f"{topic}-{partition}" for (topic, partition), end in ends.items() if end == NO_ENDS)
        self.away = {"broker 1 (kafka-1:9092)": away} if away else {}
        tasks = {group_id: self._group_tasks(group_id) for group_id in newest}
        now = START.timestamp() + at
        self._seed(commits, ends, tasks, at)
        until = {
            one.group_id: ReadUntil(START.timestamp() + one.commits_until, now)
            for one in newest.values()
            if one.commits_until is not None
        }
        self._rows = self._tracker.observe(commits, ends, tasks, now, until)
        self.work = self._tracker.work

    def _seed(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        tasks: Mapping[str, GroupTasks],
        at: float,
    ) -> None:
        """Find earlier ends of logs that are seen for the first time with lag, as `job.lag_ends` does."""
        for key, committed in self._tracker.unseen(commits, ends, START.timestamp() + at, tasks).items():
            committed_at = max(0.0, committed - START.timestamp())
            first_at = self._first_record_after(key, committed_at)
            times = {*(at - age for age in SEED_SECONDS), committed_at, first_at}
            samples = [(end, START.timestamp() + time) for time in times if (end := self._end_at(key, time))]
            if (before := self._end_at(key, committed_at)) and first_at <= at:
                samples += [(before + more, START.timestamp() + first_at) for more in (0, 1)]
            samples.sort(key=lambda sample: sample[::-1])
            self._tracker.restore_samples(key[0], key[1], ends[key].topic_id, samples)

    def _first_record_after(self, key: TopicPartition, time: float) -> float:
        """Return when the first record after a time came, as far as passes saw it."""
        first = bisect_right(self._seen, time, key=attrgetter("at"))
        before = self._end_at(key, time)
        later = (one.at for one in self._seen[first:] if key in one.ends and (one.ends[key].end or 0) > (before or 0))
        return next(later, time)

    def _end_at(self, key: TopicPartition, time: float) -> int | None:
        """Return the end of a log at a time; None if it had not begun, or does not reach back so far now."""
        before = bisect_right(self._seen, time, key=attrgetter("at"))
        known = (one.ends[key].end for one in reversed(self._seen[:before]) if key in one.ends)
        return next(known, None)

    def next_at(self) -> float | None:
        is_done = self._next is None or self._next == len(self._seen)
        return None if is_done else self._seen[self._next or 0].at

    def _group_tasks(self, group_id: str) -> GroupTasks:
        state = self._states[group_id]
        known = self._tasks.get(group_id)
        if known is None or known[0] != state.last_offset:
            tasks = group_tasks(to_row("default", state), lambda _pattern: ())
            known = self._tasks[group_id] = state.last_offset, tasks
        return known[1]


class Told(NamedTuple):
    """An alert that was open, as far as a relation compares it. Times are seconds since the start."""

    group_id: str | None
    rule: str
    severity: str
    opened_at: float
    ended_at: float | None
    ended_by: str | None
    since: float
    why: str = ""
    """The texts of its timeline."""

    @property
    def what(self) -> tuple[str | None, str]:
        """Group and rule."""
        return self.group_id, self.rule


@dataclass
class Outcome:
    """What an on-call person heard."""

    rules: set[str] = field(default_factory=set)
    """The rules that fired at some time: an alert about the verdict on a group has that of its worst verdict."""
    notifications: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    """Each message: when, of which event, and about which alerts."""
    alerts: list[Alert] = field(default_factory=list)
    """Those with the health of a group."""
    all_alerts: list[Alert] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    groups: Mapping[str, Group] = field(default_factory=dict)
    """What is folded of each group in the end."""
    moments: Mapping[float, Moment] = field(default_factory=dict)
    """Time -> what was stored then, for the times that were asked for."""

    @property
    def fired(self) -> list[Told]:
        """The alerts that were open, in the order in which they opened."""
        found = (_told(one) for one in self.all_alerts if one.opened_at)
        return sorted(found, key=lambda one: (one.opened_at, *one[:2]))


@dataclass
class _Tables:
    """What survives a restart of the job."""

    states: dict[str, Group] = field(default_factory=dict)
    events: dict[str, list[GroupEvent]] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    ends: int = 0
    notifications: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)
    lag: Callable[[], StoredLag] = StoredLag

    def copy(self) -> _Tables:
        """Return what the tables have now: they change, and what is in them does not."""
        lag = self.lag()
        copies = {one.name: copy(getattr(self, one.name)) for one in fields(self)}
        events = {group_id: list(those) for group_id, those in self.events.items()}
        return _Tables(**copies | {"events": events, "lag": lambda: lag})


class Moment(NamedTuple):
    """What is stored at a moment of a run, from which another run can go on with a job that starts."""

    at: float
    read: int
    """How many records of the log are read."""
    tables: _Tables

    def outcome(self) -> Outcome:
        """Return what was told until then."""
        return _outcome(self.tables)


class _Job:
    """One run of the job."""

    def __init__(
        self,
        tables: _Tables,
        settings: AlertSettings,
        hours_of: RunningHoursLookup,
        world: World,
        declared: Mapping[str, Any],
    ) -> None:
        self._tables, self._world = tables, world
        self._rule_settings_of = settings.rule_settings_of()
        self._descriptions = DescriptionSupport(settings.descriptions)
        self._histories = GroupHistories()
        self._snapshots: dict[str, GroupSnapshot] = {}
        engine = EngineSettings(
            "default",
            self._rule_settings_of,
            (_PAGER,),
            running_hours_of=hours_of,
            successors=settings.successors,
            **declared,
        )
        self.engine = AlertEngine(engine, tables.alerts.values(), self._descriptions, verdicts=tables.verdicts)
        self.outbox = Outbox(Sink(_PAGER), self.engine.lifecycle)
        self._plugin_read_at = -_READ_PLUGIN
        self._is_new = True
        self._copies: dict[str, GroupCopies] = {}
        self._copies_read = 0
        self._copies_read_at = -STEP
        patience = settings.patience_of("StreamsGroupStalled", 300.0)
        self._lag = LagPasses(world.lag, tables.states, tables.lag(), patience)
        tables.lag = self._lag.stored

    def step(self, records: list[tuple[str, LogRecord]], at: float, earliest: float | None) -> None:
        """Read these records, which were written since `earliest`, and evaluate the rules."""
        now = _time(at)
        bounds = WrittenBetween(None if earliest is None else _time(earliest), now)
        changed = self._fold(records, at)
        if self._is_new:
            bounds, self._is_new = WrittenBetween(None, now), False
            changed = {group_id: ([], self._tables.events.get(group_id, [])) for group_id in self._tables.states}
        for group_id, (retracted, events) in changed.items():
            for event in retracted:
                self._histories.retract(group_id, event._asdict())
            for event in events:
                row = {name: getattr(event, name) for name in COLUMNS}
                if event.at is not None:
                    row["at"] = bounds.correct(event.at)
                self._histories.add(group_id, row, now)
            snapshot = group_snapshot(_row(self._tables.states[group_id]))
            self._snapshots[group_id] = correct_snapshot(snapshot, self._snapshots.get(group_id), bounds)
        self._histories.prune(self._snapshots, now)
        self._read_plugin(at)
        self._read_copies(at)
        self._lag.read(at - STEP, at)
        self._evaluate(now, at)
        for group_id in [g for g in changed if self._snapshots[g].state == "Dead"]:
            del self._snapshots[group_id]

    def due(self) -> Iterator[datetime]:
        """Yield when pending alerts are to fire if nothing happens, verdicts may change, and windows end."""
        for alert in self.engine.lifecycle.open.values():
            if ends_at := calm_until(alert):
                yield ends_at
            if alert.state != FIRING:
                settings = self._rule_settings_of(alert.group_id)[alert.rule]
                yield alert.since + timedelta(seconds=settings.for_seconds)
        for verdict in self.engine.board.verdicts().values():
            if verdict.recheck_at is not None:
                yield verdict.recheck_at
        for one in self._snapshots.values():
            if pushed_at := one.last_unsolicited_push_at:
                yield pushed_at + timedelta(hours=1)

    def next_answers(self) -> Iterator[float]:
        """Yield when the brokers next say something of plugins, copies and the ends of logs, and something is sent."""
        yield self._plugin_read_at + _READ_PLUGIN
        yield self.outbox.wakes_at
        yield self._copies_read_at + STEP  # an alert's time is that of its finding once this is past
        if self._copies_read < len(self._world.copies):
            yield self._world.copies[self._copies_read][0]
        yield from (at for at, _ in self._world.incident_ends[self._tables.ends :][:1])
        if (lag := self._lag.next_at()) is not None:
            yield lag

    def _fold(
        self, records: list[tuple[str, LogRecord]], at: float
    ) -> dict[str, tuple[list[GroupEvent], list[GroupEvent]]]:
        changed: dict[str, tuple[list[GroupEvent], list[GroupEvent]]] = {}
        tables = self._tables
        for group_id, those in groupby(sorted(records, key=lambda one: one[0]), key=lambda one: one[0]):
            state = tables.states.get(group_id)
            if state and state.set_aside_reason:
                continue
            fold = Fold.of(group_id, 0, state and state.copy())
            try:
                fold.add(record for _, record in those)
                fold.close()
            except OverBudgetError as error:  # as `stream.fold_stage` does
                tables.states[group_id] = replace(
                    state or Group(group_id, state="Unknown"),
                    set_aside_at=_time(at),
                    set_aside_reason=str(error),
                )
                changed[group_id] = ([], [])
                continue
            if not fold.touched:
                continue
            set_reasons(fold, lambda _names: self._topics(at))
            tables.states[group_id] = fold.group
            retracted = {(one.kind, one.member_id, one.offset) for one in fold.retracted}
            stored = tables.events.setdefault(group_id, [])
            stored[:] = [one for one in stored if (one.kind, one.member_id, one.offset) not in retracted]
            stored += fold.events
            changed[group_id] = (fold.retracted, fold.events)
        return changed

    def _topics(self, at: float) -> Mapping[str, int]:
        times = [time for time, _ in self._world.topic_changes]
        return self._world.topic_changes[bisect_right(times, at) - 1][1]

    def _read_plugin(self, at: float) -> None:
        if at < self._plugin_read_at + _READ_PLUGIN:
            return
        self._plugin_read_at = at
        known = [exists for when, exists in self._world.plugin_configs if when <= at]
        if known and known[-1]:
            self._descriptions.plugin_found(_time(at))
        elif known:
            self._descriptions.plugin_absent(_time(at))

    def _read_copies(self, at: float) -> None:
        """Take what the brokers said of copies, as `job.copies_service` does."""
        every = self._world.copies
        while self._copies_read < len(every) and every[self._copies_read][0] <= at:
            time, group_id, copies, standbys = every[self._copies_read]
            self._copies_read += 1
            self._copies_read_at = at
            snapshot = self._snapshots.get(group_id)
            if snapshot and snapshot.state == "Stable":
                self._copies[group_id] = next_status(copies, standbys, self._copies.get(group_id), _time(time))

    def _read_ended(self, at: float) -> None:
        """Take what a person ended, as `tables.health_tables` does."""
        for ends_at, reason in self._world.incident_ends[self._tables.ends :]:
            if ends_at <= at:
                self._tables.ends += 1
                self._tables.ended |= {
                    one.alert_id: reason for one in self.engine.lifecycle.open.values() if one.subject == HEALTH
                }

    def _evaluate(self, now: datetime, at: float) -> None:
        self._read_ended(at)
        groups = dict(self._snapshots)
        copies = {group_id: one for group_id, one in self._copies.items() if group_id in groups}
        observed = Observed(
            groups,
            self._histories.groups(),
            copies=copies,
            work=self._lag.work,
            retention=self._world.retention,
            away=self._lag.away,
            transactions=self._world.transactions,
            ended=self._tables.ended,
        )
        self.engine.step(observed, now)
        self._tables.rules |= {one.rule for one in self.engine.lifecycle.unsaved if one.opened_at is not None}
        self._save()
        self.engine.lifecycle.publish()
        self.send(now, at)

    def send(self, now: datetime, at: float) -> None:
        """Send what is due; the pager accepts everything."""
        before = len(self._tables.notifications)
        while sent := self.outbox.take(at):
            self.outbox.answered(sent, None, now, at)
            self._tables.notifications.append((at, sent.event, tuple(one.alert_id for one in sent.alerts)))
        if len(self._tables.notifications) > before:
            self._save()

    def _save(self) -> None:
        unsaved, tables = self.engine.lifecycle.unsaved, self._tables
        for one in unsaved:
            tables.alerts[one.alert_id] = one
            if one.is_forgotten:
                del tables.alerts[one.alert_id]
        self.engine.lifecycle.saved(unsaved)
        tables.verdicts |= {change.group_id: change.verdict for change in self.engine.unsaved_changes}
        tables.verdicts |= {one: self.engine.board.verdicts()[one] for one in self.engine.board.moved}
        self.engine.board.moved.clear()
        tables.verdicts = {one: verdict for one, verdict in tables.verdicts.items() if self.engine.board.knows(one)}
        tables.changes += self.engine.unsaved_changes
        self.engine.unsaved_changes.clear()


@no_rule_fails()
def run(
    history: History,
    *,
    transform: Transform | None = None,
    every_step: bool = False,
    only_changes: bool = False,
    restarts: Sequence[float] = (),
    declared: Mapping[str, Any] = MappingProxyType({}),
    moments: Iterable[float] = (),
    begun: Moment | None = None,
    until: float = inf,
) -> Outcome:
    """Run a history, and return which alerts fired and what was sent. AssertionError: a rule or a verdict crashed.

    The job sees what `transform` makes of the world. With `only_changes` the job evaluates when something is written or
    answered, and every ten minutes. It is killed and started again at each of the times `restarts`, in order.
    `declared` are further fields of `EngineSettings`. The outcome has the `moments` of these times, multiples of
    `STEP`. A run that was the same until such a moment may go on from there (`begun`). It ends before `until`.
    """
    world = World.of(history)
    world = transform(world) if transform else world
    log = world.log
    at, read, tables = begun or Moment(history.watched_from, 0, _Tables())
    tables = tables.copy()  # what begins at a moment does not change it
    saved, wanted = dict[float, Moment](), deque(sorted({*moments}))
    configured = [(-1.0, history.settings), *sorted(history.later_settings.items())]
    settings = AlertSettings()
    hours_of = _running_hours(history)
    job: _Job | None = None
    read_at: float | None = None
    killed = deque(restarts)
    while at <= history.seconds and at < until:
        while wanted and wanted[0] <= at:
            moment = Moment(wanted.popleft(), read, tables.copy())
            saved[moment.at] = moment
        if any(begin <= at < end for begin, end in world.job_downtimes):
            job, at = None, at + STEP
            continue
        while configured and configured[0][0] <= at:
            settings, job = AlertSettings.model_validate(dict(configured.pop(0)[1])), None
        while killed and killed[0] <= at:
            job = None
            killed.popleft()
        if job is None:
            job, read_at = _Job(tables, settings, hours_of, world, declared), None
        first = read
        while read < len(log) and log[read].at <= at:
            read += 1
        job.step([(one.group_id, one.record) for one in log[first:read]], at, read_at)
        if every_step:
            at += STEP
        else:
            known = [begin for begin, _ in world.job_downtimes] + [one.at for one in log[read : read + 1]]
            known += [configured[0][0]] if configured else []
            known += [killed[0]] if killed else []
            at = _next_step(at, known, job.next_answers(), () if only_changes else job.due())
        read_at = at - STEP
    saved |= dict.fromkeys(wanted, Moment(at, read, tables.copy()))
    if job:
        job.outbox.release()
        job.send(_time(at), at)
    return replace(_outcome(tables), moments=saved)


def _outcome(tables: _Tables) -> Outcome:
    failed = [one for one in tables.changes if one.verdict.why.startswith(NOT_JUDGED)]
    assert not failed, f"verdicts failed: {failed}"
    alerts = [*tables.alerts.values()]
    return Outcome(
        tables.rules,
        tables.notifications,
        [one for one in alerts if one.subject == HEALTH],
        alerts,
        tables.changes,
        tables.states,
    )


def each(seconds: float, until: float, begin: float = 0.0) -> list[float]:
    """Return times with so many seconds between two."""
    return [begin + n * seconds for n in range(1, int((until - begin) / seconds) + 1)]


def _running_hours(history: History) -> RunningHoursLookup:
    if history.running_hours is None:
        return make_times_of([], [])
    named = {"name": "declared", "time_intervals": [history.running_hours]}
    entry = GroupTimesSettings.model_validate({"groups": ".*", "time_intervals": "declared"})
    return make_times_of([entry], [NamedIntervals.model_validate(named)])


def _next_step(at: float, known: Iterable[float], answers: Iterable[float], due: Iterable[datetime]) -> float:
    candidates = [at + _QUIET_STEP, *known, *answers, *((time - START).total_seconds() for time in due)]
    return -(-min(time for time in candidates if time > at) // STEP) * STEP


def _row(group: Group) -> dict[str, Any]:
    """Return the row of a group; of a large group with the unsettled members only, as the group cache reads it."""
    if len(group.members) <= _READ:
        return to_row("default", group)
    epoch = group.assignment_epoch_or_first
    unsettled = [one for one in group.members.values() if one.state_and_epoch != (STABLE_MEMBER, epoch)]
    chosen = sorted(unsettled, key=lambda one: one.updated_at or START)[:_READ]
    ids = [one.member_id for one in chosen]
    few = replace(
        group,
        members={one.member_id: one for one in chosen},
        targets={member_id: group.targets[member_id] for member_id in ids if member_id in group.targets},
    )
    joined = min(one.joined_at for one in group.members.values() if one.joined_at)
    counts = {"member_count": len(group.members), "members_since": joined, "unsettled_count": len(unsettled)}
    return to_row("default", few) | counts


def _told(one: Alert) -> Told:
    assert one.opened_at
    ended_at = seconds(one.ended_at) if one.ended_at else None
    times = seconds(one.opened_at), ended_at, one.ended_by, seconds(one.since)
    return Told(one.group_id, one.rule, one.severity, *times, "; ".join(line.why for line in one.timeline))


def seconds(time: datetime) -> float:
    """Return a time as seconds since the start of a history."""
    return (time - START).total_seconds()


def _time(at: float) -> datetime:
    return START + timedelta(seconds=at)
