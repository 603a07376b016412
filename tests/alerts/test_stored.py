"""What the engine gives to be stored, what it goes on from after a restart, and when it judges nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, PENDING, RESOLVED, Delivery
from streaming_app.alerts.engine import NO_HEALTH, StoredHealth
from streaming_app.alerts.outbox import Failure
from streaming_app.health import board
from streaming_app.health.board import Change
from streaming_app.health.incidents import Incident, Incidents
from streaming_app.health.verdict import DOWN, OFF, Verdict
from streaming_app.job_status import JobStatus
from streaming_app.lag.work import observe_work
from streaming_app.time_intervals import TimeInterval
from tests.alerts.engine_rig import FAILED, OLD, PAGER, START, Rig, at, group
from tests.support.health_harness import waiting
from tests.support.lag_harness import row

LATE = 120.0
JOB = JobStatus(OLD, caught_up=True, caught_up_at=START)
IS_DOWN = Verdict("Down", OLD, OLD, "why", "critical")


def losing(*group_ids: str) -> dict[str, Any]:
    task = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m"}
    lost = {"status": "LOST", "status_since": OLD.timestamp(), "lost_offsets": 700}
    return observe_work([row(group_id=one, **lost, **task) for one in group_ids], {}, {}, START.timestamp())


def stored(health: StoredHealth, rig: Rig) -> StoredHealth:
    """Return what is stored after an engine has given what was not, and note that it is."""
    unsaved = rig.engine.unsaved_health
    rig.engine.saved_health(unsaved)
    verdicts = {**health.verdicts, **unsaved.verdicts}
    incidents = {one.incident_id: one for one in (*health.incidents, *unsaved.incidents)}
    return StoredHealth({name: verdicts[name] for name in verdicts.keys() - unsaved.gone}, tuple(incidents.values()))


@pytest.mark.parametrize("restarts", [False, True])
def test_the_row_of_an_alert_that_never_fired_is_removed_once_its_cause_is_gone(restarts: bool) -> None:
    rig = Rig({"rules": {FAILED: {"for": "60s"}}})
    rig.cycle(0, group("FAILED", 0))
    assert [alert.state for alert in rig.table.values()] == [PENDING]
    assert rig.engine.unsaved == ((), ())
    if restarts:
        rig.restart()
    rig.cycle(30, group(since=30))
    assert rig.table == {}
    assert rig.engine.unsaved == ((), ())


def test_what_a_step_returns_are_the_alerts_that_changed() -> None:
    rig = Rig()
    assert [alert.rule for alert in rig.step(0, group("FAILED", -3600))] == [FAILED]
    assert rig.step(5, group("FAILED", -3600)) == ()
    assert [alert.state for alert in rig.step(10, group(since=10))] == [RESOLVED]


@pytest.mark.parametrize(
    ("job", "is_judged"),
    [
        pytest.param(None, True, id="no job"),
        pytest.param(replace(JOB, caught_up_at=at(-LATE)), True, id="read two minutes ago"),
        pytest.param(replace(JOB, caught_up_at=at(-LATE - 1)), False, id="read longer ago"),
        pytest.param(replace(JOB, caught_up_at=at(30)), True, id="the clock was set back"),
        pytest.param(replace(JOB, caught_up=False), False, id="not caught up since the start"),
        pytest.param(replace(JOB, caught_up_at=None), False, id="no time yet"),
    ],
)
def test_groups_are_judged_by_records_that_are_read_up_to_now(job: JobStatus | None, is_judged: bool) -> None:
    rig = Rig()
    rig.step(0, group(), job=job, work=losing("payments"))
    verdicts = {name: one.verdict for name, one in rig.engine.verdicts.items()}
    assert verdicts == ({"payments": "Losing"} if is_judged else {})
    assert [one.group_id for one in rig.engine.unsaved_health.changes] == ["payments"] * is_judged
    incident = rig.engine.incident_of("payments")
    assert list(rig.engine.incidents) == [incident] * is_judged


def test_an_incident_stays_open_while_records_are_read_late() -> None:
    rig = Rig()
    rig.cycle(0, group(), job=JOB, work=losing("payments"))
    before = rig.engine.incidents
    assert before
    well = observe_work([row(lag=0)], {}, {}, at(9_000).timestamp())
    rig.cycle(9_000, group(), job=JOB, work=well)
    assert rig.engine.incidents == before
    assert rig.engine.verdicts["payments"].verdict == "Losing"


def test_what_is_declared_of_a_group_reaches_its_verdict() -> None:
    at_night = TimeInterval(times=[(22 * 60, 24 * 60)])
    empty = replace(group(), state="Empty", state_since=at(-7_200), member_count=0)
    found = []
    for hours in ((), (at_night,)):
        rig = Rig(running_hours_of=lambda name, hours=hours: hours if name == "payments" else ())
        rig.step(0, empty, work={"payments": waiting(at(-3_600), START)})
        found.append(rig.engine.verdicts["payments"].verdict)
    assert found == [DOWN, OFF]


def test_a_group_that_is_ignored_has_a_verdict_and_no_incident() -> None:
    rig = Rig({"ignore_groups": "payments"})
    rig.step(0, group(), group(group_id="other"), work=losing("payments", "other"))
    assert {name: one.verdict for name, one in rig.engine.verdicts.items()} == {"payments": "Losing", "other": "Losing"}
    assert [one.groups for one in rig.engine.incidents] == [("other",)]


def test_the_verdict_of_a_group_that_is_gone_is_removed_and_no_other_one() -> None:
    rig = Rig()
    rig.cycle(0, group(), group(group_id="other"))
    health = stored(NO_HEALTH, rig)
    assert health.verdicts.keys() == {"payments", "other"}
    rig.cycle(5, replace(group(), deleted_at=at(5), state="Dead"), group(group_id="other"))
    health = stored(health, rig)
    rig.cycle(9e6, group(group_id="other"))
    health = stored(health, rig)
    assert health.verdicts.keys() == rig.engine.verdicts.keys() == {"other"}


def test_what_changed_of_health_while_it_was_stored_is_still_unsaved() -> None:
    rig = Rig()
    rig.step(0, group(), work=losing("payments"))
    storing = rig.engine.unsaved_health
    (incident,) = rig.engine.incidents
    rig.step(5, group(), work=losing("payments"), ended={incident.incident_id: "retired"})
    rig.engine.saved_health(storing)
    unsaved = rig.engine.unsaved_health
    assert [one.ended_by for one in unsaved.incidents] == ["retired"]
    assert list(unsaved.verdicts) == [one.group_id for one in unsaved.changes] == ["payments"]
    rig.engine.saved_health(unsaved)
    assert rig.engine.unsaved_health == type(unsaved)(changes=())


def open_incident() -> Incident:
    (incident,) = Incidents("prod").step([Change("payments", IS_DOWN, OLD)], START)
    return incident


def test_an_incident_that_ended_is_no_reason_to_change_the_severity_of_an_alert() -> None:
    incident = open_incident()
    rig = Rig({"rules": {"StreamsGroupDown": {"severity": "warning"}}})
    rig.restart(health=StoredHealth({}, [incident]))
    rig.cycle(0)
    rig.settings = {}
    rig.restart(health=StoredHealth({}, [replace(incident, ended_at=at(10), open_groups=())]))
    assert [alert.severity for alert in rig.engine.open_alerts] == ["warning"]
    assert rig.engine.unsaved.changed == ()
    rig.restart(health=StoredHealth({}, [incident]))
    assert [alert.severity for alert in rig.engine.unsaved.changed] == ["critical"]


def test_what_was_not_sent_to_a_sink_that_is_not_configured_any_more_is_dropped() -> None:
    rig = Rig({"group_wait": "0s"})
    rig.step(0, group("FAILED", -3600))
    rig.save()
    ((key, alert),) = rig.table.items()
    accepted = Delivery("mail", FIRING, START, 1)
    rig.table[key] = replace(alert, deliveries=(*alert.deliveries, accepted, Delivery("chat", FIRING)))
    rig.restart()
    (changed,) = rig.engine.unsaved.changed
    assert [one.sink for one in changed.deliveries] == [PAGER, "mail"]
    rig.save()
    rig.restart()
    assert rig.engine.unsaved.changed == ()


def test_a_repetition_for_a_sink_that_needs_it_is_noted_and_nothing_that_was_resolved_and_sent_is_kept() -> None:
    rig = Rig({"group_wait": "0s", "repeat_after": "1h"})
    rig.cycle(0, group("FAILED", -3600))
    rig.cycle(3_600, group("FAILED", -3600))
    assert rig.sent == [(FIRING, "payments")] * 2
    (alert,) = rig.table.values()
    assert [(one.event, one.repeat, one.sent_at) for one in alert.deliveries] == [(FIRING, 1, at(3_600))]
    rig.cycle(3_700, group(since=3_700))
    assert rig.sent[2:] == [(RESOLVED, "payments")]
    (alert,) = rig.table.values()
    assert all(one.sent_at for one in alert.deliveries)
    assert rig.engine._tracked == {}  # else a year of alerts stays in memory
    rig.restart()
    rig.cycle(3_800, group(since=3_700))
    assert len(rig.sent) == 3
    assert rig.engine._tracked == {}


def test_what_comes_of_a_task_is_kept_by_the_engine_that_goes_on() -> None:
    rig = Rig({"group_wait": "0s"})
    rig.step(0, group("FAILED", -3600))
    rig.engine.queue(0)
    rig.send(0, Failure("down"))
    rig.send(1, Failure("down"))
    rig.save()
    rig.step(2, group("FAILED", -3600, "other"), group("FAILED", -3600))
    (alert,) = (one for one in rig.engine.open_alerts if one.group_id == "payments")
    assert [one.attempts for one in alert.deliveries] == [2]
    rig.step(3, group(since=3), group("FAILED", -3600, "other"))
    (row_,) = (one for one in rig.engine.unsaved.changed if one.group_id == "payments")
    assert [(one.event, one.attempts) for one in row_.deliveries] == [(FIRING, 2), (RESOLVED, 0)]


def test_new_groups_beyond_the_limits_are_counted_as_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "NEWCOMER_STEPS", 2)
    rig = Rig()
    seen = {f"new-{n:03}": at(n - 3600) for n in range(103)}
    new = [replace(group(group_id=one), set_aside_reason="x", first_seen_at=when) for one, when in seen.items()]
    rig.step(0, *new, group("FAILED", -3600, "old"))
    assert rig.engine.newcomers_left_out == {"alerts": 3, "verdicts": 101}
    alerted = {alert.group_id for alert in rig.engine.open_alerts}
    assert alerted == {"old", *(f"new-{n:03}" for n in range(100))}
    rig.step(5, group("FAILED", -3600, "old"))
    assert rig.engine.newcomers_left_out == {"alerts": 0, "verdicts": 0}


def test_what_is_about_new_groups_with_alerts_is_sent_after_everything_else() -> None:
    rig = Rig({"group_wait": "0s"})
    new = [replace(group("FAILED", -3600, name), first_seen_at=at(-age)) for name, age in (("b", 60), ("a", 3600))]
    rig.cycle(0, *new, group("FAILED", -3600, "z"))
    assert [name for _, name in rig.sent] == ["z", "a", "b"]
