"""What is known of the members that keep a group from being Stable."""

from __future__ import annotations

from typing import Any

from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import (
    awaited_members,
    describe_obligation,
    group_snapshot,
)
from tests.groups.records import FIRST_JOIN, GROUP, M1, M2, at, current, fold, log, member

_UNREVOKED, _UNRELEASED = 2, 3
_BEHIND = [(at(5), 19, M2, member()), (at(5), 20, GROUP, {"assignment_epoch": 3, "assignment_timestamp": 0})]


def row_of(*steps: tuple[Any, int, Any, Any]) -> dict[str, Any]:
    """Return the row of a group with two members after a new assignment and `steps`."""
    records = log(*FIRST_JOIN, *_BEHIND, *steps)
    return to_row("c", fold(records).group_state) | {"state": "Reconciling"}


def test_members_are_named_with_the_tasks_that_others_wait_for() -> None:
    revoking = (at(6), 22, M1, current(3, _UNREVOKED, active=[0], pending=[1]))
    waiting = (at(7), 22, M2, current(3, _UNRELEASED))
    snapshot = group_snapshot(row_of(revoking, waiting))
    assert snapshot.unsettled_count == 2
    assert [(one.member_id, one.state, one.tasks) for one in snapshot.unsettled] == [
        ("m1", "UNREVOKED_TASKS", ("0_1",)),
        ("m2", "UNRELEASED_TASKS", ()),
    ]
    assert [one.member_id for one in awaited_members(snapshot)] == ["m1"]
    assert describe_obligation(snapshot.unsettled[0]) == "has not revoked task 0_1"


def test_members_with_the_epoch_of_the_assignment_are_settled() -> None:
    row = row_of((at(6), 22, M1, current(3, active=[0, 1])), (at(7), 22, M2, current(3)))
    snapshot = group_snapshot(row)
    assert (snapshot.unsettled, snapshot.unsettled_count) == ((), 0)
    del row["members"], row["assignments"]
    assert group_snapshot(row | {"unsettled_count": 7}).unsettled_count == 7


def test_members_that_only_wait_are_awaited_where_nobody_else_is() -> None:
    waiting = [(at(6 + n), 22, key, current(3, _UNRELEASED)) for n, key in enumerate((M1, M2))]
    snapshot = group_snapshot(row_of(*waiting))
    assert [one.member_id for one in awaited_members(snapshot)] == ["m1", "m2"]
    assert describe_obligation(snapshot.unsettled[0]) == "waits for tasks 0_0, 0_1, which no unsettled member owns"
    assert describe_obligation(snapshot.unsettled[1]) == "waits for tasks none, which no unsettled member owns"


def test_a_member_that_left_temporarily_is_named_with_the_tasks_that_it_owns() -> None:
    snapshot = group_snapshot(row_of((at(6), 22, M1, current(-2, active=[1])), (at(7), 22, M2, current(3))))
    assert [(one.member_id, one.state, one.tasks) for one in snapshot.unsettled] == [("m1", "AWAY", ("0_1",))]
    assert describe_obligation(snapshot.unsettled[0]) == "left temporarily and still owns task 0_1"


def test_members_that_are_waited_for_come_by_what_they_owe_by_time_and_by_id() -> None:
    row = row_of(
        (at(6), 22, M1, current(3, _UNREVOKED, pending=[1])),
        (at(7), 22, M2, current(3, _UNREVOKED, pending=[1])),
        *((None, 22, {**GROUP, "member_id": f"m{n}"}, current(3, _UNREVOKED, pending=[1])) for n in (4, 3)),
        (at(5), 22, {**GROUP, "member_id": "m0"}, current(3, _UNRELEASED)),
    )
    assert [one.member_id for one in group_snapshot(row).unsettled] == ["m3", "m4", "m1", "m2", "m0"]
