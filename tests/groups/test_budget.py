"""A group that exceeds its budget is refused, with counts of what it has."""

import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming_app.groups.budget import DEFAULT, Budget, OverBudgetError
from streaming_app.groups.events import EVENTS_LEFT_OUT
from streaming_app.groups.fold import Fold
from streaming_app.groups.group import LogRecord
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import GROUP, TARGET, TOPOLOGY, at, current, log, member, metadata

TAGS = [{"key": "zone", "value": "z" * 10_000}]
Step = tuple[Any, int, Any, Any]


def key(number: int) -> dict[str, str]:
    return {**GROUP, "member_id": f"m{number:04}"}


def joins(numbers: Iterable[int], **fields: Any) -> list[Step]:
    return [(at(10 + number), 19, key(number), {**member(), **fields}) for number in numbers]


def row_of(steps: Sequence[Step], budget: Budget, batches: int = 1) -> dict[str, Any]:
    """Return the row after these records, cut into so many batches."""
    records, state, row = log(*steps), None, {}
    size = -(-len(records) // batches)
    for start in range(0, len(records), size):
        fold = Fold.of("g", 3, state, budget)
        fold.add(replace_size(records[start : start + size]))
        fold.close()
        row = to_row("c", fold.group)
        state = from_row(row)
    return row


def replace_size(records: Iterable[LogRecord]) -> list[LogRecord]:
    return [one._replace(size=1_000) for one in records]


def parts(number: int) -> dict[str, Any]:
    part = TOPOLOGY["subtopologies"][0]
    names = [{**part, "subtopology_id": f"{one:03}", "source_topics": ["t" * 1_000]} for one in range(number)]
    return {"epoch": 0, "subtopologies": names}


START = (at(0), 17, GROUP, metadata())
UNTAGGED = {**member(), "client_tags": []}
LONG_TASK = current(2, active=[0])
LONG_TASK["active_tasks"][0]["subtopology_id"] = "s" * 500
WITH_TASKS = [(at(1 + n), 22, key(n), current(2, active=list(range(n * 100, n * 100 + 100)))) for n in range(10)]
LARGE = {
    "members": (joins(range(30)), {"members": 8}, "it has 30 members, where `group_budget.members` allows 8"),
    "tasks": (WITH_TASKS, {"tasks": 250}, "it has 1,000 tasks, where `group_budget.tasks` allows 250"),
    "tags": (joins(range(20), client_tags=TAGS), {"bytes": 50_000}, "of text, where `group_budget.bytes` allows"),
    "ids of members": (
        [(at(n), 19, {**GROUP, "member_id": f"{n}" * 300}, UNTAGGED) for n in range(1, 5)],
        {"bytes": 1_000},
        "of text",
    ),
    "configs": (
        [(at(1), 17, GROUP, {**metadata(), "last_assignment_configs": [{"key": "k", "value": "v" * 9_000}]})],
        {"bytes": 5_000},
        "of text",
    ),
    "topology": (
        [(at(1), 23, GROUP, parts(50))],
        {"bytes": 20_000},
        " bytes, where half of `group_budget.bytes` allows 10,000",
    ),
}


@pytest.mark.parametrize("batches", [1, 7])
@pytest.mark.parametrize("large", LARGE)
def test_what_a_group_over_its_budget_has_is_counted_in_the_reason(large: str, batches: int) -> None:
    steps, less, reason = LARGE[large]
    assert row_of([START, *steps], DEFAULT, batches)["group_epoch"] is not None
    with pytest.raises(OverBudgetError) as raised:
        row_of([START, *steps], replace(DEFAULT, **less))
    assert reason in str(raised.value)
    with pytest.raises(OverBudgetError):
        row_of([START, *steps], replace(DEFAULT, **less), batches)


def test_times_of_the_newest_topology_epochs_are_kept() -> None:
    steps = [(at(n), 23, GROUP, {**TOPOLOGY, "epoch": n}) for n in range(150)]
    kept = [one["topology_epoch"] for one in row_of([START, *steps], DEFAULT)["topology_epochs"]]
    assert sorted(kept) == list(range(50, 150))


def test_events_beyond_the_budget_are_counted_in_one_more() -> None:
    fold = Fold.of("g", 3, None, replace(DEFAULT, events=50))
    fold.add(log(*((at(number), 17, GROUP, metadata(number + 2)) for number in range(200))))
    fold.close()
    assert len(fold.events) == 51
    whole = Fold.of("g", 3, None)
    whole.add(log(*((at(number), 17, GROUP, metadata(number + 2)) for number in range(200))))
    whole.close()
    left_out = fold.events[-1]
    assert (left_out.kind, left_out.offset) == (EVENTS_LEFT_OUT, 199)
    assert int(left_out.new or 0) == len(whole.events) - 50


@pytest.mark.parametrize(
    ("joins", "leaves"), [(range(4), range(4)), (range(2), range(2))], ids=["new values", "old values"]
)
def test_events_with_more_text_than_the_budget_are_left_out(joins: Iterable[int], leaves: Iterable[int]) -> None:
    budget = replace(DEFAULT, bytes=1_000)  # 8,000 bytes of text
    named = [(at(10 + n), 19, key(n), {**member(), "client_id": "c" * 3_000}) for n in joins]
    gone = [(at(20 + n), 19, key(n), None) for n in leaves]
    fold = Fold.of("g", 3, None, budget)
    fold.add(log((at(0), 17, GROUP, metadata()), *named, *gone))
    fold.close()
    assert [one.member_id for one in fold.events if one.kind.startswith("member_")] == ["m0000", "m0001"]
    assert int(fold.events[-1].new or 0) >= 2


def test_a_group_of_exactly_its_budget_is_folded() -> None:
    steps = [START, *joins(range(4))]
    steps += [(at(20 + n), 22, key(n), current(2, active=[0, 1], pending=[2])) for n in range(4)]
    steps += [(at(30), 21, key(0), TARGET)]
    assert row_of(steps, replace(DEFAULT, members=4, tasks=14))["member_count"] == 4
    for less in ({"members": 3, "tasks": 14}, {"members": 4, "tasks": 13}):
        with pytest.raises(OverBudgetError):
            row_of(steps, replace(DEFAULT, **less))


@pytest.mark.parametrize(
    ("values", "reason"), [([member()], "it has 5 members"), ([member(), None], "one operation concerns 9 members")]
)
def test_an_operation_without_end_is_refused(values: list[Any], reason: str) -> None:
    fold = Fold.of("g", 3, None, replace(DEFAULT, bytes=1_333, members=4))
    with pytest.raises(OverBudgetError, match=reason):
        fold.add(replace_size(log(*((at(1), 19, key(n), value) for n in range(100) for value in values))))


@pytest.mark.parametrize("then", [[], [(at(2), 23, GROUP, TOPOLOGY)]], ids=["alone", "replaced at once"])
def test_a_topology_that_names_one_topic_any_number_of_times_is_refused_before_its_text_is_made(then: Any) -> None:
    groups = {"source_topics": [0] * 20_000, "source_topic_regex": [], "repartition_source_topics": []}
    part = {**TOPOLOGY["subtopologies"][0], "source_topics": ["t" * 10_000], "copartition_groups": [groups]}
    huge = (at(1), 23, GROUP, {"epoch": 0, "subtopologies": [part]})
    tracemalloc.start()
    try:
        with pytest.raises(OverBudgetError, match=r"a topology of 200,\d{3},\d{3} bytes"):
            row_of([huge, *then], DEFAULT)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
