"""The alert engine: what is observed of a cluster at one time goes in, alerts and what is due to whom come out. Pure.

Theory of operation
-------------------
`step` evaluates the rules, advances the lifecycle of each alert, and notes which rows of the table `alerts` changed.
The caller then stores `unsaved`, or finds that it cannot, and calls `queue`: what is due may be sent from now on. This
order is what a crash needs: no notification is lost, and none is sent that the table does not know.

What sends takes tasks from `outboxes`, and tells `delivered` what came of them: that, too, changes rows to be stored.

The job's thread, `run --once` and the test bed drive the same object. Its whole memory are the alerts that are stored,
and what waits in the outboxes, which a new engine gets from the stored alerts again: a restart changes nothing. It
reads no clock, so a recorded year can be replayed through it. Not safe in several threads: the caller has a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.alerts.alert import FIRING, Alert, AlertKey, Delivery
from streaming_app.alerts.evaluate import RuleSettingsLookup, evaluate, is_held, is_unknown
from streaming_app.alerts.health_rules import health_settings
from streaming_app.alerts.lifecycle import AlertState, NotifyPolicy, advance, with_severity
from streaming_app.alerts.outbox import IsSilenced, Outboxes, Results
from streaming_app.alerts.rule import MAX_NEW_GROUPS, EvaluationContext
from streaming_app.alerts.survey import NO_PLUGIN, DescriptionSupport, LostDescription, PluginStatus
from streaming_app.alerts.watched import WatchedGroups
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.newcomers import ranks
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.task_copies import format_task
from streaming_app.health.board import Board, Change, Known
from streaming_app.health.history import GroupHistory
from streaming_app.health.incidents import Incident, Incidents, is_bad
from streaming_app.health.verdict import Away, HealthSettings, Verdict
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.lag.group_lag import GroupLag
from streaming_app.lag.work import GroupWork
from streaming_app.time_intervals import TimeInterval


@dataclass(frozen=True)
class EngineSettings:
    """What the configuration says of alerts."""

    cluster: str
    rule_settings_of: RuleSettingsLookup
    notify_policy: NotifyPolicy
    lag_of_all_groups: bool = False
    max_new_groups: int = MAX_NEW_GROUPS
    late_seconds: float = 120.0
    """How long ago the records may be read for groups to be judged by them."""
    running_hours_of: Callable[[str], Sequence[TimeInterval]] = lambda _group_id: ()
    """Returns when a group is meant to run, if that is declared."""
    successors: Mapping[str, str] = field(default_factory=dict)
    """Group to the one that is declared to take over from it."""


@dataclass(frozen=True)
class StoredHealth:
    """What an earlier run knew of the health of groups."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    """The open ones, and those that ended within `health.incidents.REMEMBERED`."""


NO_HEALTH = StoredHealth()


@dataclass(frozen=True)
class Observed:
    """What is known of a cluster at one time."""

    groups: Mapping[str, GroupSnapshot]
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    """What happened lately, by group; groups to which nothing happened are missing."""
    job: JobStatus | None = None
    """None: the rules about the job are not evaluated, and it has caught up."""
    differing_groups: Sequence[DifferingGroup] = ()
    """What the self-check reports."""
    copies: Sequence[GroupCopies] | None = ()
    """What is known of copies of tasks; None while it is not known."""
    lag: Mapping[str, GroupLag] | None = field(default_factory=dict)
    """The groups with whose lag something is wrong; None while the lag is not known."""
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """What waits for each group; None while the lag is not known."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader by the broker that led them."""
    lost_descriptions: Sequence[LostDescription] | None = ()
    """The descriptions that the plugin does not return; None before the job has looked."""
    plugin: PluginStatus | None = NO_PLUGIN
    """None before the brokers' configs were read."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """Incidents that a person ended, and why."""
    is_silenced: IsSilenced | None = None
    """Tells whether an alert is silenced; None: no silence is active."""


class Unsaved(NamedTuple):
    """Rows of the table `alerts` that are not stored yet."""

    changed: Sequence[Alert] = ()
    removed: Sequence[Alert] = ()
    """Rows to be deleted, before those of `changed` are written."""


class UnsavedHealth(NamedTuple):
    """Verdicts by group, and incidents, that are not stored yet."""

    verdicts: Mapping[str, Verdict] = MappingProxyType({})
    changes: Sequence[Change] = ()
    """The history of verdicts."""
    incidents: Sequence[Incident] = ()
    gone: frozenset[str] = frozenset()
    """The groups of `verdicts` that nothing is known of any more."""


class _Row(NamedTuple):
    """The key of a row."""

    rule: str
    group_id: str | None
    pending_since: datetime


class AlertEngine:
    """The alerts of one cluster."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        settings: EngineSettings,
        stored: Iterable[Alert],
        outboxes: Outboxes,
        descriptions: DescriptionSupport,
        *,
        is_silenced: IsSilenced | None = None,
        health: StoredHealth = NO_HEALTH,
    ) -> None:
        """Go on from the alerts in the table. What is not sent of them, and does not wait for a silence, is due."""
        self._settings, self.outboxes, self._descriptions = settings, outboxes, descriptions
        self._is_silenced = is_silenced
        self._watched = WatchedGroups()
        self._board = Board(self._health_settings, health.verdicts)
        self._incidents = Incidents(settings.cluster, health.incidents)
        self._unsaved_verdicts: dict[str, Verdict] = {}
        self._unsaved_changes: list[Change] = []
        self._unsaved_incidents: dict[str, Incident] = {}
        self._unsaved: dict[_Row, tuple[Alert, bool]] = {}
        self._has_judged = False
        open_incidents = {
            AlertKey(one.incident_id, own.groups[0]): own
            for one in health.incidents
            if one.ended_at is None
            for own in one.by_group(health.verdicts.get)
        }
        known = [self._without_removed_sinks(self._with_new_settings(one, open_incidents)) for one in stored]
        self._state = AlertState.from_alerts(known)
        self._tracked: dict[str, Alert] = {}
        self._to_queue: tuple[Alert, ...] = ()
        self._track(known)

    @property
    def open_alerts(self) -> tuple[Alert, ...]:
        """The alerts that are pending or firing, as of the last step."""
        return tuple(self._state.open.values())

    def step(self, observed: Observed, now: datetime) -> tuple[Alert, ...]:
        """Judge the groups, evaluate the rules, advance the alerts; return those that changed. `now` is aware, UTC."""
        self._judge(observed, now)
        self._watched.update(observed.groups, now)
        context = self._context(observed, now)
        settings, self._is_silenced = self._settings, observed.is_silenced
        groups = self._watched.groups(with_descriptions=context.descriptions_since is not None)
        findings = evaluate(groups, observed.job, context, settings.rule_settings_of)

        def stays(key: AlertKey) -> bool:
            alert = None if key in findings else self._state.open.get(key)
            return is_held(key, context) or is_unknown(alert, context)

        changes = advance(
            self._state,
            findings,
            cluster=settings.cluster,
            now=now,
            rule_settings_of=settings.rule_settings_of,
            notify_policy=settings.notify_policy,
            caught_up=observed.job is None or observed.job.caught_up,
            is_held=stays,
        )
        self._state = changes.state
        alerted = {key.group_id for key in self._state.open if key.group_id is not None}
        self.outboxes.rank_groups(ranks(observed.groups, alerted, now))
        changed = self.outboxes.settle(changes.changed, observed.is_silenced)
        self._note_unsaved(changes.removed, removed=True)
        self._note_unsaved(changed)
        self._track(changed)
        return changed

    def _judge(self, observed: Observed, now: datetime) -> None:
        """Bring verdicts and incidents up to date, unless the records are not read up to now."""
        job, settings = observed.job, self._settings
        for incident_id, reason in observed.ended.items():
            groups = self._incidents.groups_of(incident_id)
            if ended := self._incidents.end(incident_id, reason, now):
                self._unsaved_incidents[incident_id] = ended
                self._note_changes(self._board.end(groups, reason, now))
        late = timedelta(seconds=settings.late_seconds)
        if job and not (job.caught_up and job.caught_up_at and now - job.caught_up_at <= late):
            return
        work = observed.work
        restores = {
            one.group_id: {format_task(task): restore for task, restore in one.restoring.items()}
            for one in observed.copies or ()
            if one.restoring
        }
        facts = (work, observed.lag, observed.retention, observed.away, restores)
        known = Known(observed.groups, observed.histories, *facts)
        changes = self._board.step(known, now, others=work or {} if settings.lag_of_all_groups else {})
        self._note_changes(changes)
        left = [] if self._has_judged else self._incidents.leave_out(self._is_ignored, now)
        known_bad = [] if self._has_judged else self._bad_without_incident(changes, now)
        self._has_judged = True
        watched = [change for change in (*known_bad, *changes) if not self._is_ignored(change.group_id)]
        for incident in (*left, *self._incidents.step(watched, now)):
            self._unsaved_incidents[incident.incident_id] = incident

    def _is_ignored(self, group_id: str) -> bool:
        return not self._settings.rule_settings_of(group_id)

    def _bad_without_incident(self, changes: Sequence[Change], now: datetime) -> list[Change]:
        """Return the bad verdicts of an earlier run that have no incident, such as of a group that was ignored then."""
        changed = {change.group_id for change in changes}
        return [
            Change(group_id, verdict, now)
            for group_id, verdict in self._board.verdicts().items()
            if is_bad(verdict) and group_id not in changed and self._incidents.of_group(group_id) is None
        ]

    def _note_changes(self, changes: Sequence[Change]) -> None:
        self._unsaved_changes += changes
        self._unsaved_verdicts |= {change.group_id: change.verdict for change in changes}

    def _health_settings(self, group_id: str) -> HealthSettings:
        settings = health_settings(self._settings.rule_settings_of(group_id))
        hours, successor = self._settings.running_hours_of(group_id), self._settings.successors.get(group_id)
        return replace(settings, running_hours=hours, successor=successor) if hours or successor else settings

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The newest verdict on each group."""
        return self._board.verdicts()

    @property
    def incidents(self) -> Sequence[Incident]:
        """The open incidents."""
        return self._incidents.open()

    def incident_of(self, group_id: str) -> Incident | None:
        """Return the open incident of a group."""
        return self._incidents.of_group(group_id)

    @property
    def unsaved_health(self) -> UnsavedHealth:
        """What is not stored yet of verdicts and incidents."""
        return UnsavedHealth(
            dict(self._unsaved_verdicts),
            tuple(self._unsaved_changes),
            tuple(self._unsaved_incidents.values()),
            frozenset(group_id for group_id in self._unsaved_verdicts if not self._board.knows(group_id)),
        )

    def saved_health(self, stored: UnsavedHealth) -> None:
        """Note that these are stored; what has changed since is still unsaved."""
        del self._unsaved_changes[: len(stored.changes)]
        for group_id, verdict in stored.verdicts.items():
            if self._unsaved_verdicts.get(group_id) is verdict:
                del self._unsaved_verdicts[group_id]
        for incident in stored.incidents:
            if self._unsaved_incidents.get(incident.incident_id) is incident:
                del self._unsaved_incidents[incident.incident_id]

    def queue(self, seconds: float) -> None:
        """Let everything be sent that is due: of the last step, and what was silenced and no longer is.

        `seconds` are those of the clock of the outboxes. Call it after each step, once its rows are stored or cannot
        be, and before the first one.
        """
        alerts, self._to_queue = self._to_queue, ()
        self.outboxes.offer(alerts, self._is_silenced, seconds)

    def delivered(self, results: Results) -> None:
        """Note what came of a task of an outbox."""
        for fingerprint, delivery in results:
            if alert := self._tracked.get(fingerprint):
                self._apply(alert, delivery)

    @property
    def unsaved(self) -> Unsaved:
        """The rows that are not stored yet."""
        rows = tuple(self._unsaved.values())
        return Unsaved(
            tuple(alert for alert, removed in rows if not removed), tuple(alert for alert, removed in rows if removed)
        )

    def saved(self, stored: Unsaved) -> None:
        """Note that these rows are stored; one that has changed since is still unsaved."""
        for alerts, removed in ((stored.changed, False), (stored.removed, True)):
            for alert in alerts:
                row = _row(alert)
                if self._unsaved.get(row) == (alert, removed):
                    del self._unsaved[row]

    def _context(self, observed: Observed, now: datetime) -> EvaluationContext:
        survey = self._watched.survey
        return EvaluationContext(
            now,
            observed.histories,
            survey,
            descriptions_since=self._descriptions.since(survey),
            descriptions_required=self._descriptions.required,
            open_alerts=self._state.open,
            firing_alerts={key for key, alert in self._state.open.items() if alert.state == FIRING},
            differing_groups=observed.differing_groups,
            copies=observed.copies,
            lag=observed.lag,
            max_new_groups=self._settings.max_new_groups,
            put_off=self._board.put_off,
            incidents=self._incidents.open(),
            verdict_of=self._board.verdict,
            lost_descriptions=observed.lost_descriptions,
            plugin=observed.plugin,
        )

    def _apply(self, alert: Alert, delivery: Delivery) -> None:
        deliveries = tuple(delivery if _is_same(delivery, other) else other for other in alert.deliveries)
        updated = replace(alert, deliveries=deliveries)
        self._state = self._state.with_deliveries(updated)
        self._note_unsaved((updated,))
        if _may_be_sent(updated):
            self._tracked[alert.fingerprint] = updated
        else:
            del self._tracked[alert.fingerprint]

    def _track(self, alerts: Iterable[Alert]) -> None:
        """Keep the alerts of which something is, or may still be, sent, and let `queue` offer them."""
        new = {alert.fingerprint: alert for alert in alerts}
        self._tracked |= {fingerprint: alert for fingerprint, alert in new.items() if _may_be_sent(alert)}
        before = {alert.fingerprint: alert for alert in self._to_queue}
        self._to_queue = tuple((before | new).values())

    def _with_new_settings(self, alert: Alert, incidents: Mapping[AlertKey, Incident]) -> Alert:
        """Give an alert about an open incident the severity that it has by the settings of this run.

        Only what the facts make worse is notified again, and not what somebody changed in the configuration.
        """
        incident = incidents.get(alert.key)
        settings = self._settings.rule_settings_of(alert.group_id).get(alert.rule)
        if alert.state != FIRING or incident is None or settings is None:
            return alert
        updated = with_severity(alert, settings, incident.severity)
        if updated != alert:
            self._note_unsaved((updated,))
        return updated

    def _without_removed_sinks(self, alert: Alert) -> Alert:
        """Drop the unsent notifications for sinks that are no longer configured."""
        kept = tuple(d for d in alert.deliveries if d.sent_at or d.sink in self._settings.notify_policy.sinks)
        if kept == alert.deliveries:
            return alert
        updated = replace(alert, deliveries=kept)
        self._note_unsaved((updated,))
        return updated

    def _note_unsaved(self, alerts: Iterable[Alert], *, removed: bool = False) -> None:
        for alert in alerts:
            self._unsaved[_row(alert)] = (alert, removed)


def _row(alert: Alert) -> _Row:
    return _Row(alert.rule, alert.group_id, alert.pending_since)


def _may_be_sent(alert: Alert) -> bool:
    """Tell whether the alert is firing, so that it may be sent again, or has a notification that is not sent yet."""
    return alert.state == FIRING or any(delivery.sent_at is None for delivery in alert.deliveries)


def _is_same(one: Delivery, other: Delivery) -> bool:
    return (one.sink, one.event) == (other.sink, other.event)
