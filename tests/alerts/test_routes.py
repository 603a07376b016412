"""Routes: who owns a group, where its alerts go, and what becomes of notifications when that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import (
    CRITICAL,
    FIRING,
    INFO,
    RESOLVED,
    WARNING,
    Alert,
    AlertKey,
    Delivery,
    Finding,
    Identity,
)
from streaming_app.alerts.lifecycle import AlertState, NotifyPolicy, advance
from streaming_app.alerts.notification_queue import Grouping
from streaming_app.alerts.outbox import Backoff, Outboxes, Resend, SinkTraits
from streaming_app.alerts.routes import Route, Routes
from streaming_app.alerts.rule import RuleSettings
from streaming_app.regex import Regex

NOW = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
SINKS = ("chat", "mail", "pager")
PAYMENTS = Regex("payments-.*")


def alert(group_id: str | None = "payments-a", severity: str = CRITICAL, *deliveries: Delivery) -> Alert:
    return Alert("prod", group_id, "R", severity, FIRING, NOW, NOW, None, "s", {}, deliveries)


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ([], SINKS),
        ([Route(Regex("search-.*"), sinks=("chat",))], SINKS),
        ([Route(PAYMENTS, sinks=("chat",)), Route(sinks=("mail",))], ("chat",)),
        ([Route(PAYMENTS, sinks=("pager",), continues=True), Route(sinks=("mail",))], ("mail", "pager")),
        ([Route(PAYMENTS, frozenset({WARNING}), sinks=("mail",)), Route(PAYMENTS, sinks=("pager",))], ("pager",)),
        ([Route(PAYMENTS, sinks=())], ()),
        ([Route(PAYMENTS, team="p", sinks=("pager", "pager"), continues=True)], ("pager",)),
        ([Route(PAYMENTS, team="p")], SINKS),
        ([Route(Regex("payments"), sinks=("chat",)), Route(sinks=("mail",))], ("mail",)),  # the whole id
    ],
)
def test_the_first_route_that_matches_decides(routes: Sequence[Route], expected: tuple[str, ...]) -> None:
    assert Routes(routes).sinks_of(alert(), SINKS) == expected


def test_alerts_about_the_job_follow_only_routes_of_every_alert() -> None:
    routes = Routes([Route(Regex(".*"), sinks=("chat",)), Route(sinks=("pager",), team="platform")])
    assert routes.sinks_of(alert(None), SINKS) == ("pager",)
    assert (routes.team_of(None), routes.team_of("x")) == ("platform", "platform")


def test_a_team_owns_its_groups_whatever_the_severity() -> None:
    routes = Routes([Route(PAYMENTS, frozenset({CRITICAL}), "payments", ("pager",)), Route(PAYMENTS, sinks=("chat",))])
    assert (routes.team_of("payments-b"), routes.team_of("search")) == ("payments", None)


_ROUTE = st.builds(
    Route,
    st.sampled_from([None, PAYMENTS, Regex("search-.*"), Regex(".*")]),
    st.frozensets(st.sampled_from([CRITICAL, WARNING, INFO])),
    st.none(),
    st.none() | st.lists(st.sampled_from(SINKS), max_size=3).map(tuple),
    st.booleans(),
)


@given(
    routes=st.lists(_ROUTE, max_size=5),
    group_id=st.sampled_from([None, "payments-a", "search-b", "other"]),
    severity=st.sampled_from([CRITICAL, WARNING, INFO]),
)
def test_a_route_after_one_that_ends_changes_nothing(routes: list[Route], group_id: str | None, severity: str) -> None:
    one = alert(group_id, severity)
    found = Routes(routes).sinks_of(one, SINKS)
    assert list(found) == [sink for sink in SINKS if sink in found]
    own = [route for route in routes if route.owns(group_id)]
    matching = [route for route in own if not route.severities or severity in route.severities]
    last = next((number for number, route in enumerate(matching) if not route.continues), len(matching))
    wanted = {sink for route in matching[: last + 1] for sink in (SINKS if route.sinks is None else route.sinks)}
    assert set(found) == (wanted if matching else set(SINKS))


ROUTES = Routes(
    [
        Route(PAYMENTS, frozenset({CRITICAL}), "payments", ("pager",)),
        Route(PAYMENTS, team="payments", sinks=("chat",)),
        Route(sinks=("mail",)),
    ]
)


def step(state: AlertState, now: datetime, severity: str | None, group_id: str = "payments-a") -> AlertState:
    """Advance by one evaluation, and let everything be sent."""
    findings = {AlertKey("R", group_id): Finding(NOW, "s", severity=severity)} if severity else {}
    settings = {"R": RuleSettings(CRITICAL, 0.0, {})}
    changes = advance(
        state,
        findings,
        cluster="prod",
        now=now,
        rule_settings_of=lambda _group: settings,
        notify_policy=NotifyPolicy(SINKS, routes=ROUTES),
        caught_up=True,
    )
    STEPS.append([(one.sink, one.event) for alert in changes.changed for one in alert.deliveries if not one.sent_at])
    for alert in changes.changed:
        sent = tuple(replace(one, sent_at=one.sent_at or now) for one in alert.deliveries)
        changes = replace(changes, state=changes.state.with_deliveries(replace(alert, deliveries=sent)))
    return changes.state


STEPS: list[list[tuple[str, str]]] = []


def test_an_alert_that_becomes_critical_goes_where_critical_ones_go_and_its_end_to_all_who_know_it() -> None:
    STEPS.clear()
    state = step(AlertState(), NOW, WARNING)
    (one,) = state.open.values()
    assert one.details == {"team": "payments"}
    state = step(state, NOW + timedelta(minutes=1), CRITICAL)
    step(state, NOW + timedelta(minutes=2), None)
    assert STEPS == [[("chat", FIRING)], [("pager", FIRING)], [("chat", RESOLVED), ("pager", RESOLVED)]]


def test_what_fires_is_sent_again_only_where_it_goes() -> None:
    policy = NotifyPolicy(("am", "chat"), routes=Routes([Route(PAYMENTS, sinks=("chat",))]))
    traits = [SinkTraits("am", resend_seconds=60), SinkTraits("chat")]
    outboxes = Outboxes(traits, Grouping(), Backoff(), policy.sinks_of)
    sent = Delivery("chat", FIRING, sent_at=NOW)
    other = alert("search", CRITICAL, Delivery("am", FIRING, sent_at=NOW))
    was_routed = alert("payments-b", CRITICAL, Delivery("am", FIRING, sent_at=NOW))
    outboxes.offer([alert("payments-a", CRITICAL, sent), other, was_routed], None, 0)
    task = outboxes.by_sink["am"].take(120)
    assert isinstance(task, Resend)
    assert [one.group_id for one in task.alerts] == ["search", "payments-b"]


def test_what_an_alert_was_before_is_kept_with_it_and_names_each_once() -> None:
    state = step(AlertState(), NOW, WARNING)
    for minute, severity in enumerate((CRITICAL, CRITICAL, CRITICAL), 1):
        state = step(state, NOW + timedelta(minutes=minute), severity)
    (one,) = state.open.values()
    assert one.was == (Identity("R", WARNING, "payments"),)
    assert [Identity.parse(str(each)) for each in one.was] == list(one.was)
    state = step(state, NOW + timedelta(minutes=4), WARNING)
    (one,) = state.open.values()
    assert one.was == (Identity("R", CRITICAL, "payments"),)  # and not what it is again
    assert Identity.parse("R critical my team") == Identity("R", CRITICAL, "my team")
