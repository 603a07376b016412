"""The engine as a whole: what is observed reaches the rules, and no restart loses or doubles a notification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import FIRING, RESOLVED
from streaming_app.alerts.engine import NO_HEALTH, StoredHealth
from streaming_app.alerts.outbox import Failure
from streaming_app.alerts.survey import DescriptionSupport, LostDescription
from streaming_app.groups.copies_status import next_status
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.health.board import Change
from streaming_app.health.history import Assignment, GroupHistory
from streaming_app.health.incidents import Incidents
from streaming_app.health.verdict import Verdict
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.lag.group_lag import group_lags
from streaming_app.lag.model import GroupTasks
from streaming_app.lag.work import observe_work
from tests.alerts.engine_rig import FAILED, OLD, START, Rig, at, group
from tests.support.lag_harness import row


def uncopied() -> Any:
    actives = [
        TaskCopy("payments", f"m-{one}", one, f"host-{one}", "active", "0", number, stateful=True, lag=None)
        for number, one in enumerate("ab")
    ]
    return next_status(actives, 1, None, OLD)


def lag(status: str, **fields: Any) -> Any:
    one = row(status=status, status_since=OLD.timestamp(), lost_offsets=700, **fields)
    return group_lags([one], {}, START.timestamp())


def lost(group_id: str = "payments") -> Any:
    one = row(group_id=group_id, status="LOST", status_since=OLD.timestamp(), lost_offsets=700, **TASK)
    return observe_work([one], {}, {}, START.timestamp())


TASK = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m", "process_id": "p", "client_host": "10.0.0.1"}
JOB = JobStatus(START, caught_up=True)
DIFFERING = DifferingGroup("payments", OLD, 1, (("state", "Stable is not Empty"),))
LOST = LostDescription("payments", "NOT_STORED", 0, OLD)
STORM = {
    "payments": GroupHistory(assignments=[Assignment(at(number - 500), number, "unknown") for number in range(500)])
}


@pytest.mark.parametrize(
    ("observed", "rule"),
    [
        ({"job": replace(JOB, failing_since=OLD, failure="the query ended")}, "StreamsGroupsJobStopped"),
        ({"differing_groups": (DIFFERING,)}, "StreamsGroupsSelfCheckFailed"),
        ({"copies": (uncopied(),)}, "StreamsGroupTaskWithoutCopy"),
        ({"lag": lag("REWOUND", **TASK)}, "StreamsGroupOffsetsRewound"),
        ({"work": lost()}, "StreamsGroupLosing"),
        ({"histories": STORM}, "StreamsGroupUnstable"),
        ({"lost_descriptions": [LOST]}, "StreamsGroupDescriptionLost"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_everything_that_is_observed_reaches_its_rules(observed: dict[str, Any], rule: str) -> None:
    rig = Rig()
    rig.step(0, group(since=-90), job=JOB)
    assert rig.open_rules() == set()
    rig.step(5, group(since=-90), **observed)
    assert rig.open_rules() == {rule}


def test_lag_of_groups_of_other_types_counts_where_the_settings_say_so() -> None:
    for lag_of_all_groups, rules in ((False, set()), (True, {"StreamsGroupLosing"})):
        rig = Rig(lag_of_all_groups=lag_of_all_groups)
        rig.step(0, group(), work=lost("other"))
        assert rig.open_rules() == rules


def test_what_is_not_known_leaves_alerts_as_they_are() -> None:
    rig = Rig()
    rig.step(0, group(), lag=lag("REWOUND", **TASK), copies=(uncopied(),))
    before = rig.engine.open_alerts
    rig.step(60, group(), lag=None, copies=None)
    assert rig.engine.open_alerts == before != ()
    rig.step(120, group())
    assert rig.engine.open_alerts == ()


def test_before_the_job_has_caught_up_nothing_about_groups_fires() -> None:
    rig = Rig()
    rig.step(0, group("FAILED", -3600), job=replace(JOB, caught_up=False))
    assert rig.engine.open_alerts == ()
    rig.step(5, group("FAILED", -3600), job=JOB)
    assert rig.open_rules() == {FAILED}


def test_a_missing_description_counts_where_the_cluster_keeps_descriptions() -> None:
    undescribed = replace(
        group(since=-9e6),
        description_status="NEVER_STORED",
        stored_description_epoch=-1,
        first_described_at=None,
        solicitable=True,
    )
    for mode, rules in (("never", set()), ("always", {"StreamsGroupDescriptionMissing"})):
        rig = Rig(descriptions=DescriptionSupport(mode))  # type: ignore[arg-type]
        rig.step(0, undescribed)
        assert rig.open_rules() == rules


def test_nothing_is_due_before_queue_is_called() -> None:
    rig = Rig({"group_wait": "0s"})
    rig.step(0, group("FAILED", -3600))
    rig.send(0)
    assert rig.sent == []
    rig.engine.queue(0)
    rig.send(0)
    assert rig.sent == [(FIRING, "payments")]


def test_alerts_of_one_rule_wait_for_each_other_and_for_the_interval() -> None:
    rig = Rig({"group_wait": "10s", "group_interval": "60s"})
    broken = [group("FAILED", -3600, name) for name in ("a", "b", "c")]
    rig.cycle(0, *broken[:2])
    rig.cycle(5, *broken[:2])
    assert rig.sent == []
    rig.cycle(10, *broken)
    assert rig.sent == [(FIRING, "a"), (FIRING, "b"), (FIRING, "c")]
    rig.cycle(15, *broken, group("FAILED", -3600, "d"))
    rig.cycle(65, *broken, group("FAILED", -3600, "d"))
    assert len(rig.sent) == 3
    rig.cycle(70, *broken, group("FAILED", -3600, "d"))
    assert rig.sent[3:] == [(FIRING, "d")]


def test_a_muted_alert_is_due_when_its_mute_ends_also_after_a_restart() -> None:
    rig = Rig({"group_wait": "0s"})
    broken = group("FAILED", -3600)
    rig.cycle(0, broken, is_muted=lambda alert: alert.group_id == "payments")
    rig.cycle(5, broken, group("FAILED", -3600, "other"), is_muted=lambda alert: alert.group_id == "payments")
    assert rig.sent == [(FIRING, "other")]
    rig.restart(lambda alert: alert.group_id == "payments")
    rig.cycle(10, broken, group("FAILED", -3600, "other"), is_muted=lambda alert: alert.group_id == "payments")
    assert rig.sent == [(FIRING, "other")]
    rig.cycle(70, broken, group("FAILED", -3600, "other"))
    assert rig.sent == [(FIRING, "other"), (FIRING, "payments")]


def test_a_failed_attempt_is_stored_and_repeated_after_a_pause() -> None:
    rig = Rig({"group_wait": "0s"})
    rig.step(0, group("FAILED", -3600))
    rig.engine.queue(0)
    rig.send(0, Failure("down"))
    rig.save()
    (alert,) = rig.table.values()
    assert [(one.attempts, one.error, one.sent_at) for one in alert.deliveries] == [(1, "down", None)]
    rig.send(0.5)
    assert rig.sent == []
    rig.send(1)
    assert rig.sent == [(FIRING, "payments")]


def test_a_row_that_changed_while_it_was_stored_is_still_unsaved() -> None:
    rig = Rig({"group_wait": "0s"})
    rig.step(0, group("FAILED", -3600))
    storing = rig.engine.unsaved
    rig.engine.queue(0)
    rig.send(0)
    rig.engine.saved(storing)
    (alert,) = rig.engine.unsaved.changed
    assert [one.sent_at for one in alert.deliveries] == [at(0)]


KILLS: dict[str, Sequence[Callable[[Rig, float], None]]] = {
    "after step": (),
    "after save": (lambda rig, _: rig.save(),),
    "after queue": (lambda rig, _: rig.save(), lambda rig, now: rig.engine.queue(now)),
    "after all": (
        lambda rig, _: rig.save(),
        lambda rig, now: rig.engine.queue(now),
        lambda rig, now: rig.send(now),
        lambda rig, _: rig.save(),
    ),
}
"""By where the process dies, what it did before, after the step."""


@pytest.mark.parametrize(
    ("name", "known"),
    [("lost_descriptions", [LOST]), ("copies", (uncopied(),))],
)
def test_what_the_brokers_have_not_been_asked_since_a_restart_keeps_its_alert(name: str, known: Any) -> None:
    rig = Rig()
    rig.cycle(0, group(since=-90), **{name: known})
    (rule,) = rig.open_rules()
    rig.restart()
    rig.cycle(5, group(since=-90), **{name: None})
    assert rig.open_rules() == {rule}
    rig.cycle(10, group(since=-90))
    assert rig.open_rules() == set()


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(["CURRENT", "FAILED"]), st.sampled_from(["lives", *KILLS]), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_no_kill_at_any_point_loses_or_doubles_a_notification(steps: list[tuple[str, str, int]]) -> None:
    """The same states, stepped with kills and without, give the same alerts in the table and to the pager."""
    settings = {"group_wait": "0s", "group_interval": "0s", "rules": {FAILED: {"for": "60s"}}}
    killed, steady = Rig(settings), Rig(settings)
    state, since = "Stable", -3600.0
    for number, (wanted, kill, idle) in enumerate(steps):
        begin = 600.0 * number
        if wanted != state:
            state, since = wanted, begin
        for now in (begin + 5 * idle, begin + 120, begin + 125):
            steady.cycle(now, group(state, since))
            if kill != "lives" and now == begin + 120:
                killed.step(now, group(state, since))
                for done in KILLS[kill]:
                    done(killed, now)
                killed.restart()
                killed.cycle(now, group(state, since))
            else:
                killed.cycle(now, group(state, since))
    assert killed.sent == steady.sent
    assert killed.table == steady.table
    assert all(event in {FIRING, RESOLVED} for event, _ in killed.sent)


def test_a_broker_that_goes_away_resolves_no_alert_about_lag() -> None:
    rig = Rig()
    tasks = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m", "committed_at": at(-3_600).timestamp()}
    known: dict[str, Any] = {}
    away = {"lag": None, "log_end_offset": None, "status": "UNKNOWN"}
    behind = {"lag": 5_000, "log_end_offset": 5_090, "behind_since": at(-3_600).timestamp(), "lag_seconds": 3_000.0}

    def pass_over(second: float, **fields: Any) -> set[str]:
        nonlocal known
        owned = GroupTasks(has_members=True)
        known = observe_work([row(**{**tasks, **fields})], {"payments": owned}, known, at(second).timestamp())
        rig.step(second, group(since=-9e6), work=known)
        rig.save()
        return {alert.rule for alert in rig.engine.open_alerts if alert.state == FIRING}

    stalled = {"StreamsGroupStalled"}
    assert pass_over(0, **behind) == stalled
    assert pass_over(30, **away) == stalled
    health = rig.engine.unsaved_health
    rig.restart(health=StoredHealth(health.verdicts, health.incidents))
    known = {}
    assert pass_over(9_000, **away) == stalled
    assert pass_over(9_030, **behind) == stalled
    assert pass_over(9_060, lag=0, log_end_offset=5_090, committed_offset=5_090) == set()


_STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from(["a", "b", "c"])), st.sampled_from(["lives", "restarts", "is ended"])),
    min_size=1,
    max_size=8,
)


@given(steps=_STEPS)
def test_what_fires_of_verdicts_is_what_is_open_in_incidents(
    steps: Sequence[tuple[set[str], str]],
) -> None:
    rig, health, ended = Rig(), NO_HEALTH, {}
    incidents: dict[str, Any] = {}
    for number, (losing, then) in enumerate(steps):
        second = 400.0 * number
        work = {name: lost(name)[name] for name in losing} | {
            name: observe_work([row(group_id=name, lag=0, **TASK)], {}, {}, at(second).timestamp())[name]
            for name in {"a", "b", "c"} - losing
        }
        groups = [group(group_id=name, since=-9e6) for name in "abc"]
        rig.cycle(second, *groups, work=work, ended=ended)
        unsaved = rig.engine.unsaved_health
        incidents |= {one.incident_id: one for one in unsaved.incidents}
        health = StoredHealth({**health.verdicts, **unsaved.verdicts}, tuple(incidents.values()))
        firing = {one.incident_id: one.group_id for one in rig.table.values() if one.state == FIRING}
        opened = {one.incident_id: one.groups[0] for one in incidents.values() if one.ended_at is None}
        assert firing == opened == {one.incident_id: one.groups[0] for one in rig.engine.incidents}
        if then == "restarts":
            rig.restart(health=health)
        if then == "is ended" and opened:
            ended |= {next(iter(opened)): "retired"}


def test_a_severity_or_a_rule_that_was_changed_while_the_job_was_away_pages_nobody_and_says_why_it_ends() -> None:
    def rules(**settings: Any) -> dict[str, Any]:
        return {"rules": {"StreamsGroupDown": settings}}

    (incident,) = Incidents("prod").step([Change("payments", Verdict("Down", OLD, OLD, "why", "critical"), OLD)], START)
    rig = Rig(settings=rules(severity="warning"))
    rig.restart(health=StoredHealth({}, [incident]))
    rig.cycle(0)
    rig.cycle(30)
    rig.settings = rules(severity="critical")
    rig.restart(health=StoredHealth({}, [incident]))
    rig.cycle(60)
    rig.send(119)
    (alert,) = rig.table.values()
    assert alert.summary == "payments is Down: why"
    assert "groups" not in alert.details
    assert (alert.severity, alert.details["was"]) == ("critical", ["StreamsGroupDown warning"])
    assert rig.sent == [("firing", "payments")]
    rig.settings = rules(enabled=False)
    rig.restart(health=StoredHealth({}, [incident]))
    rig.cycle(120)
    rig.send(180)
    (alert,) = rig.table.values()
    assert (alert.state, alert.details["ended"]) == (
        "resolved",
        "the configuration does not enable this rule any more",
    )
    assert rig.sent == [("firing", "payments"), ("resolved", "payments")]


def test_what_the_facts_made_worse_while_the_job_was_away_is_notified_again() -> None:
    incidents = Incidents("prod")
    verdict = Verdict("Stalled", OLD, OLD, "why", "warning")
    (stored,) = incidents.step([Change("payments", verdict, OLD)], START)
    rig = Rig()
    rig.restart(health=StoredHealth({}, [stored]))
    rig.cycle(0)
    rig.cycle(30)
    (worse,) = incidents.step([Change("payments", replace(verdict, severity="critical"), START)], START)
    rig.restart(health=StoredHealth({}, [stored]))
    rig.engine._incidents = Incidents("prod", [worse])  # as a step with new facts makes it
    rig.cycle(60)
    rig.send(120)
    assert rig.sent == [("firing", "payments")] * 2


def test_an_incident_fires_for_each_of_its_groups_whose_rule_is_on() -> None:
    missing = {"reason": "MISSING_SOURCE_TOPICS: Source topics orders are missing."}
    bad = [Change(name, Verdict("Down", OLD, OLD, "why", "critical", missing), OLD) for name in ("a", "b")]
    (incident,) = [one for one in Incidents("prod").step(bad, START) if one.groups == ("a", "b")]
    off = {"groups": "a", "rules": {"StreamsGroupDown": {"enabled": False}}}
    rig = Rig(settings={"overrides": [off]})
    rig.restart(health=StoredHealth({}, [incident]))
    rig.cycle(0)
    (alert,) = rig.table.values()
    assert (alert.incident_id, alert.group_id) == (incident.incident_id, "b")
    assert (alert.details["cause"], alert.details["scope"]) == ("missing_topic", "orders")
    assert alert.summary.startswith("b is Down")
