"""An outbox on a clock that the test moves: when it gives out what, and what it says of a sink that fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.notification_queue import Attempt, Grouping
from streaming_app.alerts.outbox import Answer, Backoff, Failure, Outbox, Outboxes, Resend, SinkTraits
from streaming_app.job_status import FailingSink
from tests.alerts.examples import make_alert

START = datetime(2026, 11, 26, 3, tzinfo=timezone.utc)
PLAIN = SinkTraits("chat")
DOWN, REFUSED = Failure("503"), Failure("401", retry=False)
RESEND = SinkTraits("chat", resend_seconds=60)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Sending:
    """An outbox whose sink answers at once, and what it was given: second, what, and the groups of the alerts."""

    traits: SinkTraits = PLAIN
    grouping: Grouping = field(default_factory=Grouping)
    backoff: Backoff = field(default_factory=Backoff)
    given: list[tuple[float, str, tuple[str | None, ...]]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    now: float = 0

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.traits, self.grouping, self.backoff)

    def offer(self, second: float, *alerts: Alert) -> None:
        self.now = second
        self.outbox.offer(alerts, second)

    def run(self, second: float, failure: Failure | None = None) -> None:
        """Give the sink all that is due, each of which it accepts or, with a failure, does not."""
        self.now = second
        while task := self.outbox.take(second):
            alerts = task.alerts
            what = task.event if isinstance(task, Attempt) else type(task).__name__
            self.given.append((second, what, tuple(alert.group_id for alert in alerts)))
            self.answers.append(self.outbox.answered(task, failure, at(second), second))

    def run_until(self, second: float, failure: Failure | None = None) -> None:
        """Run whenever the outbox says that it has something, until this time."""
        while (now := self.outbox.wakes_at()) <= second:
            self.run(max(now, self.now), failure)

    @property
    def times(self) -> list[float]:
        return [second for second, _, _ in self.given]

    @property
    def lines(self) -> list[str]:
        return [answer.line for answer in self.answers if answer.line]


def of(group_id: str, **other: Any) -> Alert:
    return make_alert("chat", group_id=group_id, **other)


def test_pauses_double_while_a_sink_fails_and_are_short_again_after_it_has_accepted_something() -> None:
    sending = Sending(backoff=Backoff(first_seconds=1, max_seconds=10))
    sending.offer(0, of("a"))
    sending.run_until(40, DOWN)
    assert sending.times == [0, 1, 3, 7, 15, 25, 35]
    assert sending.outbox.next_at() == sending.outbox.wakes_at() == 45
    sending.run(44.9)
    assert sending.times[-1] == 35
    sending.run(45)
    sending.offer(50, of("b"))
    sending.run_until(60, DOWN)
    assert sending.times[7:] == [45, 50, 51, 53, 57]


def test_jitter_shortens_each_pause() -> None:
    sending = Sending(backoff=Backoff(8, 100, jitter=lambda: 0.5))
    sending.offer(0, of("a"))
    sending.run_until(13, DOWN)
    assert sending.times == [0, 4, 12]


@pytest.mark.parametrize(("asked", "pause"), [(0.5, 1), (600, 600), (86_400, 3_600), (None, 1)])
def test_a_sink_that_asks_for_a_longer_pause_gets_it_up_to_an_hour(asked: float | None, pause: float) -> None:
    sending = Sending()
    sending.offer(0, of("a"))
    sending.run(0, Failure("429", after_seconds=asked))
    assert sending.outbox.next_at() == pause


def test_a_sink_that_gets_what_fires_again_anyway_is_retried_as_often() -> None:
    sending = Sending(RESEND, backoff=Backoff(40, 300))
    sending.offer(0, of("a"))
    sending.run(0, DOWN)
    sending.run(40, DOWN)
    assert sending.outbox.next_at() == 100


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


def test_a_sink_does_not_work_again_while_what_it_refused_still_waits() -> None:
    sending = Sending()
    sending.offer(0, of("poison"))
    sending.run(0, REFUSED)
    sending.offer(10, of("a"))
    sending.run(10)
    assert sending.given == [(0, FIRING, ("poison",)), (10, FIRING, ("a",))]
    assert len(sending.lines) == 1
    assert sending.outbox.next_at() == 300
    sending.run(300)
    assert sending.lines[1:] == ["Alerts are sent to chat again."]


def test_the_status_has_since_when_a_sink_fails_and_counts_what_it_accepted() -> None:
    sending = Sending()
    sending.offer(0, of("a"), of("b"))
    assert (sending.outbox.status.waiting, sending.outbox.status.last_success_at) == (2, None)
    sending.run(0, DOWN)
    sending.run(1, REFUSED)
    status = sending.outbox.status
    assert (status.sent, status.failed, status.waiting, status.error) == (0, 2, 2, "401")
    assert status.failing == FailingSink("chat", at(0), "503")
    sending.run_until(1_000)
    status = sending.outbox.status
    assert (status.sent, status.failed, status.waiting, status.error, status.failing) == (2, 2, 0, None, None)
    assert status.last_success_at == at(sending.times[-1])
    assert not sending.outbox.has_work


def test_the_results_are_the_deliveries_with_their_attempts() -> None:
    sending = Sending()
    alert = of("a")
    sending.offer(0, alert)
    sending.run(0, DOWN)
    sending.run(1)
    assert [answer.results for answer in sending.answers] == [
        ((alert.fingerprint, Delivery("chat", FIRING, None, 1, "503")),),
        ((alert.fingerprint, Delivery("chat", FIRING, at(1), 2, None)),),
    ]


def test_attempts_continue_from_the_number_in_the_table() -> None:
    sending = Sending()
    sending.offer(0, of("a", deliveries=(Delivery("chat", FIRING, attempts=7, error="503"),)))
    sending.run(0)
    assert [one.attempts for answer in sending.answers for _, one in answer.results] == [8]


def test_what_waits_to_be_tried_again_is_sent_with_its_newest_summary() -> None:
    sending = Sending()
    sending.offer(0, of("a", summary="old"))
    sending.run(0, DOWN)
    sending.offer(0.5, of("a", summary="new"))
    task = sending.outbox.take(1)
    assert task is not None
    assert [alert.summary for alert in task.alerts] == ["new"]


def test_a_pending_alert_is_not_sent() -> None:
    sending = Sending(RESEND)
    sending.offer(0, of("a", state="pending", opened_at=None, deliveries=()))
    sending.run_until(1_000)
    assert sending.given == []


SENT = (Delivery("chat", FIRING, START, 1),)


def test_what_fires_is_sent_again_at_intervals_until_it_is_resolved() -> None:
    sending = Sending(RESEND)
    sending.offer(0, of("a"))
    sending.run_until(30)
    sending.offer(30, of("b"))
    sending.run_until(130)
    assert sending.given == [
        (0, FIRING, ("a",)),
        (30, FIRING, ("b",)),
        (60, "Resend", ("a", "b")),
        (120, "Resend", ("a", "b")),
    ]
    sending.offer(140, of("a", resolved=True, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.run_until(180)
    assert sending.given[4:] == [(140, RESOLVED, ("a",)), (180, "Resend", ("b",))]
    sending.offer(190, of("b", resolved=True, deliveries=(*SENT, Delivery("chat", RESOLVED))))
    sending.run_until(1_000)
    assert sending.given[6:] == [(190, RESOLVED, ("b",))]
    assert sending.outbox.wakes_at() == math.inf


def test_after_a_restart_what_fires_is_sent_again_at_once() -> None:
    sending = Sending(RESEND)
    sending.offer(100, of("a", deliveries=SENT))
    sending.run_until(160)
    assert sending.given == [(100, "Resend", ("a",)), (160, "Resend", ("a",))]


def test_what_was_never_accepted_is_no_repetition() -> None:
    sending = Sending(RESEND, backoff=Backoff(50, 50))
    sending.offer(0, of("a"))
    sending.run(0, DOWN)
    sending.offer(1, of("b", deliveries=SENT))
    sending.run(60)
    assert sending.given[1:] == [(60, "Resend", ("b",)), (60, FIRING, ("a",))]


def test_a_sink_without_the_need_for_it_gets_nothing_again() -> None:
    sending = Sending()
    sending.offer(0, of("a", deliveries=SENT))
    assert sending.outbox.wakes_at() == math.inf


GROUPED = SinkTraits("chat", groups=True)


def test_once_stopped_it_gives_out_only_what_was_held_back_for_others() -> None:
    sending = Sending(GROUPED)
    sending.offer(0, of("a"), of("b"))
    assert not sending.outbox.is_done
    sending.outbox.stop()
    assert not sending.outbox.is_done
    sending.run(1)
    assert sending.given == [(1, FIRING, ("a", "b"))]
    assert sending.outbox.is_done


def test_once_stopped_nothing_is_tried_at_a_sink_that_is_down() -> None:
    sending = Sending(GROUPED)
    sending.offer(0, of("a"))
    sending.run(10, DOWN)
    sending.offer(10, of("b"))
    sending.outbox.stop()
    assert sending.outbox.is_done
    sending.run(100)
    assert sending.times == [10]


def test_once_stopped_what_is_queued_for_a_sink_that_groups_nothing_is_left_for_the_next_run() -> None:
    sending = Sending()
    sending.offer(0, of("a"))
    sending.outbox.stop()
    assert sending.outbox.is_done
    sending.run(0)
    assert sending.given == []


def test_groups_with_a_rank_come_last() -> None:
    outboxes = Outboxes([SinkTraits("chat"), SinkTraits("mail")], Grouping(), Backoff())
    outboxes.rank_groups({"new-2": 2, "new-1": 1})
    outboxes.offer([make_alert("chat", "mail", group_id=one) for one in ("new-2", "new-1", "old")], None, 0)
    for outbox in outboxes.by_sink.values():
        assert list(_taken(outbox)) == ["old", "new-1", "new-2"]
    assert [(one.name, one.sent) for one in outboxes.status()] == [("chat", 3), ("mail", 3)]


def _taken(outbox: Outbox, second: float = 0) -> Iterator[str | None]:
    while task := outbox.take(second):
        assert isinstance(task, (Attempt, Resend))
        yield from (alert.group_id for alert in task.alerts)
        outbox.answered(task, None, at(second), second)


MUTED_THEN_RESOLVED = [
    pytest.param((Delivery("chat", FIRING),), (), id="never sent"),
    pytest.param((Delivery("chat", FIRING, START, 1),), (FIRING, RESOLVED), id="sent"),
    pytest.param((Delivery("chat", FIRING, None, 3, "503"),), (FIRING, RESOLVED), id="it may have arrived"),
    pytest.param((Delivery("chat", FIRING, repeat=2),), (RESOLVED,), id="a repetition was due"),
]


@pytest.mark.parametrize(("fired", "left"), MUTED_THEN_RESOLVED)
def test_what_is_resolved_in_a_mute_is_resolved_where_it_is_known(
    fired: tuple[Delivery, ...], left: tuple[str, ...]
) -> None:
    outboxes = Outboxes([SinkTraits("chat")], Grouping(), Backoff())
    alert = of("a", resolved=True, deliveries=(*fired, Delivery("chat", RESOLVED), Delivery("mail", RESOLVED)))
    (settled,) = outboxes.settle([alert], lambda _: True)
    assert [(one.sink, one.event) for one in settled.deliveries] == [("chat", event) for event in left]
    for untouched in (outboxes.settle([alert], lambda _: False), outboxes.settle([alert], None)):
        assert untouched == (alert,)
    firing = of("a", deliveries=fired)
    assert outboxes.settle([firing], lambda _: True) == (firing,)


@dataclass(frozen=True)
class _Step:
    pause: float
    group: str
    answer: Failure | None


_FAILURES = st.sampled_from([None, None, DOWN, REFUSED, Failure("429", after_seconds=90)])
_STEPS = st.lists(st.builds(_Step, st.sampled_from([0.0, 1.0, 7.0, 70.0]), st.sampled_from("abcd"), _FAILURES))


@given(_STEPS, st.sampled_from([PLAIN, GROUPED, RESEND]))
def test_whatever_a_sink_answers_each_notification_is_accepted_once(steps: list[_Step], traits: SinkTraits) -> None:
    sending, offered, second = Sending(traits), {}, 0.0
    accepted: list[str | None] = []
    for step in steps:
        second += step.pause
        if step.group not in offered:
            offered[step.group] = of(step.group)
        sending.offer(second, *offered.values())  # an evaluation may offer what waits once more
        before = len(sending.given)
        sending.run(second, step.answer)
        if step.answer is None:
            accepted += [one for _, what, groups in sending.given[before:] if what == FIRING for one in groups]
        if traits is RESEND:
            offered = {name: replace(alert, summary="newer") for name, alert in offered.items()}
    before = len(sending.given)
    sending.run_until(second + 4_000)
    accepted += [one for _, what, groups in sending.given[before:] if what == FIRING for one in groups]
    assert sorted(map(str, accepted)) == sorted(offered)
    assert sending.outbox.status.waiting == 0
    assert sending.outbox.status.sent == len(offered)


def test_a_mute_of_another_alert_changes_nothing_of_when_what_fires_is_sent_again() -> None:
    outboxes = Outboxes([RESEND], Grouping(), Backoff())
    outbox, times = outboxes.by_sink["chat"], []
    outboxes.offer([of("a", deliveries=SENT), of("muted", deliveries=SENT)], None, 0)
    for second in range(0, 200, 10):
        outboxes.offer((), lambda alert: alert.group_id == "muted", second)
        while task := outbox.take(second):
            assert isinstance(task, Resend)
            times.append((second, [alert.group_id for alert in task.alerts]))
            outbox.answered(task, None, at(second), second)
    assert times == [(second, ["a"]) for second in (0, 60, 120, 180)]
