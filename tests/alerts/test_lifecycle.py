"""The lifecycle of an alert, each transition, and random sequences with restarts and clock changes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import FIRING, PENDING, RESOLVED, Alert, AlertKey, Delivery, Finding, Identity
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


def states(changes: AlertChanges) -> list[str]:
    return [alert.state for alert in changes.changed]


def test_an_alert_is_pending_then_fires_and_is_resolved() -> None:
    harness = AlertHarness()
    harness.evaluate(10, since=0)
    (fired,) = harness.evaluate(300, since=0).changed
    assert (fired.state, fired.severity, fired.pending_since, fired.opened_at) == (FIRING, "critical", at(0), at(300))
    assert fired.deliveries == DUE
    (resolved,) = harness.evaluate(310).changed
    assert (resolved.state, resolved.opened_at, resolved.resolved_at) == (RESOLVED, at(300), at(310))
    assert resolved.deliveries == (*DUE, Delivery("mail", RESOLVED), Delivery("chat", RESOLVED))
    assert not harness.state.open


# (second of an evaluation, since when the condition has held, or None) -> the state that it changes an alert to
UNKNOWN_AGE, RESTART = "unknown", "restart"
LIFE: dict[str, list[tuple[float, Any, str | None]]] = {
    "for has to pass": [(10, 0, PENDING), (299, 0, None), (300, 0, FIRING), (305, 0, None), (310, None, RESOLVED)],
    "it has passed already": [(1000, 0, FIRING)],
    "it restarts with the condition": [(10, 0, PENDING), (1000, 900, PENDING), (1200, 900, FIRING)],
    "it began again just now": [(10, 0, PENDING), (400, 400, PENDING), (600, 400, None), (700, 400, FIRING)],
    "the age is not known": [(0, UNKNOWN_AGE, PENDING), (250, UNKNOWN_AGE, None), (300, UNKNOWN_AGE, FIRING)],
    "of a clock that is ahead": [(0, 86_400, PENDING), (299, 86_400, None), (300, 86_400, FIRING)],
    "of a clock that is set back": [(100, 90, PENDING), (-5000, 90, PENDING), (-4700, 90, FIRING), (-9000, 90, None)],
    "after a resolution, of an old time": [
        *((300, 0, FIRING), (400, None, RESOLVED), (410, 0, PENDING), (699, 0, None), (701, 0, FIRING)),
    ],
}


@pytest.mark.parametrize("restarts", [False, True], ids=["steady", "restarts"])
@pytest.mark.parametrize("name", LIFE)
def test_a_condition_fires_once_it_has_held_for_long_enough_also_over_restarts(name: str, restarts: bool) -> None:
    harness = AlertHarness()
    for second, since, state in LIFE[name]:
        if restarts:
            harness.restart()
        unknown = since == UNKNOWN_AGE
        changes = harness.evaluate(second, since=None if unknown else since, of_unknown_age=unknown)
        assert (states(changes) or [None])[-1] == state, second


def test_a_pending_alert_that_is_cleared_is_deleted_without_a_notification() -> None:
    harness = AlertHarness()
    harness.evaluate(10, since=0)
    changes = harness.evaluate(20)
    assert (states(changes), len(changes.removed), harness.alerts) == ([], 1, [])


def test_a_summary_is_no_longer_than_people_read_however_long_an_id_in_it_is() -> None:
    (alert,) = AlertHarness().evaluate(300, since=0, summary="x" * 32_000).changed
    assert len(alert.summary) == 2_000
    assert alert.summary.endswith("…")


def test_a_new_summary_is_written_but_not_notified() -> None:
    harness = AlertHarness()
    harness.evaluate(300, since=0, summary="one topic is missing")
    harness.mark_sent(301, *SINKS)
    (alert,) = harness.evaluate(305, since=0, summary="two topics are missing").changed
    assert alert.summary == "two topics are missing"
    assert {delivery.event for delivery in alert.deliveries} == {FIRING}
    assert all(delivery.sent_at for delivery in alert.deliveries)


def test_changed_settings_apply_to_open_alerts() -> None:
    harness = AlertHarness()
    harness.evaluate(300, since=0)
    harness.settings[KEY.rule] = RuleSettings("info", 9999.0, {})
    (alert,) = harness.evaluate(305, since=0).changed
    assert (alert.state, alert.severity, alert.deliveries) == (FIRING, "info", DUE)
    del harness.settings[KEY.rule]
    assert states(harness.evaluate(310, since=0)) == [RESOLVED]


def test_only_the_alert_for_a_stopped_job_changes_before_the_job_has_caught_up() -> None:
    harness = AlertHarness()
    harness.evaluate(10, since=0)
    harness.evaluate(600, since=0, key=AlertKey("StreamsGroupEmpty", "other"))
    before = harness.state
    harness.restart()
    assert harness.evaluate(700, caught_up=False) == AlertChanges(before)
    assert harness.evaluate(700, since=0, caught_up=False) == AlertChanges(before)
    stopped = AlertKey("StreamsGroupsJobStopped", None)
    assert states(harness.evaluate(700, since=0, key=stopped, caught_up=False)) == [FIRING]
    assert states(harness.evaluate(800, caught_up=False)) == [RESOLVED]
    assert harness.state.open == before.open


def test_an_alert_that_fires_and_resolves_at_once_is_not_overwritten_by_the_next() -> None:
    harness = AlertHarness()
    stopped = AlertKey("StreamsGroupsJobStopped", None)
    for since in (0, None, -1, None):  # at one time, to which the clock was set back
        harness.evaluate(0, since=since, key=stopped)
    harness.evaluate(1, since=-1, key=stopped)
    assert [alert.state for alert in harness.alerts] == [RESOLVED, FIRING]


def test_keep_firing_for_bridges_a_gap_even_if_the_job_restarts_during_it() -> None:
    harness = AlertHarness(NotifyPolicy(SINKS, keep_firing_for=60))
    harness.evaluate(300, since=0)
    (kept,) = harness.evaluate(310).changed
    assert (kept.state, kept.details) == (FIRING, {"cleared_at": at(310).isoformat()})
    harness.restart()
    assert states(harness.evaluate(360)) == []
    assert states(harness.evaluate(365, since=362)) == [FIRING]
    assert "cleared_at" not in harness.alerts[0].details
    harness.evaluate(400)
    harness.restart()
    assert states(harness.evaluate(459)) == []
    assert states(harness.evaluate(460)) == [RESOLVED]
    assert len(harness.alerts[0].deliveries) == 4


def test_a_resolution_goes_to_the_sinks_that_got_the_firing_and_are_still_configured() -> None:
    harness = AlertHarness()
    harness.evaluate(300, since=0)
    harness.notify_policy = NotifyPolicy(("chat", "pager"))
    (alert,) = harness.evaluate(310).changed
    assert alert.deliveries == (*DUE, Delivery("chat", RESOLVED))


def test_firing_is_repeated_only_with_repeat_after_and_only_after_it_was_sent() -> None:
    harness = AlertHarness(NotifyPolicy(SINKS, repeat_after=3600))
    harness.evaluate(300, since=0)
    harness.mark_sent(300, "mail")
    assert states(harness.evaluate(3899, since=0)) == []
    (alert,) = harness.evaluate(3900, since=0).changed
    assert alert.deliveries == (Delivery("mail", FIRING, repeat=1), Delivery("chat", FIRING))
    harness.mark_sent(3901, "mail")
    harness.restart()
    assert states(harness.evaluate(7000, since=0)) == []
    harness.notify_policy = NotifyPolicy(("chat",), repeat_after=3600)
    assert states(harness.evaluate(99999, since=0)) == []
    harness.notify_policy = NotifyPolicy(SINKS)
    assert states(harness.evaluate(99999, since=0)) == []


def test_the_deliveries_of_an_earlier_alert_do_not_change_the_open_one() -> None:
    harness = AlertHarness()
    harness.evaluate(300, since=0)
    (earlier,) = harness.alerts
    harness.evaluate(310)
    harness.evaluate(1000, since=0)
    sent = replace(earlier, deliveries=tuple(replace(one, sent_at=at(320)) for one in earlier.deliveries))
    assert harness.state.with_deliveries(sent) == harness.state


KEYS = [KEY, AlertKey("StreamsGroupNotReady", "orders"), AlertKey("StreamsGroupEmpty", "orders")]
KEYS.append(AlertKey("StreamsGroupsJobStopped", None))
EVALUATIONS = st.lists(
    st.tuples(
        st.integers(-400, 400) | st.integers(0, 30),  # seconds since the previous evaluation
        st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(-700, 50), st.sampled_from("xyz")), max_size=3),
        st.sampled_from(["", "mail", "mail chat"]),  # the sinks that accept what is due
        st.booleans() | st.just(True),  # noqa: FBT003 - caught up
    ),
    max_size=25,
)
NOTIFY_POLICIES = st.builds(
    NotifyPolicy, st.just(SINKS), st.sampled_from([0.0, 30.0, 400.0]), st.sampled_from([None, 60.0])
)


@given(EVALUATIONS, NOTIFY_POLICIES, st.sets(st.integers(0, 25)))
def test_in_any_sequence_each_alert_is_notified_once_and_restarts_change_nothing(
    evaluations: list[tuple[int, dict[AlertKey, tuple[int, str]], str, bool]],
    notify_policy: NotifyPolicy,
    restarts: set[int],
) -> None:
    harness, never_restarted = AlertHarness(notify_policy), AlertHarness(notify_policy)
    second = 0.0
    for number, (pause, conditions, accepting, caught_up) in enumerate(evaluations):
        second += pause + 1e-6  # no two evaluations at exactly the same time
        findings = {key: Finding(at(second + since), summary) for key, (since, summary) in conditions.items()}
        if number in restarts:
            harness.restart()
        for one in (harness, never_restarted):
            one.apply(at(second), findings, caught_up=caught_up)
            one.mark_sent(second, *accepting.split())
        assert harness.table == never_restarted.table
        assert AlertState.from_alerts(harness.alerts) == harness.state
        check(harness, findings, at(second))


def check(harness: AlertHarness, findings: dict[AlertKey, Finding], now: datetime) -> None:
    open_keys = [alert.key for alert in harness.alerts if alert.state != RESOLVED]
    assert len(open_keys) == len(set(open_keys))
    for alert in harness.alerts:
        notified = Counter((one.sink, one.event) for one in alert.deliveries)
        firing, resolved = ({(sink, event): 1 for sink in SINKS} for event in (FIRING, RESOLVED))
        assert notified == {PENDING: {}, FIRING: firing, RESOLVED: firing | resolved}[alert.state]
        assert (alert.opened_at is None) == (alert.state == PENDING)
        assert (alert.resolved_at is None) == (alert.state != RESOLVED)
        assert alert.opened_at is None or alert.pending_since <= alert.opened_at
        assert alert.resolved_at is None or alert.opened_at is None or alert.opened_at <= alert.resolved_at
        if alert.opened_at == now and alert.state == FIRING:
            assert alert.key in findings
            assert now - alert.pending_since >= timedelta(seconds=SETTINGS[alert.rule].for_seconds)


@pytest.mark.parametrize("days", [29, 31])
def test_resolutions_are_kept_for_a_month(days: int) -> None:
    harness = AlertHarness()
    harness.evaluate(300, since=0)
    harness.evaluate(310)
    later = 310 + days * 86400
    empty = AlertKey("StreamsGroupEmpty", "other")
    harness.evaluate(later, since=later, key=empty)
    harness.evaluate(later + 1)
    assert (KEY in harness.state.resolved_at) == (days < 30)


@pytest.mark.parametrize("was_sent", [True, False])
def test_an_alert_that_becomes_critical_is_due_once_to_each_sink_that_it_goes_to(was_sent: bool) -> None:
    harness = AlertHarness()
    for second, severity in ((300, "warning"), (400, "critical"), (500, "critical")):
        harness.apply(at(second), {KEY: Finding(at(0), "why", severity=severity)})
        if was_sent and severity == "warning":
            harness.mark_sent(second, *SINKS)
    (alert,) = harness.state.open.values()
    repeat = 1 if was_sent else 0
    assert alert.deliveries == tuple(Delivery(sink, FIRING, repeat=repeat) for sink in SINKS)


def test_what_an_alert_was_before_is_kept_with_it_and_names_each_once() -> None:
    harness = AlertHarness()
    rule = KEY.rule
    for minute, severity in enumerate(("warning", "critical", "critical", "critical")):
        harness.apply(at(300 + 60 * minute), {KEY: Finding(at(0), "why", severity=severity)})
    (one,) = harness.state.open.values()
    assert one.was == (Identity(rule, "warning"),)
    assert [Identity.parse(str(each)) for each in one.was] == list(one.was)
    harness.apply(at(600), {KEY: Finding(at(0), "why", severity="warning")})
    (one,) = harness.state.open.values()
    assert one.was == (Identity(rule, "critical"),)  # and not what it is again
    assert Identity.parse("R critical my team") == Identity("R", "critical")
