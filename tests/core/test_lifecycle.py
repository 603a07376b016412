"""From finding to notification: each turn of an alert's life, and random lives with restarts and clocks that jump."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_app.core.alert import FIRING, PENDING, RESOLVED, AlertKey, Delivery, Finding
from streaming_app.core.lifecycle import Book, Manner, Step
from streaming_app.core.rule import Terms
from tests.core.desk import DUE, KEY, SINKS, TERMS, Desk, at


def states(step: Step) -> list[str]:
    return [alert.state for alert in step.changed]


def test_an_alert_is_pending_fires_after_its_grace_and_is_resolved() -> None:
    desk = Desk()
    assert states(desk.look(10, since=0)) == [PENDING]
    assert states(desk.look(299, since=0)) == []
    (fired,) = desk.look(300, since=0).changed
    assert (fired.state, fired.severity, fired.pending_since, fired.opened_at) == (FIRING, "critical", at(0), at(300))
    assert fired.deliveries == DUE
    assert states(desk.look(305, since=0)) == []
    (ended,) = desk.look(310).changed
    assert (ended.state, ended.opened_at, ended.resolved_at) == (RESOLVED, at(300), at(310))
    assert ended.deliveries == (*DUE, Delivery("mail", RESOLVED), Delivery("chat", RESOLVED))
    assert not desk.book.open
    assert len(desk.alerts) == 1


def test_what_has_held_for_longer_than_the_grace_fires_at_once() -> None:
    (fired,) = Desk().look(1000, since=0).changed
    assert (fired.state, fired.opened_at) == (FIRING, at(1000))


def test_what_ends_while_pending_leaves_the_table_and_tells_nobody() -> None:
    desk = Desk()
    desk.look(10, since=0)
    step = desk.look(20)
    assert (states(step), len(step.gone), desk.alerts) == ([], 1, [])


def test_a_condition_that_began_anew_between_two_looks_has_its_grace_anew() -> None:
    desk = Desk()
    desk.look(10, since=0)
    step = desk.look(1000, since=900)
    assert states(step) == [PENDING]
    assert [alert.pending_since for alert in desk.alerts] == [at(900)]
    assert states(desk.look(1200, since=900)) == [FIRING]


def test_a_finding_that_does_not_know_since_when_has_held_since_it_was_first_seen() -> None:
    desk = Desk()
    for second in range(0, 300, 50):
        desk.look(second, since=second)
    assert [alert.state for alert in desk.alerts] == [PENDING]
    desk.restart()
    assert states(desk.look(300, since=300)) == [FIRING]


def test_a_new_summary_is_written_and_told_nobody() -> None:
    desk = Desk()
    desk.look(300, since=0, said="one topic is missing")
    desk.sent(301, *SINKS)
    (alert,) = desk.look(305, since=0, said="two topics are missing").changed
    assert alert.summary == "two topics are missing"
    assert {delivery.event for delivery in alert.deliveries} == {FIRING}
    assert all(delivery.sent_at for delivery in alert.deliveries)


def test_changed_settings_count_for_open_alerts() -> None:
    desk = Desk()
    desk.look(300, since=0)
    desk.terms[KEY.rule] = Terms("info", 9999.0, {})
    (alert,) = desk.look(305, since=0).changed
    assert (alert.state, alert.severity, alert.deliveries) == (FIRING, "info", DUE)
    del desk.terms[KEY.rule]
    assert states(desk.look(310, since=0)) == [RESOLVED]


def test_nothing_happens_before_the_job_has_caught_up_but_it_may_say_that_it_stands_still() -> None:
    desk = Desk()
    desk.look(10, since=0)
    desk.look(600, since=0, key=AlertKey("StreamsGroupEmpty", "other"))
    before = desk.book
    desk.restart()
    assert desk.look(700, caught_up=False) == Step(before)
    assert desk.look(700, since=0, caught_up=False) == Step(before)
    stopped = AlertKey("StreamsGroupsJobStopped", None)
    assert states(desk.look(700, since=0, key=stopped, caught_up=False)) == [FIRING]
    assert states(desk.look(800, caught_up=False)) == [RESOLVED]
    assert desk.book.open == before.open


def test_an_alert_that_came_and_went_in_an_instant_is_not_overwritten_by_the_next() -> None:
    desk = Desk()
    stopped = AlertKey("StreamsGroupsJobStopped", None)
    for since in (0, None, -1, None):  # at one instant, to which the clock was set back
        desk.look(0, since=since, key=stopped)
    desk.look(1, since=-1, key=stopped)
    assert [alert.state for alert in desk.alerts] == [RESOLVED, FIRING]


def test_after_a_resolution_grace_begins_anew_though_the_time_is_the_old_one() -> None:
    desk = Desk()
    desk.look(300, since=0)
    desk.look(400)
    desk.restart()
    (alert,) = desk.look(410, since=0).changed
    assert (alert.state, alert.pending_since) == (PENDING, at(400) + timedelta(microseconds=1))
    assert states(desk.look(701, since=0)) == [FIRING]
    assert len(desk.alerts) == 2


def test_an_alert_may_be_kept_firing_over_a_gap_even_if_the_job_restarts_in_it() -> None:
    desk = Desk(Manner(SINKS, keep_firing_for=60))
    desk.look(300, since=0)
    (lingering,) = desk.look(310).changed
    assert (lingering.state, lingering.details) == (FIRING, {"cleared_at": at(310).isoformat()})
    desk.restart()
    assert states(desk.look(360)) == []
    assert states(desk.look(365, since=362)) == [FIRING]
    assert "cleared_at" not in desk.alerts[0].details
    desk.look(400)
    desk.restart()
    assert states(desk.look(459)) == []
    assert states(desk.look(460)) == [RESOLVED]
    assert len(desk.alerts[0].deliveries) == 4


def test_a_resolution_goes_to_the_sinks_that_were_told_of_the_firing_and_are_still_there() -> None:
    desk = Desk()
    desk.look(300, since=0)
    desk.manner = Manner(("chat", "pager"))
    (alert,) = desk.look(310).changed
    assert alert.deliveries == (*DUE, Delivery("chat", RESOLVED))


def test_a_resolution_follows_a_firing_that_was_not_sent_yet() -> None:
    desk = Desk()
    desk.look(300, since=0)
    desk.sent(301, "mail")
    (alert,) = desk.look(310).changed
    assert [(one.sink, one.event) for one in alert.deliveries if not one.sent_at] == [
        ("chat", FIRING),
        ("mail", RESOLVED),
        ("chat", RESOLVED),
    ]


def test_firing_is_told_again_only_if_asked_and_only_after_it_was_sent() -> None:
    desk = Desk(Manner(SINKS, repeat_after=3600))
    desk.look(300, since=0)
    desk.sent(300, "mail")
    assert states(desk.look(3899, since=0)) == []
    (alert,) = desk.look(3900, since=0).changed
    assert alert.deliveries == (Delivery("mail", FIRING, repeat=1), Delivery("chat", FIRING))
    desk.sent(3901, "mail")
    desk.restart()
    assert states(desk.look(7000, since=0)) == []
    desk.manner = Manner(("chat",), repeat_after=3600)
    assert states(desk.look(99999, since=0)) == []
    desk.manner = Manner(SINKS)
    assert states(desk.look(99999, since=0)) == []


def test_an_alert_whose_condition_has_ended_is_not_told_again() -> None:
    desk = Desk(Manner(SINKS, keep_firing_for=3600, repeat_after=60))
    desk.look(300, since=0)
    desk.sent(300, *SINKS)
    desk.look(310)
    assert states(desk.look(900)) == []


def test_a_clock_that_jumps_back_neither_fires_nor_resolves() -> None:
    desk = Desk(Manner(SINKS, repeat_after=10))
    desk.look(100, since=90)
    assert all(state == PENDING for state in states(desk.look(-5000, since=90)))
    assert [alert.state for alert in desk.alerts] == [PENDING]
    assert states(desk.look(-4700, since=90)) == [FIRING]
    desk.sent(-4700, *SINKS)
    assert states(desk.look(-9000, since=90)) == []
    (ended,) = desk.look(-9000).changed
    assert (ended.opened_at, ended.resolved_at) == (at(-4700), at(-4700))


def test_a_gap_is_counted_anew_by_a_clock_that_jumped_back_in_it() -> None:
    desk = Desk(Manner(SINKS, keep_firing_for=60))
    desk.look(300, since=0)
    desk.look(310)
    assert states(desk.look(-5000)) == [FIRING]
    assert states(desk.look(-4941)) == []
    assert states(desk.look(-4940)) == [RESOLVED]


def test_a_time_ahead_of_the_clock_counts_as_now() -> None:
    desk = Desk()
    desk.look(0, since=86400)
    assert states(desk.look(299, since=86400)) == []
    assert states(desk.look(300, since=86400)) == [FIRING]


def test_what_became_of_an_alert_of_before_is_not_noted_in_the_present_one() -> None:
    desk = Desk()
    desk.look(300, since=0)
    (former,) = desk.alerts
    desk.look(310)
    desk.look(1000, since=0)
    sent = replace(former, deliveries=tuple(replace(one, sent_at=at(320)) for one in former.deliveries))
    assert desk.book.noting(sent) == desk.book
    assert desk.book.noting(replace(desk.book.open[KEY], deliveries=sent.deliveries)) != desk.book


KEYS = [KEY, AlertKey("StreamsGroupNotReady", "orders"), AlertKey("StreamsGroupEmpty", "orders")]
KEYS.append(AlertKey("StreamsGroupsJobStopped", None))
LOOKS = st.lists(
    st.tuples(
        st.integers(-400, 400) | st.integers(0, 30),  # seconds since the look before
        st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(-700, 50), st.sampled_from("xyz")), max_size=3),
        st.sampled_from(["", "mail", "mail chat"]),  # who takes what is due
        st.booleans() | st.just(True),  # noqa: FBT003 - caught up
    ),
    max_size=25,
)
MANNERS = st.builds(Manner, st.just(SINKS), st.sampled_from([0.0, 30.0, 400.0]), st.sampled_from([None, 60.0]))


@settings(deadline=None, max_examples=150)
@given(LOOKS, MANNERS, st.sets(st.integers(0, 25)))
def test_in_any_life_each_alert_is_told_once_and_restarts_change_nothing(
    looks: list[tuple[int, dict[AlertKey, tuple[int, str]], str, bool]], manner: Manner, restarts: set[int]
) -> None:
    desk, never_restarted = Desk(manner), Desk(manner)
    second = 0.0
    for number, (pause, found, takers, caught_up) in enumerate(looks):
        second += pause + 1e-6  # no two looks at quite the same time
        findings = {key: Finding(at(second + since), said) for key, (since, said) in found.items()}
        if number in restarts:
            desk.restart()
        for one in (desk, never_restarted):
            one.look_at(at(second), findings, caught_up=caught_up)
            one.sent(second, *takers.split())
        assert desk.table == never_restarted.table
        assert Book.of(desk.alerts) == desk.book
        check(desk, findings, at(second))


def check(desk: Desk, findings: dict[AlertKey, Finding], now: datetime) -> None:
    open_keys = [alert.key for alert in desk.alerts if alert.state != RESOLVED]
    assert len(open_keys) == len(set(open_keys))
    for alert in desk.alerts:
        told = Counter((one.sink, one.event) for one in alert.deliveries)
        firing, resolved = ({(sink, event): 1 for sink in SINKS} for event in (FIRING, RESOLVED))
        assert told == {PENDING: {}, FIRING: firing, RESOLVED: firing | resolved}[alert.state]
        assert (alert.opened_at is None) == (alert.state == PENDING)
        assert (alert.resolved_at is None) == (alert.state != RESOLVED)
        assert alert.opened_at is None or alert.pending_since <= alert.opened_at
        assert alert.resolved_at is None or alert.opened_at is None or alert.opened_at <= alert.resolved_at
        if alert.opened_at == now and alert.state == FIRING:
            assert alert.key in findings
            assert now - alert.pending_since >= timedelta(seconds=TERMS[alert.rule].grace)


@pytest.mark.parametrize("days", [29, 31])
def test_resolutions_are_remembered_for_a_month(days: int) -> None:
    desk = Desk()
    desk.look(300, since=0)
    desk.look(310)
    later = 310 + days * 86400
    empty = AlertKey("StreamsGroupEmpty", "other")
    desk.look(later, since=later, key=empty)
    desk.look(later + 1)
    assert (KEY in desk.book.resolved_at) == (days < 30)
