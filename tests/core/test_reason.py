"""Why a group is NotReady, as its history tells it: once for each operation, and never of half an operation."""

from __future__ import annotations

from streaming_app.core.life import Event, Life
from streaming_app.core.row import from_row, to_row
from tests.core.records import FIRST_JOIN, GROUP, at, fold, log, metadata

UNREADY = [*FIRST_JOIN[:2], (at(0), 17, GROUP, metadata(validated=-1)), FIRST_JOIN[3]]
READY_AGAIN = [(at(9), 17, GROUP, metadata(epoch=3)), (at(9), 17, GROUP, metadata(epoch=3, validated=-1))]


def stored(life: Life) -> Life:
    return from_row(to_row("c", life))


def told(events: list[Event]) -> list[tuple[str | None, str | None, int]]:
    return [(event.old, event.new, event.offset) for event in events if event.kind == "not_ready_reason"]


def test_a_reason_is_told_when_it_is_another_than_before() -> None:
    first = fold(log(*UNREADY))
    first.give_reason("no topic")
    assert told(first.events) == [(None, "no topic", 3)]
    second = fold(log((at(5), 17, GROUP, metadata(epoch=3, validated=-1)), first=4), stored(first.life))
    second.give_reason("no topic")
    assert told(second.events) == []
    third = fold(log((at(6), 17, GROUP, metadata(epoch=4, validated=-1)), first=5), stored(second.life))
    third.give_reason("another topic")
    assert told(third.events) == [("no topic", "another topic", 5)]


def test_a_later_look_puts_the_row_right_and_tells_nothing_at_the_same_place() -> None:
    first = fold(log(*UNREADY))
    first.give_reason("no topic")
    look = fold([], stored(first.life))
    look.give_reason("another topic")
    assert (look.touched, look.events, look.life.not_ready_reason) == (True, [], "another topic")


def test_a_look_after_a_batch_that_could_not_ask_tells_it() -> None:
    look = fold([], stored(fold(log(*UNREADY)).life))
    look.give_reason("no topic")
    assert told(look.events) == [(None, "no topic", 3)]


def test_the_reason_of_half_an_operation_is_taken_back() -> None:
    unready = fold(log(*UNREADY))
    unready.give_reason("no topic")
    records = log(*READY_AGAIN, first=4)
    half = fold(records[:1], stored(unready.life))
    half.give_reason(None)
    whole = fold(records[1:], stored(half.life))
    whole.give_reason("no topic")
    assert (told(half.events), told(whole.events), whole.life.not_ready_reason) == ([], [], "no topic")

    half = fold(log(*UNREADY)[:3])
    half.give_reason("no topic")
    whole = fold(log(*UNREADY)[3:], stored(half.life))
    whole.give_reason("no topic")
    assert ("not_ready_reason", 2) in {(event.kind, event.offset) for event in whole.retracted}
    assert told(whole.events) == [(None, "no topic", 3)]
