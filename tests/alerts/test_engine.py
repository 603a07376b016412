"""The engine as a whole: what is observed reaches the rules and each owner, no restart loses or doubles a message."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.engine_facts import LostDescription
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.task_copies import TaskCopy, next_status
from streaming_app.health import board
from streaming_app.health.facts import Facts
from streaming_app.health.group_history import ASSIGNED, Event, GroupHistory
from streaming_app.health.judge import judge
from streaming_app.health.verdict import GOOD, Verdict
from streaming_app.job_status import JobStatus
from streaming_app.lag.work import GroupWork
from streaming_app.notify.sink import SinkError
from tests.alerts.engine_rig import FAILED, OLD, PAGER, START, Rig, at, group
from tests.alerts.examples import make_alert
from tests.support.health_harness import waiting
from tests.support.lag_harness import row, work_of


def uncopied() -> Any:
    actives = [
        TaskCopy("payments", f"m-{one}", one, f"host-{one}", "active", "0", number, stateful=True, lag=None)
        for number, one in enumerate("ab")
    ]
    return next_status(actives, 1, None, OLD)


def lag(status: str, **fields: Any) -> Any:
    one = row(offset_status=status, offset_status_since=OLD.timestamp(), lost_offsets=700, **fields)
    return work_of([one], START.timestamp())


def lost(*group_ids: str) -> Any:
    fields = {"offset_status": "LOST", "offset_status_since": OLD.timestamp(), "lost_offsets": 700}
    return work_of([row(group_id=one, **fields, **TASK) for one in group_ids], START.timestamp())


TASK = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m", "process_id": "p", "client_host": "10.0.0.1"}
JOB = JobStatus(START, caught_up=True)
LOST = LostDescription("NOT_STORED", 0, OLD)


def storm() -> dict[str, GroupHistory]:
    return {
        "payments": GroupHistory(
            assignments=[Event(at(number - 500), number, ASSIGNED, cause="unknown") for number in range(500)]
        )
    }


@pytest.mark.parametrize(
    ("observed", "rule"),
    [
        ({"job": replace(JOB, failing_since=OLD, failure="the query ended")}, "StreamsGroupsJobStopped"),
        ({"copies": {"payments": uncopied()}}, "StreamsGroupStandbyBehind"),
        ({"work": lag("REWOUND", **TASK)}, "StreamsGroupOffsetsRewound"),
        ({"work": lost("payments")}, "StreamsGroupLosing"),
        ({"histories": storm()}, "StreamsGroupUnstable"),
        ({"lost_descriptions": {"payments": LOST}}, FAILED),
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


def of_classic(state: str = "Empty", **fields: Any) -> GroupSnapshot:
    members = 0 if state == "Empty" else 2
    values = {"group_type": "classic", "protocol": "classic", "state": state, "state_since": at(-900)}
    return replace(group("NO_TOPOLOGY"), **values, member_count=members, **fields)


def waits(seconds: float) -> dict[str, GroupWork]:
    return {"payments": waiting(at(-900), at(seconds))}


ON, OFF = {"protocols": "all"}, {"protocols": "streams"}


def test_a_classic_group_has_a_verdict_always_and_alerts_only_if_the_settings_say_so() -> None:
    aside = {"set_aside_reason": "too many tasks", "set_aside_at": at(-60)}
    for settings, rules, severity in (
        (OFF, set(), None),
        (ON, {"StreamsGroupDown", "StreamsGroupSetAside"}, "critical"),
    ):
        rig = Rig(settings)
        rig.step(0, of_classic(**aside), work=waits(0))
        found = rig.engine.board.verdicts()["payments"]
        assert (rig.open_rules(), found.verdict, found.severity) == (rules, "Down", severity)


@pytest.mark.parametrize("name", ["StreamsGroupOffsetsRewound", "StreamsGroupStandbyBehind"])
def test_what_is_observed_of_a_classic_group_is_no_alert_unless_the_settings_say_so(name: str) -> None:
    observed = {"copies": {"payments": uncopied()}, "work": lag("REWOUND", **TASK)}
    for settings, is_open in ((OFF, False), (ON, True)):
        rig = Rig(settings)
        for seconds in (0, 1000):
            rig.step(seconds, of_classic("Unknown"), **observed)
        assert (name in rig.open_rules()) == is_open


def test_a_classic_group_that_is_deleted_while_it_waits_for_members_is_no_alert_without_the_setting() -> None:
    for settings, rules in ((OFF, set()), (ON, {"StreamsGroupDown"})):
        rig, young = Rig(settings), {"state_since": at(-60)}
        rig.cycle(0, replace(of_classic(), **young), work=waits(0))
        rig.restart()  # the job was away when the group was deleted
        rig.cycle(1000, group(group_id="other"), work={})
        assert (rig.verdicts["payments"].verdict, rig.open_rules()) == ("Down", rules)


def test_open_alerts_of_rules_that_went_are_resolved_and_pending_ones_are_removed() -> None:
    rules = ["StreamsGroupTaskSkew", "StreamsGroupsFlood"]
    sent = (Delivery(PAGER, FIRING, START, 1),)
    fired = make_alert(severity="warning", since=OLD, opened_at=OLD, deliveries=sent)
    pending = replace(fired, group_id="other", opened_at=None, deliveries=())
    rig = Rig()
    alerts = [replace(one, rule=rule, alert_id=f"{rule} {one.group_id}") for one in (fired, pending) for rule in rules]
    rig.table = {one.alert_id: one for one in alerts}
    rig.restart()
    rig.cycle(0, group(since=-90))
    assert [(one.rule, one.state, one.group_id) for one in rig.table.values()] == [
        (rule, RESOLVED, "payments") for rule in rules
    ]
    assert set(rig.sent) == {(RESOLVED, "payments")}
    assert rig.alerts == ()


def test_a_row_that_changed_while_it_was_stored_is_still_unsaved() -> None:
    rig = Rig()
    rig.step(0, group("FAILED", -3600))
    storing = rig.engine.lifecycle.unsaved
    rig.engine.lifecycle.publish()
    rig.send(0)
    rig.engine.lifecycle.saved(storing)
    (alert,) = rig.engine.lifecycle.unsaved
    assert [one.sent_at for one in alert.deliveries] == [at(0)]


KILLS: dict[str, Sequence[Callable[[Rig, float], None]]] = {
    "after step": (),
    "after save": (lambda rig, _: rig.save(),),
    "after queue": (lambda rig, _: rig.save(), lambda rig, _: rig.engine.lifecycle.publish()),
    "after all": (
        lambda rig, _: rig.save(),
        lambda rig, _: rig.engine.lifecycle.publish(),
        lambda rig, now: rig.send(now),
        lambda rig, _: rig.save(),
    ),
}
"""By where the process dies, what it did before, after the step."""


@pytest.mark.parametrize(
    ("name", "known"), [("lost_descriptions", {"payments": LOST}), ("copies", {"payments": uncopied()})]
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
    settings = {"rules": {FAILED: {"for": "60s"}}}
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


LATE = 120.0
READ = JobStatus(OLD, caught_up=True, caught_up_at=START)


@pytest.mark.parametrize(
    ("job", "is_judged"),
    [
        pytest.param(None, True, id="no job"),
        pytest.param(replace(READ, caught_up_at=at(-LATE)), True, id="read two minutes ago"),
        pytest.param(replace(READ, caught_up_at=at(-LATE - 1)), False, id="read longer ago"),
        pytest.param(replace(READ, caught_up_at=at(30)), True, id="the clock was set back"),
        pytest.param(replace(READ, caught_up=False), False, id="not caught up since the start"),
        pytest.param(replace(READ, caught_up_at=None), False, id="no time yet"),
    ],
)
def test_groups_are_judged_by_records_that_are_read_up_to_now(job: JobStatus | None, is_judged: bool) -> None:
    rig = Rig()
    rig.step(0, group(), job=job, work=lost("payments"))
    verdicts = {name: one.verdict for name, one in rig.engine.board.verdicts().items()}
    assert verdicts == ({"payments": "Losing"} if is_judged else {})
    assert [one.group_id for one in rig.engine.unsaved_changes] == ["payments"] * is_judged
    assert (rig.engine.alert_with("payments") is not None) == is_judged


def down(seconds: float, offsets: int) -> dict[str, GroupWork]:
    """Return the work of a group without members; of so many offsets its verdict says why it is bad."""
    fields: dict[str, Any] = {"partitions": 12, "has_commits": True, "waiting": 12, "waits_since": at(10).timestamp()}
    return {"payments": GroupWork("payments", at(seconds).timestamp(), offsets=offsets, **fields)}


EMPTY = replace(group(), state="Empty", state_since=START, member_count=0)


def test_an_alert_whose_end_could_not_be_stored_before_a_kill_ends_at_the_next_start() -> None:
    rig = Rig()
    rig.cycle(0, group(), work=lost("payments"))
    opened = dict(rig.table)
    well = work_of([row(lag=0)], at(9_000).timestamp())
    rig.cycle(9_000, group(), work=well)
    verdict = rig.verdicts["payments"]
    ended_at = verdict.at
    assert verdict.verdict in GOOD
    rig.table = opened
    rig.restart()
    rig.cycle(9_060, group(), work=well)
    (one,) = rig.table.values()
    assert (one.state, one.ended_at, one.ended_by) == (RESOLVED, ended_at, "evidence")


def test_an_alert_that_was_stored_when_its_verdict_could_not_be_does_not_end_by_the_verdict_before() -> None:
    rig = Rig()
    well = work_of([row(lag=0)], at(0).timestamp())
    rig.cycle(0, group(), work=well)
    before = dict(rig.verdicts)
    assert before["payments"].verdict in GOOD
    rig.cycle(400, EMPTY, work=down(400, 200))
    assert rig.open_rules() == {"StreamsGroupDown"}
    rig.verdicts = before
    rig.restart()
    rig.cycle(460, group(), work=None)
    assert rig.verdicts == before
    assert [one.state for one in rig.alerts] == [FIRING]


def test_an_alert_with_health_that_an_older_release_left_pending_opens_at_the_start() -> None:
    rig = Rig()
    rig.cycle(400, EMPTY, work=down(400, 200))
    (fired,) = rig.table.values()
    rig.table = {fired.alert_id: replace(fired, opened_at=None, timeline=(), deliveries=())}
    rig.received.clear()
    rig.restart()
    rig.cycle(500, EMPTY, work=down(500, 200))
    (one,) = rig.table.values()
    assert (rig.sent, one.opened_at) == ([(FIRING, "payments")], at(500))
    assert one.alert_id != fired.alert_id  # the older release may have given it the id of one that had ended


def test_what_is_about_new_groups_with_alerts_is_sent_after_everything_else() -> None:
    rig = Rig()
    new = [replace(group("FAILED", -3600, name), first_seen_at=at(-age)) for name, age in (("b", 60), ("a", 3600))]
    rig.cycle(0, *new, group("FAILED", -3600, "z"))
    assert [name for _, name in rig.sent] == ["z", "a", "b"]


def not_ready(group_id: str) -> GroupSnapshot:
    reason = "MISSING_SOURCE_TOPICS: Source topics t are missing."
    return replace(group(group_id=group_id), not_ready_reason=reason, state="NotReady", state_since=at(-900))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("error", [None, SinkError("down", retry=True)], ids=["well", "down before"])
def test_a_muted_alert_is_sent_if_it_still_fires_when_the_mute_ends(error: SinkError | None, restarts: bool) -> None:
    rig, broken = Rig(), [group("FAILED", -3600), group("FAILED", -3600, "other")]

    def is_muted(one: Alert) -> bool:
        return one.group_id == "payments"

    if error:
        rig.step(0, *broken)
        rig.engine.lifecycle.publish()
        rig.send(0, error)
    rig.cycle(60, *broken, is_muted=is_muted)
    assert rig.sent == [(FIRING, "other")]
    if restarts:
        rig.restart(is_muted)
        rig.cycle(65, *broken, is_muted=is_muted)
    for second in (3600, 3605):
        rig.cycle(second, *broken)
    assert rig.sent == [(FIRING, "other"), (FIRING, "payments")]


def test_a_group_that_cannot_be_judged_is_set_aside_until_it_can_and_others_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(facts: Facts) -> Verdict:
        if facts.group.group_id == "orders" and facts.now < at(400):
            raise ZeroDivisionError("x" * 9_000)
        return judge(facts)

    monkeypatch.setattr(board, "judge", fails)
    rig, other = Rig(), not_ready("other")
    for seconds in (0, 5):
        rig.cycle(seconds, not_ready("orders"), other)
        assert {one.group_id: one.rule for one in rig.alerts} == {
            "orders": "StreamsGroupSetAside",
            "other": "StreamsGroupDown",
        }
    assert any("ZeroDivisionError: xxx" in one.summary for one in rig.alerts)
    rig.cycle(400, not_ready("orders"), other)
    assert {one.group_id: one.rule for one in rig.alerts} == dict.fromkeys(("orders", "other"), "StreamsGroupDown")
    assert (RESOLVED, "orders") in rig.sent


def test_the_patience_with_a_classic_group_is_that_of_the_settings_though_its_alerts_are_off() -> None:
    rig = Rig({"rules": {"StreamsGroupDown": {"for": "20m"}}})
    rig.step(0, of_classic(), work=waits(0))
    assert rig.engine.board.verdicts()["payments"].verdict == "Unknown"


def test_alerts_of_classic_groups_that_are_turned_off_end_and_turned_on_they_open() -> None:
    rig = Rig(ON)
    rig.cycle(0, of_classic(), work=waits(0))
    rig.settings = OFF
    rig.restart()
    rig.cycle(30, of_classic(), work=waits(30))
    assert [(one.rule, one.ended_by) for one in rig.table.values()] == [("StreamsGroupDown", "ignored")]
    rig.settings = ON
    rig.restart()
    rig.cycle(60, of_classic(), work=waits(60))
    assert [(one.state, one.opened_at) for one in rig.alerts] == [(FIRING, at(60))]
