"""Incidents: one for each cause, with a time line, and an end that is proven or said by a person."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from streaming_app.health.board import Change
from streaming_app.health.incidents import BROKER, BY_EVIDENCE, MISSING_TOPIC, Incidents
from streaming_app.health.verdict import BEHIND, DOWN, IDLE, LOSING, OFF, OK, RESTORING, STALLED, UNKNOWN, Verdict
from tests.support.health_harness import NOW, ago

MISSING = {"reason": "MISSING_SOURCE_TOPICS: Source topics orders are missing."}


def change(name: str, at: datetime, group_id: str = "payments", severity: str | None = None, **fields: Any) -> Change:
    return Change(group_id, Verdict(name, at, at, f"why {name}", severity, **fields), at)


def test_an_incident_is_opened_escalated_and_ended_with_a_time_line() -> None:
    incidents = Incidents("prod")
    (opened,) = incidents.step([change(STALLED, ago(minutes=50), severity="warning")], NOW)
    assert (opened.severity, opened.opened_at, opened.groups) == ("warning", ago(minutes=50), ("payments",))
    (worse,) = incidents.step([change(DOWN, ago(minutes=40), severity="critical")], NOW)
    assert (worse.incident_id, worse.severity, worse.verdict) == (opened.incident_id, "critical", DOWN)
    (better,) = incidents.step([change(BEHIND, ago(minutes=20), severity="warning")], NOW)
    assert (better.severity, better.verdict, better.newest.verdict, better.ended_at) == ("critical", DOWN, BEHIND, None)
    (ended,) = incidents.step([change(OK, ago(minutes=10))], NOW)
    assert (ended.ended_at, ended.ended_by, ended.open_groups) == (ago(minutes=10), BY_EVIDENCE, ())
    assert [line.verdict for line in ended.timeline] == [STALLED, DOWN, BEHIND, OK]
    assert (incidents.open(), incidents.of_group("payments")) == ([], None)


def test_good_verdicts_and_a_restore_open_nothing_and_what_is_not_known_ends_nothing() -> None:
    incidents = Incidents("prod")
    calm = [change(name, ago(minutes=9)) for name in (OK, IDLE, OFF, UNKNOWN, RESTORING)]
    assert incidents.step(calm, NOW) == []
    incidents.step([change(DOWN, ago(minutes=8), severity="critical"), change(UNKNOWN, ago(minutes=7))], NOW)
    assert len(incidents.open()) == 1
    assert incidents.step([change(RESTORING, ago(minutes=6), "other", severity="warning")], NOW)


def test_one_missing_topic_under_several_groups_is_one_incident() -> None:
    incidents = Incidents("prod")
    names = ("a", "b", "c")
    incidents.step([change(DOWN, ago(minutes=9), name, "critical", evidence=MISSING) for name in names], NOW)
    (one,) = incidents.open()
    assert (one.cause, one.scope, one.groups) == (MISSING_TOPIC, "orders", names)
    incidents.step([change(OK, ago(minutes=3), "a"), change(OK, ago(minutes=2), "b")], NOW)
    assert incidents.open()[0].open_groups == ("c",)
    (ended,) = incidents.step([change(OK, ago(minutes=1), "c")], NOW)
    assert ended.ended_at == ago(minutes=1)


def test_groups_that_read_what_an_absent_broker_led_are_one_incident() -> None:
    incidents = Incidents("prod")
    for minutes, name in ((20, "a"), (5, "b")):
        away = {"evidence": {"broker_away": "broker 1"}}
        incidents.step([change(DOWN, ago(minutes=minutes), name, "critical", **away)], NOW)
    (one,) = incidents.open()
    assert (one.cause, one.scope, one.groups) == (BROKER, "broker 1", ("a", "b"))


def test_the_same_verdict_with_newer_numbers_is_the_same_line() -> None:
    incidents = Incidents("prod")
    for minutes in (9, 8, 7):
        incidents.step([change(DOWN, ago(minutes=minutes), severity="critical", evidence={"offsets": minutes})], NOW)
    (line,) = incidents.open()[0].timeline
    assert (line.at, line.evidence) == (ago(minutes=9), {"offsets": 7})


def test_a_time_line_keeps_its_begin_and_its_end() -> None:
    incidents = Incidents("prod")
    for n in range(500):
        incidents.step([change((STALLED, BEHIND)[n % 2], ago(minutes=500 - n), severity="warning")], NOW)
    timeline = incidents.open()[0].timeline
    assert (len(timeline), timeline[0].at, timeline[-1].at) == (200, ago(minutes=500), ago(minutes=1))


def test_a_person_ends_an_incident_and_the_next_one_has_another_id() -> None:
    incidents = Incidents("prod")
    (first,) = incidents.step([change(LOSING, ago(minutes=9), severity="critical")], NOW)
    ended = incidents.end(first.incident_id, "retired", ago(minutes=5))
    assert ended
    assert (ended.ended_at, ended.ended_by, incidents.open()) == (ago(minutes=5), "retired", [])
    assert incidents.end(first.incident_id, "retired", ago(minutes=4)) is None
    (second,) = incidents.step([change(DOWN, ago(minutes=3), severity="critical")], NOW)
    assert second.incident_id != first.incident_id


def test_a_restart_goes_on_with_the_open_incidents() -> None:
    before = Incidents("prod")
    (stored,) = before.step([change(DOWN, ago(minutes=9), severity="critical")], NOW)
    after = Incidents("prod", [stored])
    (ended,) = after.step([change(OK, ago(minutes=1))], NOW)
    assert (ended.incident_id, ended.ended_at) == (stored.incident_id, ago(minutes=1))
    again = Incidents("prod")
    assert again.step([change(DOWN, ago(minutes=9), severity="critical")], NOW) == [stored]


def test_what_was_planned_is_no_incident_again_until_the_verdict_is_another_one() -> None:
    incidents = Incidents("prod")
    (one,) = incidents.step([change(DOWN, ago(minutes=9), severity="critical")], NOW)
    assert incidents.groups_of(one.incident_id) == ("payments",)
    incidents.end(one.incident_id, "planned", ago(minutes=5))
    assert incidents.groups_of(one.incident_id) == ()
    assert incidents.step([change(DOWN, ago(minutes=9), severity="critical", evidence={"planned": True})], NOW) == []
    assert incidents.step([change(LOSING, ago(minutes=2), severity="critical")], NOW)


def test_the_second_incident_within_an_hour_ends_when_the_group_has_processed_for_half_an_hour() -> None:
    incidents = Incidents("prod")
    stalls = [(STALLED, 200), (OK, 190), (STALLED, 180), (OK, 170), (STALLED, 160), (OK, 150), (IDLE, 140)]
    changes = [change(name, ago(minutes=at), severity="warning" if name == STALLED else None) for name, at in stalls]
    first, second = incidents.step(changes, ago(minutes=135))
    assert (first.ended_at, second.opened_at) == (ago(minutes=190), ago(minutes=180))
    assert (second.ended_at, second.open_groups, second.ends_at) == (None, (), ago(minutes=120))
    assert incidents.of_group("payments") == second
    for after in (incidents, Incidents("prod", [first, second])):
        assert after.step([], ago(minutes=121)) == []
        (ended,) = after.step([], ago(minutes=119))
        assert (ended.ended_at, ended.ended_by, after.open()) == (ago(minutes=120), BY_EVIDENCE, [])
        (third,) = after.step([change(STALLED, ago(minutes=50), severity="warning")], NOW)
        assert third.ended_at is None
        (ended,) = after.step([change(OK, ago(minutes=40))], NOW)
        assert ended.ended_at == ago(minutes=40), "the one before ended more than an hour sooner"
