"""What is sent together and when: by the rule and the event, after a short wait, and then at intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import FIRING, RESOLVED, Delivery
from streaming_app.alerts.notification_queue import Attempt, Grouping, NotificationQueue
from tests.alerts.examples import make_alert

GROUPING = Grouping(group_wait=10, group_interval=60)


@pytest.fixture
def queue() -> NotificationQueue:
    return NotificationQueue("chat", GROUPING)


def add(queue: NotificationQueue, *groups: str, now: float, rule: str = "not-ready", resolved: bool = False) -> None:
    for group in groups:
        queue.add(make_alert("chat", group_id=group, rule=rule, resolved=resolved), now)


def take(queue: NotificationQueue, now: float) -> Attempt:
    attempt = queue.take(now)
    assert attempt is not None
    return attempt


def groups_of(attempt: Attempt) -> list[str | None]:
    return [alert.group_id for alert in attempt.alerts]


def fail(queue: NotificationQueue, attempt: Attempt, retry_alone_at: float | None = None) -> None:
    attempted = [replace(delivery, attempts=delivery.attempts + 1, error="no") for _, delivery in attempt.items]
    queue.failed(attempt, attempted, retry_alone_at)


def test_the_alerts_of_a_rule_that_come_within_the_wait_are_sent_together(queue: NotificationQueue) -> None:
    add(queue, "a", now=100)
    add(queue, "b", "c", now=109)
    assert (queue.next_at(), queue.take(109)) == (110, None)
    attempt = take(queue, 110)
    assert (attempt.event, groups_of(attempt)) == (FIRING, ["a", "b", "c"])
    queue.sent(attempt, 111)
    assert (len(queue), queue.next_at()) == (0, math.inf)


def test_each_rule_and_each_event_has_a_notification_of_its_own(queue: NotificationQueue) -> None:
    add(queue, "a", "b", now=0)
    add(queue, "a", now=5, rule="stuck")
    first = take(queue, 10)
    queue.sent(first, 10)
    assert (groups_of(first), first.alerts[0].rule) == (["a", "b"], "not-ready")
    assert queue.take(14) is None
    assert take(queue, 15).alerts[0].rule == "stuck"


def test_alerts_after_a_notification_wait_for_the_interval(queue: NotificationQueue) -> None:
    add(queue, "a", now=0)
    queue.sent(take(queue, 10), 10)
    add(queue, "b", now=20)
    add(queue, "c", now=50)
    assert queue.next_at() == 70
    assert groups_of(take(queue, 70)) == ["b", "c"]


def test_alerts_that_fire_one_after_the_other_are_a_notification_in_each_interval(queue: NotificationQueue) -> None:
    sent = []
    for now in range(200):
        add(queue, str(now), now=now)
        if queue.next_at() <= now:
            attempt = take(queue, now)
            sent.append((now, len(attempt.items)))
            queue.sent(attempt, now)
    assert sent == [(10, 11), (70, 60), (130, 60), (190, 60)]


def test_an_alert_that_comes_while_others_are_sent_is_in_the_next_notification(queue: NotificationQueue) -> None:
    add(queue, "a", now=0)
    attempt = take(queue, 10)
    add(queue, "b", now=11)
    queue.sent(attempt, 12)
    assert queue.next_at() == 72
    assert groups_of(take(queue, 72)) == ["b"]


def test_the_firing_notification_of_an_alert_comes_before_the_resolved_one(queue: NotificationQueue) -> None:
    add(queue, "a", "b", now=0, resolved=True)
    first = take(queue, 10)
    queue.sent(first, 10)
    second = take(queue, queue.next_at())
    assert (first.event, second.event, groups_of(second)) == (FIRING, RESOLVED, ["a", "b"])
    queue.sent(second, 30)
    assert len(queue) == 0


def test_a_notification_that_failed_is_sent_again_with_the_same_alerts(queue: NotificationQueue) -> None:
    add(queue, "a", "b", now=0)
    fail(queue, take(queue, 10))
    assert queue.has_failed_ones
    again = take(queue, 11)
    assert [(alert.group_id, delivery.attempts) for alert, delivery in again.items] == [("a", 1), ("b", 1)]


def test_one_alert_that_the_sink_refuses_does_not_keep_the_others_from_being_sent(queue: NotificationQueue) -> None:
    add(queue, *"abcdefgh", now=0)
    now, sent, refused = 10.0, [], 0
    while (now := max(now, queue.next_at())) < 1000:
        attempt = take(queue, now)
        if "c" in groups_of(attempt):
            fail(queue, attempt, retry_alone_at=5000)
            refused += 1
        else:
            queue.sent(attempt, now)
            sent += groups_of(attempt)
    assert sorted(map(str, sent)) == list("abdefgh")
    assert (refused, len(queue), queue.next_at()) == (7, 1, 5000)


@given(
    alerts=st.lists(
        st.tuples(st.integers(0, 90), st.sampled_from("abcdefgh"), st.sampled_from(["stuck", "lag"]), st.booleans()),
        max_size=30,
    ),
    outcomes=st.lists(st.sampled_from(["sent", "sent", "failed", "refused"]), max_size=60),
)
def test_each_notification_is_sent_once_firing_before_resolved_and_those_of_a_rule_an_interval_apart(
    alerts: list[tuple[int, str, str, bool]], outcomes: list[str]
) -> None:
    queue, now, offered, sent = NotificationQueue("chat", GROUPING), 0.0, set(), list[tuple[float, Attempt]]()
    was_refused = False
    for pause, group, rule, resolved in [*alerts, *[(600, "end", "end", False)] * 20]:
        until = now + pause
        while queue.next_at() <= until:
            now = max(now, queue.next_at())
            attempt = take(queue, now)
            outcome = outcomes.pop() if outcomes else "sent"
            was_refused = was_refused or outcome == "refused"
            if outcome == "sent":
                queue.sent(attempt, now)
                sent.append((now, attempt))
            else:
                fail(queue, attempt, retry_alone_at=now + 300 if outcome == "refused" else None)
        now = until
        add(queue, group, now=now, rule=rule, resolved=resolved)
        offered.update((rule, group, event) for event in ((FIRING, RESOLVED) if resolved else (FIRING,)))
    each = [(alert.rule, alert.group_id, attempt.event) for _, attempt in sent for alert in attempt.alerts]
    assert len(each) == len(set(each))
    assert set(each) == {one for one in offered if one[0] != "end"} | {("end", "end", FIRING)}
    for rule, group, event in each:
        if event == RESOLVED:
            assert each.index((rule, group, FIRING)) < each.index((rule, group, RESOLVED))
    for key in {(one[0], one[2]) for one in each}:
        times = [at for at, attempt in sent if (attempt.alerts[0].rule, attempt.event) == key]
        assert was_refused or all(later - earlier >= GROUPING.group_interval for earlier, later in pairwise(times))


def test_after_an_error_of_the_sink_itself_was_fixed_the_rest_is_sent_together(queue: NotificationQueue) -> None:
    add(queue, *(str(number) for number in range(100)), now=0)
    now, sizes = 10.0, []
    for _ in range(8):  # a wrong password: nothing is accepted
        attempt = take(queue, now)
        sizes.append(len(attempt.items))
        fail(queue, attempt, retry_alone_at=5000)
        now += 1
    assert sizes == [100, 50, 25, 13, 7, 4, 2, 1]
    sent = []
    while (now := max(now, queue.next_at())) < 1000:
        attempt = take(queue, now)
        sent.append(len(attempt.items))
        queue.sent(attempt, now)
    assert sent == [1, 98]


def test_a_sink_that_groups_by_itself_gets_each_alert_at_once() -> None:
    queue = NotificationQueue("chat")
    add(queue, "a", "b", now=100)
    for group in ("a", "b"):
        attempt = take(queue, 100)
        assert groups_of(attempt) == [group]
        queue.sent(attempt, 100)
    assert not queue.is_holding


def test_release_lets_nothing_wait_for_others(queue: NotificationQueue) -> None:
    add(queue, "a", now=0)
    assert queue.is_holding
    queue.release()
    assert groups_of(take(queue, 0)) == ["a"]
    assert not queue.is_holding


def test_what_is_withdrawn_is_not_sent_and_what_comes_later_waits_again(queue: NotificationQueue) -> None:
    add(queue, "a", "b", now=0)
    assert [alert.group_id for alert in queue.withdraw(lambda alert: alert.group_id == "a")] == ["a"]
    assert [alert.group_id for alert in queue.withdraw(lambda _: True)] == ["b"]
    assert queue.next_at() == math.inf
    add(queue, "c", now=500)
    assert queue.next_at() == 510


def test_what_is_being_sent_cannot_be_withdrawn(queue: NotificationQueue) -> None:
    add(queue, "a", now=0)
    attempt = take(queue, 10)
    assert queue.withdraw(lambda _: True) == []
    queue.sent(attempt, 10)


def test_what_was_sent_is_not_queued_again_even_if_it_is_offered_as_unsent(queue: NotificationQueue) -> None:
    add(queue, "a", "b", now=0)
    queue.sent(take(queue, 10), 10)
    add(queue, "a", "b", now=20)
    assert len(queue) == 0
    repeated = make_alert(group_id="a", rule="not-ready", deliveries=(Delivery("chat", FIRING, repeat=1),))
    assert queue.add(repeated, 20)


def test_deliveries_to_other_sinks_and_sent_ones_are_not_due(queue: NotificationQueue) -> None:
    sent = Delivery("chat", FIRING, datetime.now(timezone.utc), 1)
    assert not queue.add(make_alert("other"), 0)
    assert not queue.add(make_alert(deliveries=(sent,)), 0)
    assert len(queue) == 0


@pytest.mark.parametrize("grouping", [None, GROUPING])
def test_what_is_about_newcomers_comes_after_all_others(grouping: Grouping | None) -> None:
    queue = NotificationQueue("chat", grouping)
    queue.ranks = {f"!{number}": number + 1 for number in range(40)}
    add(queue, *(f"!{number}" for number in reversed(range(40))), "known", now=0)
    sent: list[str | None] = []
    while attempt := queue.take(100):
        sent += groups_of(attempt)
        queue.sent(attempt, 100)
    assert sent == ["known", *(f"!{number}" for number in range(40))]


def test_what_is_being_sent_is_not_given_out_twice(queue: NotificationQueue) -> None:
    add(queue, "a", now=0)
    take(queue, 10)
    assert (queue.take(11), queue.next_at()) == (None, math.inf)


def test_what_is_withdrawn_leaves_the_others_their_wait(queue: NotificationQueue) -> None:
    add(queue, "a", now=0)
    add(queue, "b", now=5, rule="stuck")
    queue.withdraw(lambda alert: alert.group_id == "a")
    assert queue.next_at() == 15
    add(queue, "a", now=12)
    assert queue.next_at() == 15
    assert groups_of(take(queue, 15)) == ["b"]
    assert queue.next_at() == 22


def test_an_alert_that_is_refused_alone_does_not_part_the_others(queue: NotificationQueue) -> None:
    add(queue, "poison", now=0)
    fail(queue, take(queue, 10), retry_alone_at=5_000)
    add(queue, "a", "b", now=20)
    assert groups_of(take(queue, 30)) == ["a", "b"]
