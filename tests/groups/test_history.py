"""The whole history of a small group, and what a fold does with rare records: of other types, without a time."""

from dataclasses import replace
from typing import Any

import pytest

from streaming_app.groups.budget import DEFAULT, OverBudgetError
from streaming_app.groups.events import EVENTS_LEFT_OUT
from streaming_app.groups.fold import Fold
from streaming_app.groups.group import GroupEvent
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import FIRST_JOIN, GROUP, M1, TOPOLOGY, at, current, fold, log, member, metadata
from tests.groups.test_compacted import row_of

Step = tuple[Any, int, Any, Any]
CLASSIC_KEY = {"group": "g"}
LEAVES: list[Step] = [*((at(9), kind, M1, None) for kind in (22, 21, 19)), (at(9), 17, GROUP, metadata(3))]


def said(events: list[GroupEvent]) -> list[tuple[Any, ...]]:
    """Return of each event what it says, its cause, and the second of its time."""
    return [
        (one.at and int((one.at - at(0)).total_seconds()), one.kind, one.member_id, one.old, one.new, one.cause)
        for one in events
    ]


def test_the_history_of_a_group_from_its_creation_to_its_end_is_complete() -> None:
    assert said(fold(log(*FIRST_JOIN, *LEAVES, (at(20), 17, GROUP, None))).events) == [
        (0, "created", None, None, "streams", None),
        (0, "group_epoch", None, None, "2", "member_joined"),
        (0, "assignment_epoch", None, None, "1", None),
        (0, "topology_epoch", None, None, "0", None),
        (0, "validated_topology_epoch", None, None, "0", None),
        (0, "stored_description_epoch", None, None, "-1", None),
        (0, "failed_description_epoch", None, None, "-1", None),
        (0, "description_status", None, None, "NEVER_STORED", None),
        (0, "state", None, None, "Assigning", None),
        (0, "member_joined", "m1", None, "app", None),
        (3, "assignment_epoch", None, "1", "2", "member_joined"),
        (3, "state", None, "Assigning", "Reconciling", None),
        (4, "state", None, "Reconciling", "Stable", None),
        (4, "assignment", "m1", None, "active 0_0,0_1", None),
        (9, "group_epoch", None, "2", "3", "member_left"),
        (9, "state", None, "Stable", "Empty", None),
        (9, "member_left", "m1", "app", None, None),
        (9, "assignment", "m1", "active 0_0,0_1", None, None),
        (20, "deleted", None, "streams", None, None),
        (20, "state", None, "Empty", "Dead", None),
    ]


@pytest.mark.parametrize("seconds", [0, 1], ids=["one operation", "an expiry over several"])
def test_a_deletion_is_no_assignment_although_the_record_of_the_last_one_is_deleted(seconds: int) -> None:
    """Seen: `assignment_epoch 5 → 1` of each group that was deleted, which counts as a rebalance."""
    fifth = (at(12), 20, GROUP, {"assignment_epoch": 5, "assignment_timestamp": 0})
    gone = [(at(20), 20, GROUP, None), *((at(20 + seconds), kind, GROUP, None) for kind in (17, 23))]
    whole = fold(log(*FIRST_JOIN, *LEAVES, fifth, *gone))
    events = [one for one in whole.events if one.kind == "assignment_epoch"]
    assert [(one.old, one.new) for one in events] == [(None, "1"), ("1", "2"), ("2", "5")]
    assert row_of(whole)["state"] == "Dead"


@pytest.mark.parametrize("group_type", [None, {"protocol_type": "consumer"}], ids=["tombstone", "classic group"])
def test_a_classic_group_that_takes_the_id_of_one_with_members_ends_their_membership(group_type: Any) -> None:
    stable = fold(log(*FIRST_JOIN)).group
    taken = fold(log((at(20), 2, CLASSIC_KEY, group_type), first=40), from_row(to_row("c", stable)))
    assert said(taken.events) == [
        (20, "deleted", None, "streams", None, None),
        (20, "state", None, "Stable", "Dead", None),
        (20, "member_left", "m1", "app", None, None),
        (20, "assignment", "m1", "active 0_0,0_1", None, None),
    ]
    row = row_of(taken)
    assert (row["group_type"], row["last_offset"]) == ("classic" if group_type else "streams", 40)
    assert taken.touched


def test_of_many_topologies_in_one_batch_twenty_are_kept_and_the_others_counted() -> None:
    topologies = [
        {"epoch": n, "subtopologies": [{**TOPOLOGY["subtopologies"][0], "source_topics": ["a", str(n)]}]}
        for n in range(23)
    ]
    folded = fold(
        log((at(0), 17, GROUP, metadata()), *((at(1 + n), 23, GROUP, one) for n, one in enumerate(topologies)))
    )
    assert [one["topology_epoch"] for one in folded.topologies] == list(range(20))
    assert [one.new for one in folded.events if one.kind == EVENTS_LEFT_OUT] == ["3"]
    assert row_of(folded)["topology_hash"] != folded.topologies[-1]["topology_hash"]


@pytest.mark.parametrize(
    ("repeated", "steps"),
    [
        pytest.param([(at(0), 17, GROUP, metadata(100 - n)) for n in range(60)], 2_000, id="created again and again"),
        pytest.param([(at(1), 17, GROUP, None)], 120, id="deleted"),
    ],
)
def test_members_that_are_looked_at_because_of_a_record_are_steps(repeated: list[Step], steps: int) -> None:
    joins = [(at(0), 19, {**GROUP, "member_id": f"m{n}"}, member()) for n in range(80)]
    folded = Fold.of("g", 3, None, replace(DEFAULT, steps=steps))
    with pytest.raises(OverBudgetError):
        folded.add(log((at(0), 17, GROUP, metadata(100)), *joins, *repeated))


@pytest.mark.parametrize(
    ("value", "assigned_at"),
    [
        ({"assignment_epoch": 2, "assignment_timestamp": 1_767_225_600_123}, at(0.123)),
        ({"assignment_epoch": 2, "assignment_timestamp": 0}, at(9)),
        (None, None),
    ],
    ids=["its own time", "that of the record", "deleted"],
)
def test_an_assignment_has_the_time_that_it_says_or_that_of_its_record(
    value: dict[str, int] | None, assigned_at: Any
) -> None:
    row = row_of(fold(log(*FIRST_JOIN, (at(9), 20, GROUP, value))))
    assert row["assigned_at"] == assigned_at


@pytest.mark.parametrize(("epochs", "expected"), [([5], 5), ([5, 6], 7), (None, 7)], ids=["own", "too many", "none"])
def test_a_task_has_its_own_assignment_epoch_or_that_of_its_member(epochs: list[int] | None, expected: int) -> None:
    value = current(7, active=[4])
    value["active_tasks"][0]["assignment_epochs"] = epochs
    row = row_of(fold(log(*FIRST_JOIN, (at(9), 22, M1, value))))
    assert [one["assignment_epoch"] for one in row["assignments"] if one["current"]] == [expected]
    assert [one["previous_member_epoch"] for one in row["members"]] == [6]
