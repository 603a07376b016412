"""Runs a history through fold and alert engine in simulated time, as the job does with its default settings.

The job reads and evaluates every five seconds. Evaluations that cannot bring anything new are left out: before the next
record or answer of brokers, and the next time at which an alert or a verdict changes by itself. `every_step` runs them
all, which a test compares.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from math import inf
from types import MappingProxyType
from typing import Any

from streaming_app.alerts.alert import FIRING, HEALTH
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
from streaming_app.groups.task_copies import GroupCopies, next_status
from streaming_app.health.group_history import COLUMNS, GroupHistories
from streaming_app.health.time_intervals import TimeInterval
from streaming_app.notify.outbox import Outbox
from tests.histories.clients import START
from tests.histories.history import HOUR, MINUTE, History
from tests.histories.lag_passes import LagPasses
from tests.histories.outcome import Moment, Outcome, Tables, outcome_of, time_at
from tests.histories.world import Transform, World
from tests.notify.kept import Told as Sink
from tests.support.failed_rules import no_rule_fails

RunningHoursLookup = Callable[[str], Sequence[TimeInterval]]
STEP = 5.0
_QUIET_STEP = 10 * MINUTE
_READ_PLUGIN = HOUR
_PAGER = "pager"


class _Job:
    """One run of the job."""

    def __init__(
        self,
        tables: Tables,
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
            of_classic_groups=True,
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
        now = time_at(at)
        bounds = WrittenBetween(None if earliest is None else time_at(earliest), now)
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
            snapshot = group_snapshot(to_row("default", self._tables.states[group_id]))
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
                    set_aside_at=time_at(at),
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
        if known:
            self._descriptions.plugin_read(time_at(at), exists=known[-1])

    def _read_copies(self, at: float) -> None:
        """Take what the brokers said of copies, as `job.copies_service` does."""
        every = self._world.copies
        while self._copies_read < len(every) and every[self._copies_read][0] <= at:
            time, group_id, copies, standbys = every[self._copies_read]
            self._copies_read += 1
            self._copies_read_at = at
            snapshot = self._snapshots.get(group_id)
            if snapshot and snapshot.state == "Stable":
                self._copies[group_id] = next_status(copies, standbys, self._copies.get(group_id), time_at(time))

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
    at, read, tables = begun or Moment(history.watched_from, 0, Tables())
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
        job.send(time_at(at), at)
    return replace(outcome_of(tables), moments=saved)


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
