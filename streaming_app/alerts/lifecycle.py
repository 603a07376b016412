"""The lifecycle of an alert: pending, firing, resolved, and which notifications are due. Pure.

Theory of operation
-------------------
A rule and a group (or the job) form a key, and at most one alert per key is open. Each evaluation gives one event to
each key that has an alert or a finding; the table `_NEXT` has the state that follows, and `_ENTER` changes the alert.

- ACTIVE: there is a finding, and its condition has held for less than `for`. DUE: for that long or longer.
- KEPT: there is no finding, and the alert keeps firing for a while (`keep_firing_for`). CLEARED: there is no finding.

The alerts are the only state, so a restart changes nothing: the start of a condition comes from the broker's times, or
else from the alert (`pending_since`), and what was sent from its deliveries. An alert that is kept firing records since
when in its details, as `cleared_at`. Of a resolved alert only the time is kept: the condition cannot have held since
before it was last seen to be cleared, so `for` starts again at that time.

Until the job has caught up, groups have outdated states: nothing changes, except for rules that do not read groups. In
the same way an alert is held about whose condition nothing is known at present, such as lag while a group rebalances.

Flapping: a condition that comes and goes within its `for` never fires. One that comes and goes more slowly fires and
resolves each time, unless `keep_firing_for` bridges the gaps, as in Prometheus; it is 0 by default.

Notifications: on firing, one is due to each sink; on resolution, one to each sink to which a firing notification was
sent or is due, so a sink that is added later gets only later alerts. If the firing notification could not be sent
before the resolution, both are sent, in order: the sink may have accepted it although its response was lost, and the
alert must not stay open there. A changed summary is not notified, but a severity that rises is. With `repeat_after`, a
firing notification is due again that long after it was sent.

Clocks: a time ahead of now counts as now. A clock that is set back never fires or resolves anything by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.alerts.alert import (
    FIRING,
    PENDING,
    RESOLVED,
    WAS,
    Alert,
    AlertKey,
    Delivery,
    Finding,
    Identity,
    severity_rank,
)
from streaming_app.alerts.evaluate import RuleSettingsLookup
from streaming_app.alerts.rule import RuleSettings
from streaming_app.text import shorten

_ACTIVE, _DUE, _KEPT, _CLEARED = "active", "due", "kept", "cleared"

# (state, event) -> state, where None means that no alert is open. Other combinations cannot occur.
_NEXT: Mapping[tuple[str | None, str], str | None] = {
    (None, _ACTIVE): PENDING,
    (None, _DUE): FIRING,
    (PENDING, _ACTIVE): PENDING,
    (PENDING, _DUE): FIRING,
    (PENDING, _CLEARED): None,
    (FIRING, _ACTIVE): FIRING,
    (FIRING, _DUE): FIRING,
    (FIRING, _KEPT): FIRING,
    (FIRING, _CLEARED): RESOLVED,
}

_CLEARED_AT = "cleared_at"
_ENDED, _NOT_ENABLED = "ended", "the configuration does not enable this rule any more"
_LONGEST_SUMMARY = 2_000  # characters; ids, which may have 32,000, are in it, and all open alerts are in memory
_WAS_KEPT = 10
_RESOLUTIONS_KEPT_FOR = timedelta(days=30)


@dataclass(frozen=True)
class NotifyPolicy:
    """Where and when alerts are notified, for all rules alike."""

    sinks: tuple[str, ...] = ()
    keep_firing_for: float = 0.0
    """Seconds that an alert keeps firing after its condition was cleared."""
    repeat_after: float | None = None
    """Seconds after which a firing notification is sent again; None: never."""


@dataclass(frozen=True)
class AlertState:
    """What is kept from one evaluation to the next: the open alerts, and when the last alert of a key was resolved."""

    open: Mapping[AlertKey, Alert] = field(default_factory=dict)
    resolved_at: Mapping[AlertKey, datetime] = field(default_factory=dict)

    @classmethod
    def from_alerts(cls, alerts: Iterable[Alert]) -> AlertState:
        """Restore the state from rows of the table: all open ones, and at least the last resolved one of each key."""
        open_alerts: dict[AlertKey, Alert] = {}
        resolved_at: dict[AlertKey, datetime] = {}
        for alert in alerts:
            if alert.resolved_at is None:
                open_alerts[alert.key] = alert
            else:
                resolved_at[alert.key] = max(alert.resolved_at, resolved_at.get(alert.key, alert.resolved_at))
        return cls(open_alerts, resolved_at)

    def with_deliveries(self, alert: Alert) -> AlertState:
        """Return the state with the deliveries of this alert; the same state if the alert is not open."""
        current = self.open.get(alert.key)
        if current is None or current.fingerprint != alert.fingerprint:
            return self
        return replace(self, open={**self.open, alert.key: replace(current, deliveries=alert.deliveries)})


@dataclass(frozen=True)
class AlertChanges:
    """The result of one evaluation: the state after it, the rows to write, and the rows to delete from the table."""

    state: AlertState
    changed: tuple[Alert, ...] = ()
    """Rows that are new or changed; to be written after those of `removed` are deleted."""
    removed: tuple[Alert, ...] = ()
    """Pending alerts whose condition was cleared, or that get another row because the condition started again."""


def advance(  # noqa: PLR0913 - each is one thing it needs
    state: AlertState,
    findings: Mapping[AlertKey, Finding],
    *,
    cluster: str,
    now: datetime,
    rule_settings_of: RuleSettingsLookup,
    notify_policy: NotifyPolicy,
    caught_up: bool,
    is_held: Callable[[AlertKey], bool] = lambda _key: False,
) -> AlertChanges:
    """Apply the findings of one evaluation. `findings` has every condition that holds now; all others are cleared.

    What `is_held` stays as it is.
    """
    transitions: list[_Transition] = []
    for key in dict.fromkeys((*state.open, *findings)):
        before, finding = state.open.get(key), findings.get(key)
        rule = (finding and finding.rule) or (before and before.rule) or key.rule
        settings = rule_settings_of(key.group_id).get(rule)
        if is_held(key) or (not caught_up and not (settings and settings.while_catching_up)):
            continue
        if finding and settings:
            since = _pending_since(before, finding, state.resolved_at.get(key), now)
            alert = _with_finding(before or _new_alert(cluster, key, since), finding, settings, since)
            event = _DUE if now - since >= timedelta(seconds=settings.for_seconds) else _ACTIVE
        elif before:
            alert, event = _without_finding(before, now, notify_policy)
            if settings is None:
                alert, event = replace(alert, details={**before.details, _ENDED: _NOT_ENABLED}), _CLEARED
        else:
            continue
        next_state = _NEXT[before.state if before else None, event]
        after = _ENTER[next_state](alert, now, notify_policy) if next_state else None
        if before and after and after.state == before.state == FIRING and _is_worse(after, before):
            after = replace(after, deliveries=_again(after, notify_policy))
        if after != before:
            transitions.append(_Transition(key, before, after))
    return _apply(state, transitions, now)


def _is_worse(after: Alert, before: Alert) -> bool:
    return severity_rank(after.severity) < severity_rank(before.severity)


def _again(alert: Alert, notify_policy: NotifyPolicy) -> tuple[Delivery, ...]:
    """Return the deliveries of an alert that is notified again, since it became more severe."""
    wanted, known = notify_policy.sinks, {delivery.sink for delivery in alert.deliveries}
    again = (
        Delivery(delivery.sink, FIRING, repeat=delivery.repeat + 1)
        if delivery.sent_at and delivery.sink in wanted
        else delivery
        for delivery in alert.deliveries
    )
    return (*again, *(Delivery(sink, FIRING) for sink in wanted if sink not in known))


class _Transition(NamedTuple):
    key: AlertKey
    before: Alert | None
    after: Alert | None


def _apply(state: AlertState, transitions: Sequence[_Transition], now: datetime) -> AlertChanges:
    if not transitions:
        return AlertChanges(state)
    open_alerts, resolved_at = dict(state.open), dict(state.resolved_at)
    for key, _, after in transitions:
        if after and after.resolved_at:
            resolved_at[key] = max(after.resolved_at, resolved_at.get(key, after.resolved_at))
        if after and not after.resolved_at:
            open_alerts[key] = after
        else:
            open_alerts.pop(key, None)
    if len(resolved_at) > len(state.resolved_at):
        resolved_at = {key: at for key, at in resolved_at.items() if now - at < _RESOLUTIONS_KEPT_FOR}
    return AlertChanges(
        AlertState(open_alerts, resolved_at),
        changed=tuple(after for _, _, after in transitions if after),
        removed=tuple(before for _, before, after in transitions if before and _loses_row(before, after)),
    )


def _loses_row(before: Alert, after: Alert | None) -> bool:
    """Tell whether the row of `before` has to be deleted: `after` is None, or has another key in the table."""
    return after is None or (after.rule, after.pending_since) != (before.rule, before.pending_since)


def _new_alert(cluster: str, key: AlertKey, since: datetime) -> Alert:
    return Alert(cluster, key.group_id, key.rule, "", PENDING, since, None, None, "", {})


def with_severity(alert: Alert, settings: RuleSettings, of_facts: str) -> Alert:
    """Return an alert that fires with its severity by these settings, and with what it was before."""
    severity = _severity(settings, of_facts)
    if severity == alert.severity:
        return alert
    was = [*map(str, alert.was), str(alert.identity)][-_WAS_KEPT:]
    return replace(alert, severity=severity, details={**alert.details, WAS: was})


def _severity(settings: RuleSettings, of_facts: str | None) -> str:
    """Return how severe it is: at most as the settings say."""
    return max(settings.severity, of_facts or settings.severity, key=severity_rank)


def _with_finding(alert: Alert, finding: Finding, settings: RuleSettings, since: datetime) -> Alert:
    """Return the alert updated from its finding."""
    severity = _severity(settings, finding.severity)
    rule = finding.rule or alert.rule
    return replace(
        alert,
        rule=rule,
        severity=severity,
        pending_since=since,
        summary=shorten(finding.summary, _LONGEST_SUMMARY),
        details=_details(alert, finding, Identity(rule, severity)),
    )


def _details(alert: Alert, finding: Finding, now: Identity) -> Mapping[str, Any]:
    """Return the details of a finding, with what the alert was before while it fired."""
    was = [str(one) for one in alert.was if one != now]
    if alert.state == FIRING and alert.identity != now:
        was.append(str(alert.identity))
    return {**finding.details, WAS: was[-_WAS_KEPT:]} if was else finding.details


def _pending_since(before: Alert | None, finding: Finding, resolved_at: datetime | None, now: datetime) -> datetime:
    """Return since when the condition has held, as far as it counts for `for`.

    A firing alert keeps its time. If a pending one gets a finding with another time, the condition was cleared and held
    again in between, and `for` starts again; but the alert's own time is better than none, and than one ahead of now.
    """
    is_known = finding.since is not None and finding.since <= now
    since = finding.since if finding.since and is_known else now
    if resolved_at is not None:  # always later than the last alert: this time distinguishes the two
        since = max(since, resolved_at + timedelta(microseconds=1))
    if before is None:
        return since
    if before.state == PENDING and (is_known or before.pending_since > now):
        return since
    return before.pending_since


def _without_finding(alert: Alert, now: datetime, notify_policy: NotifyPolicy) -> tuple[Alert, str]:
    """Return an alert that has no finding, and its event."""
    if alert.state != FIRING or not notify_policy.keep_firing_for:
        return alert, _CLEARED
    stored = alert.details.get(_CLEARED_AT)
    cleared_at = min(datetime.fromisoformat(stored), now) if stored else now
    if now - cleared_at >= timedelta(seconds=notify_policy.keep_firing_for):
        return alert, _CLEARED
    return replace(alert, details={**alert.details, _CLEARED_AT: cleared_at.isoformat()}), _KEPT


def _pend(alert: Alert, _now: datetime, _notify_policy: NotifyPolicy) -> Alert:
    return alert


def _fire(alert: Alert, now: datetime, notify_policy: NotifyPolicy) -> Alert:
    if alert.state != FIRING:
        due = tuple(Delivery(sink, FIRING) for sink in notify_policy.sinks)
        return replace(alert, state=FIRING, opened_at=now, deliveries=due)
    if _CLEARED_AT in alert.details:
        return alert
    return replace(alert, deliveries=_repeat_deliveries(alert, now, notify_policy))


def _repeat_deliveries(alert: Alert, now: datetime, notify_policy: NotifyPolicy) -> tuple[Delivery, ...]:
    if notify_policy.repeat_after is None:
        return alert.deliveries
    pause = timedelta(seconds=notify_policy.repeat_after)
    return tuple(
        Delivery(delivery.sink, FIRING, repeat=delivery.repeat + 1)
        if delivery.sent_at and now - delivery.sent_at >= pause and delivery.sink in notify_policy.sinks
        else delivery
        for delivery in alert.deliveries
    )


def _resolve(alert: Alert, now: datetime, notify_policy: NotifyPolicy) -> Alert:
    notified = {delivery.sink for delivery in alert.deliveries}
    due = tuple(Delivery(sink, RESOLVED) for sink in notify_policy.sinks if sink in notified)
    resolved_at = max(now, alert.opened_at or now)
    return replace(alert, state=RESOLVED, resolved_at=resolved_at, deliveries=(*alert.deliveries, *due))


_ENTER: Mapping[str, Callable[[Alert, datetime, NotifyPolicy], Alert]] = {
    PENDING: _pend,
    FIRING: _fire,
    RESOLVED: _resolve,
}
