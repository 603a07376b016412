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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from streaming_app.alerts.alert import FIRING, Alert, AlertKey, Delivery
from streaming_app.alerts.evaluate import RuleSettingsLookup, evaluate, is_held, is_unknown
from streaming_app.alerts.lifecycle import AlertState, NotifyPolicy, advance
from streaming_app.alerts.outbox import IsSilenced, Outboxes, Results
from streaming_app.alerts.rule import MAX_NEW_GROUPS, EvaluationContext
from streaming_app.alerts.survey import DescriptionSupport, survey_cluster
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.newcomers import ranks
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import GroupHistory
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.lag.group_lag import GroupLag


@dataclass(frozen=True)
class EngineSettings:
    """What the configuration says of alerts."""

    cluster: str
    rule_settings_of: RuleSettingsLookup
    notify_policy: NotifyPolicy
    lag_of_all_groups: bool = False
    max_new_groups: int = MAX_NEW_GROUPS


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
    is_silenced: IsSilenced | None = None
    """Tells whether an alert is silenced; None: no silence is active."""


class Unsaved(NamedTuple):
    """Rows of the table `alerts` that are not stored yet."""

    changed: Sequence[Alert] = ()
    removed: Sequence[Alert] = ()
    """Rows to be deleted, before those of `changed` are written."""


class _Row(NamedTuple):
    """The key of a row."""

    rule: str
    group_id: str | None
    pending_since: datetime


class AlertEngine:
    """The alerts of one cluster."""

    def __init__(
        self,
        settings: EngineSettings,
        stored: Iterable[Alert],
        outboxes: Outboxes,
        descriptions: DescriptionSupport,
        is_silenced: IsSilenced | None = None,
    ) -> None:
        """Go on from the alerts in the table. What is not sent of them, and does not wait for a silence, is due."""
        self._settings, self.outboxes, self._descriptions = settings, outboxes, descriptions
        self._is_silenced = is_silenced
        self._unsaved: dict[_Row, tuple[Alert, bool]] = {}
        known = [self._without_removed_sinks(alert) for alert in stored]
        self._state = AlertState.from_alerts(known)
        self._tracked: dict[str, Alert] = {}
        self._to_queue: tuple[Alert, ...] = ()
        self._track(known)

    @property
    def open_alerts(self) -> tuple[Alert, ...]:
        """The alerts that are pending or firing, as of the last step."""
        return tuple(self._state.open.values())

    def step(self, observed: Observed, now: datetime) -> tuple[Alert, ...]:
        """Evaluate the rules and advance the alerts; return those that changed. `now` is aware, UTC."""
        context = self._context(observed, now)
        settings, self._is_silenced = self._settings, observed.is_silenced
        findings = evaluate(observed.groups.values(), observed.job, context, settings.rule_settings_of)

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
        survey = survey_cluster(observed.groups.values(), now)
        return EvaluationContext(
            now,
            observed.histories,
            survey,
            descriptions_since=self._descriptions.since(survey),
            descriptions_required=self._descriptions.required,
            open_alerts=self._state.open,
            differing_groups=observed.differing_groups,
            copies=observed.copies,
            lag=observed.lag,
            lag_of_all_groups=self._settings.lag_of_all_groups,
            max_new_groups=self._settings.max_new_groups,
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
