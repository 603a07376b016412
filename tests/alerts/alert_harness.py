"""Evaluations one after the other, and the table of alerts that they write."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, AlertKey, Delivery, Finding
from streaming_app.alerts.lifecycle import AlertChanges, AlertState, NotifyPolicy, advance
from streaming_app.alerts.rule import RuleSettings

START = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
KEY = AlertKey("StreamsGroupNotReady", "payments")
FOR_SECONDS = 300.0
SETTINGS = {
    "StreamsGroupNotReady": RuleSettings("critical", FOR_SECONDS, {}),
    "StreamsGroupEmpty": RuleSettings("warning", 0.0, {}),
    "StreamsGroupsJobStopped": RuleSettings("critical", 0.0, {}, while_catching_up=True),
}
SINKS = ("mail", "chat")
DUE = tuple(Delivery(sink, FIRING) for sink in SINKS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class AlertHarness:
    """Evaluations one after the other, with the table that they write."""

    notify_policy: NotifyPolicy = field(default_factory=lambda: NotifyPolicy(SINKS))
    state: AlertState = field(default_factory=AlertState)
    table: dict[tuple[AlertKey, datetime], Alert] = field(default_factory=dict)
    settings: dict[str, RuleSettings] = field(default_factory=lambda: dict(SETTINGS))

    def evaluate(
        self,
        second: float,
        *,
        since: float | None = None,
        of_unknown_age: bool = False,
        key: AlertKey = KEY,
        summary: str = "why",
        caught_up: bool = True,
    ) -> AlertChanges:
        """Evaluate once; the condition has held since `since`, or for an unknown time, or does not hold."""
        known = None if since is None else at(since)
        findings = {key: Finding(known, summary)} if known or of_unknown_age else {}
        return self.apply(at(second), findings, caught_up=caught_up)

    def apply(self, now: datetime, findings: dict[AlertKey, Finding], *, caught_up: bool = True) -> AlertChanges:
        changes = advance(
            self.state,
            findings,
            cluster="c",
            now=now,
            rule_settings_of=lambda _group: self.settings,
            notify_policy=self.notify_policy,
            caught_up=caught_up,
        )
        for alert in changes.removed:
            del self.table[alert.key, alert.pending_since]
        for alert in changes.changed:
            row = self.table.get((alert.key, alert.pending_since))
            assert row is None or row.state != RESOLVED, "a resolved alert would be overwritten"
            self.table[alert.key, alert.pending_since] = through_json(alert)
        self.state = changes.state
        return changes

    def restart(self) -> None:
        self.state = AlertState.from_alerts(self.table.values())

    def mark_sent(self, second: float, *sinks: str) -> None:
        """Record that all due notifications to these sinks were sent."""
        for row, alert in self.table.items():
            deliveries = tuple(
                replace(delivery, sent_at=at(second), attempts=1)
                if delivery.sink in sinks and not delivery.sent_at
                else delivery
                for delivery in alert.deliveries
            )
            self.table[row] = replace(alert, deliveries=deliveries)
            self.state = self.state.with_deliveries(self.table[row])

    @property
    def alerts(self) -> list[Alert]:
        return list(self.table.values())


def through_json(alert: Alert) -> Alert:
    return replace(alert, details=json.loads(json.dumps(alert.details)))
