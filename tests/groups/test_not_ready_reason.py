"""Events for the reason of a group that is NotReady: one for each operation, never for half an operation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming_app.groups.group import Group
from streaming_app.groups.not_ready import TopicLookup, set_reasons
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import FIRST_JOIN, GROUP, M1, at, fold, log, metadata

NOT_READY = [*FIRST_JOIN[:2], (at(0), 17, GROUP, metadata(validated=-1)), FIRST_JOIN[3]]


def store(group_state: Group) -> Group:
    """Write and read the state as a row, as between two batches."""
    return from_row(to_row("c", group_state))


def test_a_reason_that_changes_without_a_record_updates_the_row_and_adds_no_second_event_at_the_offset() -> None:
    first = fold(log(*NOT_READY))
    first.set_not_ready_reason("no topic")
    later = fold([], store(first.group))
    later.set_not_ready_reason("another topic")
    assert (later.touched, later.events, later.group.not_ready_reason) == (True, [], "another topic")


GIVES_UP = [(at(5), 22, M1, None), (at(5), 21, M1, None), (at(5), 19, M1, None), (at(5), 17, GROUP, metadata(epoch=3))]
MISSING = "MISSING_SOURCE_TOPICS: Source topics a, b are missing."


def test_a_reason_is_kept_although_the_group_was_not_ready_and_empty_within_one_batch() -> None:
    one = fold(log(*NOT_READY, *GIVES_UP))
    set_reasons(one, lambda _names: {"other": 1})
    assert (one.group.state, one.group.not_ready_reason) == ("Empty", None)
    (event,) = [event for event in one.events if event.kind == "not_ready_reason"]
    assert (event.at, event.new, event.offset) == (at(0), MISSING, 3)


@pytest.mark.parametrize(
    ("records", "missing"),
    [
        pytest.param([], ["a", "b"], id="it is NotReady"),
        pytest.param(GIVES_UP, ["a", "b"], id="its members gave up"),
        pytest.param([(at(6), 17, GROUP, metadata(epoch=4))], None, id="it is ready"),
        pytest.param([(at(6), 17, GROUP, metadata(epoch=4)), *GIVES_UP], None, id="it is ready, and ends then"),
    ],
)
@pytest.mark.parametrize("is_stored", [False, True])
def test_the_row_has_the_source_topics_that_were_missing_until_the_group_is_ready(
    records: list[tuple[Any, ...]], missing: list[str] | None, *, is_stored: bool
) -> None:
    one = fold(log(*NOT_READY, *([] if is_stored else records)))
    if is_stored:
        set_reasons(one, lambda _names: {"other": 1})
        one = fold(log(*records, first=4), store(one.group))
    set_reasons(one, lambda _names: {"other": 1})
    assert store(one.group).missing_topics == missing


def test_topics_that_are_missing_are_written_without_a_record_although_the_reason_is_as_before() -> None:
    """As after an upgrade, and where a reason names three of more."""
    first = fold(log(*NOT_READY))
    first.set_not_ready_reason(MISSING)
    for before, is_written in ((None, True), (["a", "b"], False)):
        later = fold([], replace(store(first.group), missing_topics=before))
        set_reasons(later, lambda _names: {"other": 1})
        assert (later.touched, later.group.missing_topics) == (is_written, ["a", "b"])


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 7])  # in the first operation, and at the ends of both
@pytest.mark.parametrize("topics", [None, lambda _names: {"other": 1}])
def test_a_reason_is_one_event_wherever_the_batch_of_a_worker_or_of_the_driver_ends(
    cut: int, topics: TopicLookup | None
) -> None:
    records = log(*NOT_READY, *GIVES_UP)
    first = fold(records[:cut])
    set_reasons(first, topics)
    second = fold(records[cut:], store(first.group))
    set_reasons(second, topics)
    retracted = {(event.kind, event.offset) for event in second.retracted}
    kept = [event for event in first.events if (event.kind, event.offset) not in retracted]
    found = [(event.at, event.offset) for event in (*kept, *second.events) if event.kind == "not_ready_reason"]
    assert found == [(at(0), 3)]


def test_while_the_topics_cannot_be_known_a_reason_that_was_found_in_them_stays() -> None:
    first = fold(log(*NOT_READY))
    set_reasons(first, lambda _names: None)
    assert (first.group.not_ready_reason or "").startswith("TOPICS_NOT_VALIDATED: ")
    set_reasons(first, lambda _names: {})
    set_reasons(first, lambda _names: None)
    assert first.group.not_ready_reason == MISSING


def test_topics_are_asked_for_by_name_and_not_for_a_pattern() -> None:
    asked: list[object] = []

    def topics(names: Sequence[str]) -> dict[str, int]:
        asked.append(names)
        return {}

    set_reasons(fold(log(*NOT_READY)), topics)
    assert asked == [["a", "b", "r"]]
