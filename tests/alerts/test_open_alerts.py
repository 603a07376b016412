"""Alerts open, become worse and end, and which notifications are due: of `alerts.open_alerts`, which decides it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.alerts.alert import (
    CRITICAL,
    FIRING,
    HEALTH,
    INFO,
    NEWS,
    RESOLVED,
    WARNING,
    Alert,
    AlertKey,
    Delivery,
    Holds,
    Over,
    end_of,
)
from streaming_app.alerts.catalog import Rule
from streaming_app.alerts.engine_facts import EngineSettings
from streaming_app.alerts.open_alerts import CALM, OpenAlerts
from tests.alerts.examples import make_alert, make_rule

NOW = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
DOWN, BEHIND, OTHER = "StreamsGroupDown", "StreamsGroupBehind", "StreamsGroupMembersStale"
OF_HEALTH, OF_RULE = AlertKey(HEALTH, "payments"), AlertKey(OTHER, "payments")
SETTINGS = {DOWN: make_rule(CRITICAL, 300.0), BEHIND: make_rule(WARNING, 900.0), OTHER: make_rule(WARNING, 60.0)}


def make(
    stored: tuple[Alert, ...] = (),
    settings: Mapping[str, Rule] = SETTINGS,
    sinks: tuple[str, ...] = ("pager", "chat"),
    labels: Mapping[str, str] | None = None,
) -> OpenAlerts:
    """The alerts of a cluster, of which every group has these settings."""
    known = EngineSettings("prod", lambda _group_id: settings, sinks, labels_of=lambda _group_id: labels or {})
    return OpenAlerts(known, stored)


def at(minutes: float) -> datetime:
    """So many minutes after noon."""
    return NOW + timedelta(minutes=minutes)


def found(what: str = "wrong", severity: str | None = None, verdict: str | None = None, since: float = 0.0) -> Holds:
    """What holds since so many minutes after noon."""
    return Holds(at(since), what, {"n": 1}, severity, verdict)


def due_of(one: Alert) -> list[tuple[str, str, int]]:
    return [(each.sink, each.event, each.repeat) for each in one.deliveries if each.sent_at is None]


def open_one(alerts: OpenAlerts, key: AlertKey = OF_HEALTH) -> Alert:
    return alerts.open[key]


def sent(one: Alert) -> Alert:
    """Return it with everything sent."""
    return replace(one, deliveries=tuple(replace(each, sent_at=NOW, attempts=1) for each in one.deliveries))


def deliver(alerts: OpenAlerts) -> None:
    """Let everything be sent that is due."""
    alerts.publish()
    alerts.note([(one, each) for one in alerts.unsent() for each in sent(one).deliveries], is_over=True)


def changes(alerts: OpenAlerts) -> tuple[list[Alert], list[Alert]]:
    """Return the alerts that are to be stored and to be removed, and let them be."""
    rows = alerts.unsaved
    alerts.saved(rows)
    return [one for one in rows if not one.is_forgotten], [one for one in rows if one.is_forgotten]


def test_a_condition_fires_once_it_has_held_for_long_enough_and_ends_when_it_is_over() -> None:
    alerts = make(labels={"team": "payments"})
    alerts.take(OF_RULE, found(), at(0.5))
    assert (open_one(alerts, OF_RULE).state, due_of(open_one(alerts, OF_RULE))) == ("pending", [])
    alerts.take(OF_RULE, found(), at(1))
    one = open_one(alerts, OF_RULE)
    assert (one.state, one.since, one.opened_at, one.labels) == (FIRING, at(0), at(1), {"team": "payments"})
    assert due_of(one) == [("pager", FIRING, 0), ("chat", FIRING, 0)]
    alerts.take(OF_RULE, Over(), at(2))
    (ended,), _ = changes(alerts)
    assert (ended.state, ended.ended_at, ended.ended_by, alerts.open) == (RESOLVED, at(2), "evidence", {})
    assert due_of(ended)[2:] == [("pager", RESOLVED, 0), ("chat", RESOLVED, 0)]


def test_the_health_of_a_group_is_one_alert_with_the_rule_and_severity_of_its_worst_verdict() -> None:
    alerts = make()
    alerts.take(OF_HEALTH, found("slow", WARNING, "Behind"), at(0))
    first = open_one(alerts)
    deliver(alerts)
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(5))
    worse = open_one(alerts)
    assert (worse.alert_id, worse.rule, worse.severity, worse.since) == (first.alert_id, DOWN, CRITICAL, at(0))
    assert due_of(worse) == [("pager", FIRING, 1), ("chat", FIRING, 1)]
    assert [rule for rule, _ in worse.was] == [BEHIND]
    deliver(alerts)
    alerts.take(OF_HEALTH, found("slow", WARNING, "Behind"), at(6))
    better = open_one(alerts)
    assert (better.rule, better.severity, due_of(better)) == (DOWN, CRITICAL, [])
    assert [line.verdict for line in better.timeline] == ["Behind", "Down", "Behind"]


def test_a_severity_is_at_most_that_of_the_settings_and_a_restart_with_lower_ones_tells_nobody() -> None:
    alerts = make()
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    stored = sent(open_one(alerts))
    lower = make((stored,), {**SETTINGS, DOWN: make_rule(WARNING, 300.0)})
    assert (open_one(lower).severity, due_of(open_one(lower))) == (WARNING, [])
    lower.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(1))
    assert (open_one(lower).severity, due_of(open_one(lower))) == (WARNING, [])
    for most, case, expected in ((CRITICAL, WARNING, WARNING), (INFO, WARNING, INFO), (WARNING, CRITICAL, WARNING)):
        mild = make(settings={**SETTINGS, DOWN: make_rule(most, 300.0)})
        mild.take(OF_HEALTH, found("gone", case, "Down"), at(0))
        assert open_one(mild).severity == expected


@pytest.mark.parametrize(
    ("settings", "by"),
    [pytest.param({}, "ignored", id="the group"), pytest.param({OTHER: SETTINGS[OTHER]}, "not enabled", id="the rule")],
)
def test_what_the_configuration_leaves_out_ends_and_taking_it_back_opens_what_holds(
    settings: Mapping[str, Rule], by: str
) -> None:
    alerts = make()
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    ignoring = make((sent(open_one(alerts)),), settings)
    ignoring.leave_out(at(1))
    (ended,), _ = changes(ignoring)
    assert (ended.ended_by, [event for _, event, _ in due_of(ended)]) == (by, [RESOLVED, RESOLVED])
    back = make((ended,))
    assert back.open == {}
    back.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(3))
    assert open_one(back).opened_at == at(3)


@pytest.mark.parametrize("verdict_at", [0.0, 3.0, 5.0], ids=["as the first one", "before its end", "at its end"])
def test_a_verdict_older_than_the_end_of_the_last_alert_opens_another_one_after_it(verdict_at: float) -> None:
    alerts = make()
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    first = open_one(alerts)
    alerts.take(OF_HEALTH, Over("Ok", "Offsets advance."), at(5))
    alerts.take(OF_HEALTH, found("slow", WARNING, "Behind", since=-5), at(verdict_at))
    one = open_one(alerts)
    assert (one.state, one.since, due_of(one)) == (FIRING, at(-5), [("pager", FIRING, 0), ("chat", FIRING, 0)])
    assert one.opened_at is not None
    assert timedelta(0) < one.opened_at - at(5) < timedelta(seconds=1)
    assert one.alert_id != first.alert_id


GONE = replace(found("gone", CRITICAL, "Down"), causes=["missing_topic:a"])
WELL = Over("Ok", "Offsets advance.")


@pytest.mark.parametrize(
    ("second", "begins", "over", "is_again"),
    [
        pytest.param(GONE, 65, WELL, True, id="an hour after the end"),
        pytest.param(GONE, 66, WELL, False, id="later"),
        pytest.param(replace(GONE, verdict="Behind"), 20, WELL, False, id="another rule"),
        pytest.param(replace(GONE, causes=["missing_topic:b"]), 20, WELL, False, id="another cause"),
        pytest.param(GONE, 20, Over("Off", "nothing waits"), False, id="it is off"),
    ],
)
def test_an_alert_ends_at_once_unless_another_one_of_its_kind_has_ended_within_an_hour(
    second: Holds, begins: float, over: Over, *, is_again: bool
) -> None:
    alerts = make()
    for finding, at_minute, ends in ((GONE, 0.0, WELL), (second, begins, over)):
        alerts.take(OF_HEALTH, finding, at(at_minute))
        alerts.take(OF_HEALTH, ends, at(at_minute + 5))
    assert bool(alerts.open) == is_again
    alerts.take(OF_HEALTH, Over("Idle"), at(begins + 20))  # which is as well
    for is_known in (False, True):
        alerts.end_calm(at(begins + 36), is_known=lambda _group_id, is_known=is_known: is_known)  # type: ignore[misc]
        assert bool(alerts.open) == (is_again and not is_known)
    alerts.take(OF_HEALTH, GONE, at(begins + 40))
    stored, _ = changes(alerts)
    assert [one.ended_at for one in stored] == [at(5), at(begins + (35 if is_again else 5)), None]


def test_a_person_ends_the_alert_with_the_health_of_a_group_and_no_other() -> None:
    alerts = make()
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    alerts.take(OF_RULE, found(since=-5), at(0))
    ids = {key: one.alert_id for key, one in alerts.open.items()}
    assert alerts.end({ids[OF_RULE]: "retired"}, at(1)) == []
    assert alerts.end({ids[OF_HEALTH]: "retired"}, at(1)) == [("payments", "retired")]
    assert set(alerts.open) == {OF_RULE}


def test_a_sink_that_is_new_is_notified_of_what_is_open_and_one_that_went_is_owed_nothing() -> None:
    alerts = make(sinks=("old",))
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    restarted = make((open_one(alerts),), sinks=("new",))
    assert due_of(open_one(restarted)) == [("new", FIRING, 0)]


def test_what_is_sent_again_fires_is_stored_and_is_not_muted() -> None:
    muted = set[str | None]()
    known = EngineSettings("prod", lambda _group_id: SETTINGS, is_muted=lambda one: one.group_id in muted)
    alerts = OpenAlerts(known)
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    alerts.take(OF_RULE, found(), at(0.5))  # pending
    assert list(alerts.firing()) == []  # nothing is stored yet
    alerts.publish()
    assert [one.rule for one in alerts.firing()] == [DOWN]
    muted.add("payments")
    assert list(alerts.firing()) == []
    muted.clear()
    alerts.take(OF_HEALTH, Over("Ok"), at(5))
    assert list(alerts.firing()) == []


def cause_of(alerts: OpenAlerts, *causes: str) -> str | None:
    """Return the cause that an alert has that opens now."""
    key = AlertKey(HEALTH, "other")
    alerts.take(key, replace(found(verdict="Down"), causes=causes), at(9))
    cause = open_one(alerts, key).cause
    alerts.take(key, Over(), at(9))
    return cause


def test_a_cause_is_that_of_an_open_alert_if_one_has_it_also_after_a_restart_with_other_settings() -> None:
    alerts, causes = make(), ("missing_topic:a", "missing_topic:b")
    assert (cause_of(alerts), cause_of(alerts, *causes)) == (None, "missing_topic:a")
    alerts.take(OF_HEALTH, replace(found(verdict="Down"), causes=causes[1:]), at(0))
    restarted = make((open_one(alerts),), labels={"team": "payments"})
    for one in (alerts, restarted):
        assert cause_of(one, *causes) == "missing_topic:b"
        one.take(OF_HEALTH, Over("Ok"), at(5))
        assert cause_of(one, *causes) == "missing_topic:a"


MUTED_THEN_RESOLVED = [
    pytest.param((Delivery("chat", FIRING),), (), id="never sent"),
    pytest.param((Delivery("chat", FIRING, NOW, 1),), (FIRING, RESOLVED), id="sent"),
    pytest.param((Delivery("chat", FIRING, None, 3, "503"),), (FIRING, RESOLVED), id="it may have arrived"),
    pytest.param((Delivery("chat", FIRING, repeat=2),), (RESOLVED,), id="a repetition was due"),
]


@pytest.mark.parametrize(("fired", "left"), MUTED_THEN_RESOLVED)
def test_what_is_resolved_in_a_mute_is_resolved_where_it_is_known(
    fired: tuple[Delivery, ...], left: tuple[str, ...]
) -> None:
    ended = end_of(make_alert(deliveries=fired), NOW, "evidence", ["chat", "mail"], is_muted=True)
    assert [(one.sink, one.event) for one in ended.deliveries] == [("chat", event) for event in left]


def test_what_is_new_in_an_open_alert_is_one_more_message_and_what_is_old_is_none() -> None:
    alerts, repeats = make(sinks=("pager",), settings={OTHER: make_rule(WARNING, 0.0)}), []
    for minute, types in enumerate([[24], [24], [24, 25], [25], [25]]):
        alerts.take(OF_RULE, Holds(at(0), "types", {NEWS: types}), at(minute))
        repeats += [repeat for *_, repeat in due_of(open_one(alerts, OF_RULE))]
        deliver(alerts)
    assert repeats == [0, 1]


def test_what_gets_worse_while_it_is_sent_is_sent_once_more() -> None:
    alerts = make(sinks=("pager",))
    alerts.take(OF_HEALTH, found("slow", WARNING, "Behind"), at(0))
    assert list(alerts.unsent()) == []
    alerts.publish()
    (one,) = alerts.unsent()
    (delivery,) = one.deliveries
    alerts.note([(one, replace(delivery, attempts=1))], is_over=False)
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(5))
    alerts.note([(one, replace(delivery, attempts=1, sent_at=at(6)))], is_over=True)
    assert due_of(open_one(alerts)) == [("pager", FIRING, 1)]


def test_a_group_that_stands_still_again_within_an_hour_has_one_more_alert_that_ends_after_half_an_hour() -> None:
    alerts = make()
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(0))
    alerts.take(OF_HEALTH, Over("Ok", "Offsets advance."), at(5))
    ended, _ = changes(alerts)
    alerts.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(20))
    alerts.take(OF_HEALTH, Over("Ok", "Offsets advance."), at(25))
    restarted = make((*ended, open_one(alerts)))
    for one in (alerts, restarted):
        one.end_calm(at(54), is_known=bool)
        assert "it is over if that lasts until" in open_one(one).summary
        one.take(OF_HEALTH, found("gone", CRITICAL, "Down"), at(54))
        one.take(OF_HEALTH, Over("Ok", "Offsets advance."), at(60))
        one.end_calm(at(60) + CALM, is_known=lambda _group_id: False)
        assert open_one(one).state == FIRING
        one.end_calm(at(60) + CALM, is_known=bool)
        (last, *_), _ = changes(one)
        assert (last.state, last.ended_at) == (RESOLVED, at(60) + CALM)
        assert one.open == {}
