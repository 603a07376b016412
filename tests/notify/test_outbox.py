"""What a sink is sent, together with what and when, on a clock that the test moves, whatever the sink answers.

The threads that carry it out are tested in `tests/job/test_sender.py`, all of it in `tests/job/test_alerts.py`.
"""

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import CRITICAL, FIRING, INFO, RESOLVED, WARNING, Alert, Delivery, is_old
from streaming_app.job.lag_ends import SEED_SECONDS
from streaming_app.notify.message import OLD_ALERTS, as_one, notification_id
from streaming_app.notify.outbox import Outbox
from streaming_app.notify.sink import SinkError
from tests.alerts.examples import make_alert
from tests.notify.kept import KeptAlerts, Told

START = datetime(2026, 11, 26, 3, tzinfo=timezone.utc)
PLAIN, GROUPED, MANY, RESEND = Told("chat", 1), Told("chat"), Told("chat", 3), Told("chat", 1, 60)
DOWN, REFUSED = SinkError("503", retry=True), SinkError("401", retry=False)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Sending:
    """A sink that answers at once, and what it was given: second, what, and the groups of the alerts."""

    sink: Told = PLAIN
    longest_pause: float = 300
    kept: KeptAlerts = field(default_factory=KeptAlerts)
    given: list[tuple[float, str, tuple[str | None, ...]]] = field(default_factory=list)
    accepted: list[tuple[float, str, str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    now: float = 0

    first_started_at: datetime | None = None
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.sink, self.kept, self.first_started_at)
        self.outbox.longest_pause = min(self.longest_pause, self.outbox.longest_pause)

    def offer(self, second: float, *alerts: Alert) -> None:
        self.now = second
        self.kept.put(*alerts)
        self.outbox.wakes_at = second  # its thread looks whenever an alert changes

    def run(self, second: float, failure: SinkError | None = None, poison: str = "", broken_by: str = "") -> None:
        """Give the sink all that is due; it accepts nothing with a failure, and never what has one of the groups."""
        self.now = second
        while sent := self.outbox.take(second):
            groups = tuple(alert.group_id for alert in sent.content)
            self.texts += [one.summary for one in sent.content if one.rule == OLD_ALERTS]
            self.given.append((second, sent.event if sent.deliveries else "again", groups))
            answer = REFUSED if poison in groups else DOWN if broken_by in groups else failure
            if answer is None and sent.deliveries:
                self.accepted += ((second, one.rule, str(one.group_id), sent.event) for one in sent.alerts)
            line = self.outbox.answered(sent, answer, at(second), second)
            self.lines += [line] if line else []

    def run_until(self, second: float, *failure: SinkError, **groups: str) -> None:
        """Run whenever the outbox says that it has something, until this time."""
        while (now := self.outbox.wakes_at) <= second:
            self.run(max(now, self.now), *failure, **groups)

    @property
    def times(self) -> list[float]:
        return [second for second, _, _ in self.given]


def of(group_id: str, **other: Any) -> Alert:
    rule = other.setdefault("rule", "not-ready")
    return make_alert("chat", alert_id=f"{rule} {group_id}", group_id=group_id, **other)


@pytest.mark.parametrize(
    ("offers", "given"),
    [
        ([(0, "a"), (9, "bc")], [(10, "abc")]),
        ([(0, "a"), (20, "b"), (50, "c")], [(10, "a"), (70, "bc")]),
        ([(0, "ab"), (5, "a", "stuck")], [(10, "ab"), (15, "a")]),
        ([(second, "abcdefgh"[second // 10]) for second in range(0, 80, 10)], [(10, "a"), (70, "bcdefg"), (130, "h")]),
    ],
    ids=["within the wait", "then after the interval", "each rule by itself", "one after the other"],
)
def test_people_get_the_alerts_of_a_rule_together_after_a_wait_and_then_at_intervals(
    offers: list[tuple[Any, ...]], given: list[tuple[float, str]]
) -> None:
    sending = Sending(GROUPED)
    for second, groups, *rule in offers:
        sending.run_until(second)
        sending.offer(second, *(of(one, rule=rule[0] if rule else "not-ready") for one in groups))
    sending.run_until(1_000)
    assert sending.given == [(second, FIRING, tuple(groups)) for second, groups in given]


@pytest.mark.parametrize("traits", [PLAIN, MANY, GROUPED], ids=["alone", "at once", "together"])
def test_that_an_alert_is_over_is_sent_before_the_next_one_of_its_group_also_after_a_failure(traits: Told) -> None:
    sending = Sending(traits)
    sending.offer(0, of("a", resolved=True, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.run_until(10, DOWN)
    sending.offer(10, replace(of("a"), alert_id="another one"), of("b"))
    sending.run_until(1_000)
    accepted = [(group, event) for _, _, group, event in sending.accepted]
    assert accepted.index(("a", RESOLVED)) < accepted.index(("a", FIRING))
    assert sorted(accepted) == [("a", FIRING), ("a", RESOLVED), ("b", FIRING)]


def test_what_comes_while_a_notification_is_sent_waits_for_the_interval() -> None:
    sending = Sending(GROUPED)
    sending.offer(0, of("a"))
    assert sending.outbox.take(0) is None
    sent = sending.outbox.take(10)
    assert sent is not None
    sending.kept.put(of("b"))
    sending.outbox.answered(sent, None, at(12), 12)
    sending.outbox.take(12)
    sending.run_until(200)
    assert sending.given == [(72, FIRING, ("b",))]


@pytest.mark.parametrize("traits", [PLAIN, GROUPED, MANY], ids=["alone", "together", "at once"])
def test_an_alert_that_a_sink_refuses_keeps_no_other_one_from_being_sent(traits: Told) -> None:
    sending = Sending(traits)
    sending.offer(0, *map(of, "abcdefgh"))
    sending.run_until(200, poison="c")
    assert sorted(group for _, _, group, _ in sending.accepted) == list("abdefgh")
    sending.offer(200, *map(of, "xy"))
    sending.run_until(400, poison="c")
    assert sorted(group for _, _, group, _ in sending.accepted) == list("abdefghxy")
    assert sending.outbox.status.waiting == 1
    sending.run_until(1_000)
    assert sending.outbox.status.waiting == 0


def test_pauses_double_while_a_sink_fails_and_are_short_again_after_it_has_accepted_something() -> None:
    sending = Sending(longest_pause=10)
    sending.offer(0, of("a"))
    sending.run_until(40, DOWN)
    assert sending.times == [0, 1, 3, 7, 15, 25, 35]
    assert sending.outbox.wakes_at == 45
    sending.run(44.9)
    assert sending.times[-1] == 35
    sending.run(45)
    sending.offer(50, of("b"))
    sending.run_until(60, DOWN)
    assert sending.times[7:] == [45, 50, 51, 53, 57]


def test_the_operator_reads_one_line_when_a_sink_fails_and_one_when_it_works_again() -> None:
    sending = Sending()
    sending.offer(0, of("a"), of("b"))
    sending.run_until(5, DOWN)
    assert sending.lines == ["Alerts cannot be sent to chat: 503. Retrying."]
    sending.run_until(20)
    assert sending.lines[1:] == ["Alerts are sent to chat again."]
    sending.offer(30, of("c"))
    sending.run_until(30)
    sending.offer(40, of("d"))
    sending.run_until(40, REFUSED)
    assert len(sending.lines) == 3
    assert sending.lines[2] == "Alerts cannot be sent to chat: 401. Fix the cause; it is retried every few minutes."


def test_the_status_has_since_when_a_sink_fails_and_counts_what_it_accepted() -> None:
    sending = Sending()
    sending.offer(0, of("a"), of("b"))
    assert sending.outbox.status.waiting == 2
    sending.run(0, DOWN)
    sending.run(1, REFUSED)
    status = sending.outbox.status
    assert (status.sent, status.failed, status.waiting) == (0, 2, 2)
    assert (status.failing_since, status.failure) == (at(0), "503")
    sending.run_until(1_000)
    status = sending.outbox.status
    assert (status.sent, status.failed, status.waiting, status.failing_since) == (2, 2, 0, None)


SENT = (Delivery("chat", FIRING, START, 1),)


def test_what_fires_is_sent_again_at_intervals_and_that_it_is_over_for_a_quarter_of_an_hour() -> None:
    sending = Sending(RESEND)
    sending.offer(0, of("a"))
    sending.run_until(30)
    sending.offer(30, of("b"))
    sending.run_until(130)
    assert sending.given == [
        (0, FIRING, ("a",)),
        (30, FIRING, ("b",)),
        (60, "again", ("a", "b")),
        (120, "again", ("a", "b")),
    ]
    sending.offer(140, of("a", resolved=True, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.run_until(180)
    assert sending.given[4:] == [(140, RESOLVED, ("a",)), (180, "again", ("b",)), (180, "again", ("a",))]
    sending.offer(190, of("b", resolved=True, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.run_until(300)
    assert sending.given[7:] == [(190, RESOLVED, ("b",)), (240, "again", ("a", "b")), (300, "again", ("a", "b"))]
    sending.offer(310, replace(of("a"), alert_id="another one"))  # has the labels of the one that is over
    sending.run_until(400)
    assert sending.given[10:] == [(310, FIRING, ("a",)), (360, "again", ("a",)), (360, "again", ("b",))]
    sending.run_until(2_000)
    assert [groups for second, _, groups in sending.given if second > 190 + 15 * 60] == [("a",)] * 15


def test_once_it_ends_nothing_waits_for_others_and_a_sink_that_is_down_gets_nothing_before_its_pause_is_over() -> None:
    sending = Sending(GROUPED)
    sending.offer(0, of("a"))
    sending.run_until(10, DOWN)
    sending.offer(10, of("b"))
    sending.outbox.release()
    sending.run(10.5)
    assert sending.given == [(10, FIRING, ("a",))]
    sending.run(11)
    assert sending.given[1:] == [(11, FIRING, ("b", "a"))]
    assert sending.outbox.wakes_at == math.inf


OLD = {"since": START - timedelta(days=2), "opened_at": START}
SINKS = {"alone": PLAIN, "together": GROUPED, "at once": MANY, "again": Told("chat", 1, 4_000)}


@pytest.mark.parametrize("traits", SINKS.values(), ids=SINKS)
def test_open_alerts_that_are_older_than_the_job_are_one_message_that_names_them_and_others_are_sent_as_usual(
    traits: Told,
) -> None:
    sending = Sending(traits, first_started_at=START)
    sending.offer(0, *(of(f"old{number}", **OLD, rule="not-ready" if number % 2 else "lag") for number in range(300)))
    sending.offer(1, of("new", since=START - timedelta(hours=23)))
    sending.run_until(200)
    sending.offer(200, of("late", **OLD))  # the first pass takes its time
    sending.run_until(1_000)
    first, second = sending.given
    assert (first[1:], second) == ((FIRING, ("new",)), (301, FIRING, (None,)))
    (text,) = sending.texts
    assert text == (
        "301 groups have had alerts since long before the job first started (150 lag, 151 not-ready): "
        "old0, old10, old100, old102, old104 and 296 more"
    )
    assert sending.outbox.status.waiting == 0


@pytest.mark.parametrize("traits", SINKS.values(), ids=SINKS)
def test_what_was_one_message_ends_as_one_when_the_last_has_ended_and_what_becomes_worse_leaves_it(
    traits: Told,
) -> None:
    sending, over = Sending(traits, first_started_at=START), {"resolved": True, **OLD}
    sending.offer(0, *(of(one, **OLD) for one in "abc"))
    sending.run_until(400)
    sending.offer(400, of("a", **over, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.offer(400, of("b", **OLD, deliveries=(Delivery("chat", FIRING, repeat=1),)))
    sending.run_until(1_000)
    assert [one[1:] for one in sending.given] == [(FIRING, (None,)), (FIRING, ("b",)), (RESOLVED, ())]
    sending.offer(1_000, of("c", **over, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.run_until(2_000)
    assert sending.given[3:] == [(pytest.approx(1_300, abs=300), RESOLVED, (None,))]
    sending.offer(
        2_000, of("b", **over, deliveries=(Delivery("chat", FIRING, at(500), 1, None, 1), Delivery("chat", RESOLVED)))
    )
    sending.run_until(3_000)
    assert [one[1:] for one in sending.given[4:]] == [(RESOLVED, ("b",))]


def test_the_message_about_old_alerts_has_the_worst_severity_and_the_labels_that_all_have() -> None:
    team, tier = {"team": "a", "tier": "gold"}, {"team": "a", "tier": "iron"}
    worst, other = of("a", **OLD, labels=team), of("b", **OLD, severity=WARNING, labels=tier)
    one = as_one([other, worst], FIRING, "chat")
    assert (one.severity, one.labels, one.was) == (CRITICAL, {"team": "a"}, ())
    left, ended = as_one([other], FIRING, "chat"), as_one([other], RESOLVED, "chat")
    assert left.alert_id == one.alert_id == ended.alert_id
    assert notification_id(left, FIRING, "chat") != notification_id(one, FIRING, "chat"), "it is no repetition"
    assert left.was == ((OLD_ALERTS, CRITICAL),), "Alertmanager ends the alert that had it"
    assert {severity for _, severity in ended.was} == {CRITICAL, INFO}


def test_what_the_first_pass_finds_to_wait_for_longer_than_it_looks_back_is_old() -> None:
    """The pass dates what waits for days as if it had begun at the earliest time for which it asks."""
    earliest = START + timedelta(minutes=30) - timedelta(seconds=SEED_SECONDS[0])
    assert is_old(of("waits", since=earliest), first_started_at=START)


def test_a_message_about_old_alerts_that_fails_is_sent_again_with_all_and_a_restart_sends_it_not_again() -> None:
    sending = Sending(GROUPED, first_started_at=START)
    sending.offer(0, *(of(one, **OLD) for one in "ab"))
    sending.run_until(300, DOWN)
    sending.offer(300, of("c", **OLD))
    sending.run_until(1_000)
    assert sending.given == [(300, FIRING, (None,)), (301, FIRING, (None,))]
    assert [text.partition(" have")[0] for text in sending.texts] == ["2 groups", "3 groups"]
    again = Sending(GROUPED, kept=sending.kept, first_started_at=START)
    again.offer(0)
    again.run_until(10_000)
    assert again.given == []


_ANSWERS = st.sampled_from([None, None, DOWN, REFUSED])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 7.0, 70.0]),
        st.sampled_from("abcd"),
        st.sampled_from(["stuck", "lag"]),
        st.booleans(),
        _ANSWERS,
    ),
    max_size=30,
)


@given(_STEPS, st.sampled_from([PLAIN, GROUPED, MANY, RESEND]))
def test_whatever_a_sink_answers_it_accepts_each_notification_once_and_the_end_after_the_begin(
    steps: list[tuple[float, str, str, bool, SinkError | None]], traits: Told
) -> None:
    sending, offered, second = Sending(traits), dict[tuple[str, str], Alert](), 0.0
    for pause, group, rule, resolved, answer in steps:
        second += pause
        before = offered.get((rule, group))
        is_over = resolved or (before is not None and before.state == RESOLVED)
        offered[rule, group] = of(group, rule=rule, resolved=is_over)
        sending.offer(second, *offered.values())  # an evaluation may offer what waits once more
        sending.run(second, answer)
    sending.run_until(second + 4_000)
    expected = [
        (rule, group, event)
        for (rule, group), alert in offered.items()
        for event in ((FIRING, RESOLVED) if alert.state == RESOLVED else (FIRING,))
    ]
    accepted = [one[1:] for one in sending.accepted]
    assert sorted(accepted) == sorted(expected)
    for rule, group, event in expected:
        assert event == FIRING or accepted.index((rule, group, FIRING)) < accepted.index((rule, group, RESOLVED))
    assert (sending.outbox.status.waiting, sending.outbox.status.sent) == (0, len(expected))
    if traits is GROUPED and REFUSED not in {one[-1] for one in steps}:
        for key in {(rule, event) for rule, _, event in accepted}:
            times = sorted({at for at, rule, _, event in sending.accepted if (rule, event) == key})
            assert all(later - earlier >= Outbox.interval for earlier, later in pairwise(times))
