"""Each group of an incident has a finding and an alert of its own: its team, routes and silences decide about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert
from streaming_app.alerts.engine import AlertEngine, EngineSettings, Observed, StoredHealth
from streaming_app.alerts.outbox import Backoff, Outboxes, SinkTraits
from streaming_app.alerts.routes import Route, Routes
from streaming_app.alerts.survey import DescriptionSupport
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.incidents import Incidents
from streaming_app.health.verdict import DOWN, OK, STALLED
from streaming_app.regex import compiled
from tests.alerts.engine_rig import OLD, Rig, at
from tests.alerts.healthy_group import healthy_group
from tests.health.test_incidents import change

TEAMS = Routes(
    [
        Route(compiled("pay-.*"), frozenset(), "payments", ("pay-hook",)),
        Route(compiled("shop-.*"), frozenset(), "shop", ("shop-hook",)),
    ]
)
SINKS = ("pay-hook", "shop-hook")


def not_ready(group_id: str, *topics: str) -> GroupSnapshot:
    reason = f"MISSING_SOURCE_TOPICS: Source topics {', '.join(topics)} are missing."
    return replace(healthy(group_id), state="NotReady", state_since=at(-900), not_ready_reason=reason)


def healthy(group_id: str) -> GroupSnapshot:
    return replace(healthy_group(OLD), group_id=group_id)


class Teams:
    """An engine with two teams, each of which has a receiver."""

    def __init__(self, health: StoredHealth | None = None, settings: dict[str, Any] | None = None) -> None:
        known = AlertSettings.model_validate(settings or {})
        outboxes = Outboxes([SinkTraits(name) for name in SINKS], known.grouping, Backoff(), self.sinks_of)
        policy = known.notify_policy(SINKS, TEAMS)
        engine = EngineSettings("prod", known.rule_settings_of(), policy)
        self.engine = AlertEngine(
            engine, (), outboxes, DescriptionSupport("never"), **({"health": health} if health else {})
        )
        self.received: dict[str, list[tuple[str, Alert]]] = {name: [] for name in SINKS}

    @staticmethod
    def sinks_of(alert: Alert) -> tuple[str, ...]:
        return TEAMS.sinks_of(alert, SINKS)

    def cycle(self, seconds: float, *groups: GroupSnapshot, **observed: Any) -> None:
        self.engine.step(Observed({one.group_id: one for one in groups}, work={}, **observed), at(seconds))
        self.engine.queue(seconds)
        for name, outbox in self.engine.outboxes.by_sink.items():
            while task := outbox.take(seconds):
                self.received[name] += [(task.event, alert) for alert in task.alerts]
                self.engine.delivered(outbox.answered(task, None, at(seconds), seconds).results)

    def groups(self, sink: str, event: str = FIRING) -> list[str]:
        return sorted(alert.group_id for kind, alert in self.received[sink] if kind == event)


def texts(alerts: Iterator[Alert] | list[Alert]) -> str:
    return "\n".join(f"{alert.summary} {dict(alert.details)}" for alert in alerts)


def test_three_topics_deleted_under_six_groups_of_two_teams_reach_each_owner_about_its_groups_only() -> None:
    teams = Teams()
    pairs = [(f"pay-{topic}", f"shop-{topic}", topic) for topic in ("a", "b", "c")]
    groups = [not_ready(name, topic) for pay, shop, topic in pairs for name in (pay, shop)]
    teams.cycle(0, *groups)
    assert teams.groups("pay-hook") == ["pay-a", "pay-b", "pay-c"]
    assert teams.groups("shop-hook") == ["shop-a", "shop-b", "shop-c"]
    assert "shop-" not in texts([alert for _, alert in teams.received["pay-hook"]])
    assert "pay-" not in texts([alert for _, alert in teams.received["shop-hook"]])
    for _, alert in teams.received["pay-hook"]:
        topic = str(alert.group_id).removeprefix("pay-")
        assert (alert.details["cause"], alert.details["scope"]) == ("missing_topic", topic)
        assert f"Source topics {topic} are missing" in alert.summary
    assert len(teams.engine.incidents) == 3


def test_a_group_that_is_mended_is_resolved_for_its_owner_though_others_of_the_incident_are_not() -> None:
    teams = Teams()
    broken = [not_ready("pay-a", "a"), not_ready("shop-a", "a")]
    teams.cycle(0, *broken)
    teams.cycle(60, healthy("pay-a"), broken[1])
    assert (teams.groups("pay-hook", RESOLVED), teams.groups("shop-hook", RESOLVED)) == (["pay-a"], [])


def test_a_silence_for_one_group_of_an_incident_mutes_that_one_only() -> None:
    teams = Teams()
    broken = [not_ready("pay-a", "a"), not_ready("pay-b", "a")]
    teams.cycle(0, *broken, is_silenced=lambda alert: alert.group_id == "pay-a")
    assert teams.groups("pay-hook") == ["pay-b"]


def test_a_group_that_joins_an_incident_a_day_later_is_an_alert() -> None:
    teams = Teams()
    teams.cycle(0, not_ready("pay-a", "a"))
    day = timedelta(days=1).total_seconds()
    late = replace(not_ready("shop-a", "a"), state_since=at(day - 900))
    teams.cycle(day, not_ready("pay-a", "a"), late)
    assert teams.groups("shop-hook") == ["shop-a"]


def test_deaths_on_one_host_are_incidents_of_their_own_each_with_its_reason() -> None:
    incidents = Incidents("prod")
    for minutes, (name, verdict) in enumerate((("a", DOWN), ("b", STALLED), ("c", DOWN))):
        host = {"client_host": "10.0.0.7"}
        incidents.step([change(verdict, at(180 * minutes), name, "critical", evidence=host)], at(600))
    assert [(one.cause, one.scope, one.groups) for one in incidents.open()] == [
        ("group", name, (name,)) for name in "abc"
    ]


@pytest.mark.parametrize("first", [("a",), ("a", "b")])
def test_groups_that_miss_one_of_the_same_topics_have_one_cause_whatever_else_they_miss(
    first: tuple[str, ...],
) -> None:
    second = ("a", "b") if first == ("a",) else ("a",)
    teams = Teams()
    teams.cycle(0, not_ready("pay-a", *first))
    teams.cycle(60, not_ready("pay-a", *first), not_ready("shop-a", *second))
    (incident,) = teams.engine.incidents
    assert incident.groups == ("pay-a", "shop-a")
    assert teams.groups("shop-hook") == ["shop-a"]


def test_an_incident_of_a_group_that_is_ignored_from_now_on_ends_and_taking_that_back_opens_what_still_is_so() -> None:
    before = Teams()
    before.cycle(0, not_ready("pay-a", "a"), not_ready("shop-a", "b"))
    stored = before.engine.unsaved_health
    ignoring = Teams(StoredHealth(stored.verdicts, stored.incidents), {"ignore_groups": ["pay-.*"]})
    ignoring.cycle(60, not_ready("pay-a", "a"), not_ready("shop-a", "b"))
    assert [one.groups for one in ignoring.engine.incidents] == [("shop-a",)]
    (ended,) = (one for one in ignoring.engine.unsaved_health.incidents if one.ended_at)
    assert (ended.groups, ended.ended_by) == (("pay-a",), "ignored")

    verdicts = {**stored.verdicts, **ignoring.engine.unsaved_health.verdicts}
    kept = [one for one in stored.incidents if one.incident_id != ended.incident_id]
    watching = Teams(StoredHealth(verdicts, [*kept, ended]))
    watching.cycle(120, not_ready("pay-a", "a"), not_ready("shop-a", "b"))
    assert sorted(tuple(one.groups) for one in watching.engine.incidents) == [("pay-a",), ("shop-a",)]
    over = Teams(StoredHealth(verdicts, [*kept, ended]))
    over.cycle(120, healthy("pay-a"), not_ready("shop-a", "b"))
    assert [one.groups for one in over.engine.incidents] == [("shop-a",)]
    assert over.engine.verdicts["pay-a"].verdict in {OK, "Idle"}


def test_one_more_missing_description_resolves_no_alert_of_another_group() -> None:
    def missing(number: int) -> GroupSnapshot:
        return replace(
            healthy_group(OLD),
            group_id=f"app-{number}",
            description_status="NEVER_STORED",
            description_since=OLD,
            stored_description_epoch=-1,
            first_described_at=None,
            solicitable=True,
        )

    rig = Rig({"group_wait": "0s", "group_interval": "0s"})
    rig.cycle(0, *map(missing, range(4)))
    assert rig.sent == [(FIRING, f"app-{number}") for number in range(4)]
    rig.cycle(60, *map(missing, range(5)))
    assert (RESOLVED, "app-0") not in rig.sent
    assert rig.sent[4:] == [(FIRING, None)]
    rig.cycle(120, *map(missing, range(1, 5)))
    assert [sent for sent in rig.sent if sent[0] == RESOLVED] == [(RESOLVED, "app-0")]
