"""A group that is more than its budget: what is kept, that it says so, and that batches make no difference to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming_app.groups.budget import DEFAULT, Budget, OverBudgetError
from streaming_app.groups.events import EVENTS_LEFT_OUT
from streaming_app.groups.fold import Fold
from streaming_app.groups.group import LogRecord
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import FIRST_JOIN, GROUP, TARGET, TOPOLOGY, at, current, log, member, metadata

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
        row = to_row("c", fold.group_state)
        state = from_row(row)
    return row


def replace_size(records: Iterable[LogRecord]) -> list[LogRecord]:
    return [one._replace(size=1_000) for one in records]


def ids(row: dict[str, Any]) -> list[str]:
    return sorted(one["member_id"] for one in row["members"])


def test_an_ordinary_group_is_whole() -> None:
    row = row_of(FIRST_JOIN, DEFAULT)
    assert (row["truncated"], row["over_budget"], row["members_left_out"]) == (False, None, 0)


@pytest.mark.parametrize("batches", [1, 2, 7, 30])
@pytest.mark.parametrize("order", [range(30), range(29, -1, -1)], ids=["ascending", "descending"])
def test_members_with_the_first_ids_are_kept_and_the_others_counted(order: Iterable[int], batches: int) -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(list(order))]
    row = row_of(steps, replace(DEFAULT, members=8), batches)
    assert ids(row) == [f"m{number:04}" for number in range(8)]
    assert (row["truncated"], row["over_budget"], row["member_count"]) == (True, "members", 8)
    assert 1 <= row["members_left_out"] <= 22  # a lower bound: of those that come later it is not known that they are


def test_members_that_are_left_out_join_and_leave_without_a_trace_in_the_history() -> None:
    budget = replace(DEFAULT, members=2)
    fold = Fold.of("g", 3, None, budget)
    fold.add(log((at(0), 17, GROUP, metadata()), *joins(range(5))))
    fold.close()
    state = from_row(to_row("c", fold.group_state))
    later = Fold.of("g", 3, state, budget)
    steps = [(at(100), 22, key(4), current(3, active=[1])), (at(101), 22, key(3), current(3, active=[2]))]
    steps += [(at(102), kind, key(4), None) for kind in (22, 21, 19)]
    later.add(log(*steps, first=100))
    later.close()
    assert [one for one in later.events if one.member_id] == []
    assert later.group_state.group.members_left_out == 2


def test_a_group_from_which_all_members_go_is_whole_again() -> None:
    budget = replace(DEFAULT, members=2)
    leaves = [(at(200 + number), kind, key(number), None) for number in range(5) for kind in (22, 21, 19)]
    row = row_of([(at(0), 17, GROUP, metadata()), *joins(range(5)), *leaves], budget, batches=20)
    assert (row["state"], row["members"], row["truncated"], row["members_left_out"]) == ("Empty", [], False, 0)


def test_tags_beyond_the_budget_are_left_out_and_the_members_stay() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(20), client_tags=TAGS)]
    row = row_of(steps, replace(DEFAULT, bytes=50_000), batches=4)
    assert len(row["members"]) == 20
    assert row["over_budget"] == "client tags"
    assert 0 < sum(bool(one["client_tags"]) for one in row["members"]) < 6


@pytest.mark.parametrize("batches", [1, 3])
def test_large_tags_of_one_member_are_in_no_row_however_much_room_there_is(batches: int) -> None:
    tags = [{"key": f"tag-{number}", "value": "x" * 30_000} for number in range(30)]
    steps = [(at(0), 17, GROUP, metadata()), *joins([0, 1], client_tags=TAGS), *joins([2], client_tags=tags)]
    row = row_of(steps, DEFAULT, batches)
    assert [len(one["client_tags"]) for one in row["members"]] == [1, 1, 0]
    assert (row["truncated"], row["over_budget"], row["member_count"]) == (True, "client tags", 3)


def test_that_tags_are_left_out_stays_known_after_the_batch() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(20), client_tags=TAGS), (at(900), 17, GROUP, metadata(3))]
    assert row_of(steps, replace(DEFAULT, bytes=50_000), batches=22)["truncated"]


def test_a_topology_beyond_the_budget_has_its_first_parts_until_a_smaller_one_comes() -> None:
    part = TOPOLOGY["subtopologies"][0]
    parts = [{**part, "subtopology_id": f"{number:03}", "source_topics": ["t" * 1_000]} for number in range(50)]
    large = [(at(0), 17, GROUP, metadata()), (at(1), 23, GROUP, {"epoch": 0, "subtopologies": parts})]
    budget = replace(DEFAULT, topology_bytes=10_000)
    row = row_of(large, budget)
    kept = [one["subtopology_id"] for one in row["subtopologies"]]
    assert kept == [f"{number:03}" for number in range(len(kept))]
    assert 0 < len(kept) < 10
    assert row["over_budget"] == "topology"
    small = row_of([*large, (at(2), 23, GROUP, {**TOPOLOGY, "epoch": 1})], budget, batches=3)
    assert not small["truncated"]


def test_tasks_beyond_the_budget_are_left_out() -> None:
    steps = [(at(0), 17, GROUP, metadata())]
    steps += [(at(1 + n), 22, key(n), current(2, active=list(range(n * 100, n * 100 + 100)))) for n in range(10)]
    row = row_of(steps, replace(DEFAULT, tasks=250))
    assert (row["over_budget"], row["member_count"], len(row["assignments"])) == ("tasks", 10, 200)


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


def test_a_group_that_takes_more_steps_than_its_budget_is_refused() -> None:
    records = log(*((at(number), 17, GROUP, metadata(number + 2)) for number in range(100)))
    fold = Fold.of("g", 3, None, replace(DEFAULT, steps=100))
    fold.add(records)
    fold = Fold.of("g", 3, None, replace(DEFAULT, steps=100))
    with pytest.raises(OverBudgetError, match="more than 100 steps"):
        fold.add(log(*((at(number), 17, GROUP, metadata(number + 2)) for number in range(200))))


@pytest.mark.parametrize(("joins", "leaves"), [(range(4), []), (range(2), range(2))], ids=["new values", "old values"])
def test_events_with_more_text_than_the_budget_are_left_out(joins: Iterable[int], leaves: Iterable[int]) -> None:
    budget = replace(DEFAULT, bytes=1_000)  # 8,000 bytes of text
    named = [(at(10 + n), 19, key(n), {**member(), "client_id": "c" * 3_000}) for n in joins]
    gone = [(at(20 + n), 19, key(n), None) for n in leaves]
    fold = Fold.of("g", 3, None, budget)
    fold.add(log((at(0), 17, GROUP, metadata()), *named, *gone))
    fold.close()
    assert [one.member_id for one in fold.events if one.kind.startswith("member_")] == ["m0000", "m0001"]
    assert int(fold.events[-1].new or 0) >= 2


def test_any_number_of_operations_that_are_small_by_themselves_is_folded() -> None:
    fold = Fold.of("g", 3, None, replace(DEFAULT, bytes=1_000, topology_bytes=1_000))
    fold.add(replace_size(log(*((at(n), 19, key(n % 3), member()) for n in range(100)))))
    fold.close()
    assert len(fold.group_state.group.members) == 3


def test_a_group_of_exactly_its_budget_is_whole() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(4))]
    steps += [(at(20 + n), 22, key(n), current(2, active=[0, 1], pending=[2])) for n in range(4)]
    steps += [(at(30), 21, key(0), TARGET)]
    whole, less = ({"members": 4, "tasks": 14}, [{"members": 3, "tasks": 14}, {"members": 4, "tasks": 13}])
    assert not row_of(steps, replace(DEFAULT, **whole))["truncated"]
    assert [row_of(steps, replace(DEFAULT, **one))["over_budget"] for one in less] == ["members", "tasks"]


def test_configs_beyond_the_budget_are_left_out_until_smaller_ones_come() -> None:
    large = metadata(configs=[{"key": "k", "value": "v" * 2_000}])
    budget = replace(DEFAULT, bytes=1_000)
    row = row_of([(at(0), 17, GROUP, large)], budget)
    assert (row["assignment_configs"], row["over_budget"], row["truncated"]) == ([], "assignment configs", True)
    row = row_of([(at(0), 17, GROUP, large), (at(1), 23, GROUP, TOPOLOGY)], budget, batches=2)
    assert row["over_budget"] == "assignment configs"
    row = row_of([(at(0), 17, GROUP, large), (at(1), 17, GROUP, metadata(3))], budget, batches=2)
    assert (len(row["assignment_configs"]), row["over_budget"]) == (1, None)


def test_members_that_are_left_out_are_there_when_those_that_were_kept_have_left() -> None:
    budget = replace(DEFAULT, members=2)
    first = [(at(0), 17, GROUP, metadata()), *joins(range(3)), (at(20), 17, GROUP, metadata())]
    leave = [*((at(100 + n), 19, key(n), None) for n in range(2)), *((at(110), 17, GROUP, metadata(3)),) * 3]
    row = row_of([*first, *leave], budget, batches=2)
    assert (row["member_count"], row["members_left_out"]) == (0, 1)
    assert row["state"] != "Empty"
    heard = [*((at(200 + n), 19, key(n), member()) for n in (2, 3)), *((at(210), 17, GROUP, metadata(4)),) * 3]
    row = row_of([*first, *leave, *heard], budget, batches=3)
    assert (ids(row), row["members_left_out"]) == (["m0002", "m0003"], 0)
    row = row_of([*first, (at(300), 17, GROUP, None)], budget, batches=len(first) + 1)
    assert (row["state"], row["members_left_out"]) == ("Dead", 0)


def test_a_member_with_a_lower_id_takes_the_place_of_one_that_is_left_out_then() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(1, 4)), *joins([0]), *((at(90), 17, GROUP, metadata(3)),) * 3]
    row = row_of(steps, replace(DEFAULT, members=2), batches=2)
    assert (ids(row), row["members_left_out"]) == (["m0000", "m0001"], 2)


def test_a_member_that_another_one_with_a_lower_id_has_pushed_out_comes_back_without_a_trace() -> None:
    fold = Fold.of("g", 3, None, replace(DEFAULT, members=2))
    parts = [(at(0), 17, GROUP, metadata()), *joins(range(1, 4))], joins([3]), joins([0]), joins([2])
    for number, part in enumerate(parts):
        fold.add(log(*((at(number), *step[1:]) for step in part), first=10 * number))
        fold.close()
    assert [one.member_id for one in fold.events if one.offset >= 30] == []
    assert sorted(fold.group_state.group.members) == ["m0000", "m0001"]


def test_of_a_group_with_members_that_are_left_out_no_deployment_is_said() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(4))]
    moves = [(at(3_600 + n), 19, key(n), None) for n in range(2)] + [
        (at(3_700), 19, {**GROUP, "member_id": "a"}, member())
    ]
    kinds = []
    for most in (2, 10):
        fold = Fold.of("g", 3, None, replace(DEFAULT, members=most))
        gone = moves if most == 2 else [*moves, *((at(3_800), 19, key(n), None) for n in (2, 3))]
        for part, first in ((steps, 0), (gone, 10)):
            fold.add(log(*part, first=first))
            fold.close()
        kinds.append({one.kind for one in fold.events} & {"deployment"})
    assert kinds == [set(), {"deployment"}]


def test_long_ids_of_members_and_of_subtopologies_count() -> None:
    start = (at(0), 17, GROUP, metadata())
    untagged = {**member(), "client_tags": []}
    named = [(at(n), 19, {**GROUP, "member_id": f"{n}" * 300}, untagged) for n in range(1, 5)]
    row = row_of([start, *named], replace(DEFAULT, bytes=1_000))
    assert ([one["member_id"][0] for one in row["members"]], row["over_budget"]) == (["1", "2"], "members")
    value = current(2, active=[0])
    value["active_tasks"][0]["subtopology_id"] = "s" * 500
    row = row_of([start, *((at(1 + n), 22, key(n), value) for n in range(4))], replace(DEFAULT, bytes=1_600))
    assert ({one["member_id"] for one in row["assignments"]}, row["over_budget"]) == ({"m0000", "m0001"}, "tasks")


def test_the_targets_of_a_member_that_is_left_out_are_left_out() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *((at(1), 21, key(n), TARGET) for n in range(4)), *joins(range(4))]
    row = row_of(steps, replace(DEFAULT, members=2))
    assert {one["member_id"] for one in row["assignments"]} == {"m0000", "m0001"}


def test_targets_of_members_that_are_not_known_count() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *((at(1), 21, key(n), TARGET) for n in range(4))]
    row = row_of(steps, replace(DEFAULT, bytes=600))
    assert row["over_budget"] == "tasks"
    assert {one["member_id"] for one in row["assignments"]} == {"m0000"}


def test_targets_beyond_the_budget_of_tasks_are_left_out_with_the_other_tasks() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(3)), *((at(20), 21, key(n), TARGET) for n in range(3))]
    row = row_of(steps, replace(DEFAULT, tasks=5))
    assert (row["over_budget"], row["member_count"]) == ("tasks", 3)
    assert {one["member_id"] for one in row["assignments"]} == {"m0000", "m0001"}


def test_a_group_without_members_has_no_tasks_and_tags_that_are_left_out() -> None:
    steps = [(at(0), 17, GROUP, metadata()), *joins(range(20), client_tags=TAGS)]
    gone = [(at(100), 19, key(n), None) for n in range(20)]
    assert row_of([*steps, *gone], replace(DEFAULT, bytes=50_000), batches=2)["over_budget"] is None


def test_an_operation_without_end_is_refused() -> None:
    fold = Fold.of("g", 3, None, replace(DEFAULT, bytes=1_000, topology_bytes=1_000))
    records = [one._replace(size=1_000) for one in log(*((at(1), 19, key(n), member()) for n in range(100)))]
    with pytest.raises(OverBudgetError, match="one operation"):
        fold.add(records)


def test_the_size_of_a_group_is_that_of_its_topology_and_its_members() -> None:
    sizes = []
    for steps in ([], [(at(0), 23, GROUP, TOPOLOGY)], joins([1]), [(at(0), 23, GROUP, TOPOLOGY), *joins([1])]):
        fold = Fold.of("g", 3, None)
        fold.add(log((at(0), 17, GROUP, metadata()), *steps))
        fold.close()
        sizes.append(fold.size)
    nothing, topology, one_member, both = sizes
    assert nothing == 0 < topology
    assert one_member > 0
    assert both == topology + one_member
