"""Logs that compaction has thinned out, groups created again without tombstones, and conversions of the group type.

Only what the log proves is in the row and in the events; what it does not prove is None.
"""

from typing import Any

from streaming_app.groups.row import to_row
from tests.groups.records import FIRST_JOIN, GROUP, M1, M2, TARGET, TOPOLOGY, at, current, fold, log, member, metadata


def row_of(folded: Any) -> dict[str, Any]:
    return to_row("c", folded.group)


def test_what_came_between_the_two_records_17_is_of_the_new_group() -> None:
    m3 = {"group_id": "g", "member_id": "m3"}
    gone = [(at(40), kind, M1, None) for kind in (22, 21, 19)]
    records = log(
        *gone,
        (at(60), 19, M2, member()),
        (at(60), 23, GROUP, TOPOLOGY),  # its record 17 was superseded, as were those at 61 and 62
        (at(61), 19, m3, member()),
        (at(62), 21, M2, TARGET),
        (at(62), 20, GROUP, {"assignment_epoch": 3, "assignment_timestamp": 0}),
        (at(63), 22, M2, current(3, active=[0, 1])),
        (at(64), 17, GROUP, metadata(4)),
        (at(65), 22, m3, current(3)),
        first=20,
    )  # fmt: skip
    old = fold(log(*FIRST_JOIN, (at(9), 17, GROUP, metadata(7)))).group
    found = fold(records, old)
    row = row_of(found)
    assert [one["member_id"] for one in row["members"]] == ["m2", "m3"]
    assert (row["group_epoch"], row["assignment_epoch"], row["topology_epoch"]) == (4, 3, 0)
    assert row["assignments"] == row_of(fold(records))["assignments"] != []
    assert [event.member_id for event in found.events if event.kind == "member_left"] == ["m1"]
    assert [event.member_id for event in found.events if event.kind == "member_joined"] == ["m2", "m3"]


def test_a_member_whose_record_is_of_the_operation_that_creates_the_group_again_is_a_member_of_it() -> None:
    """Its tombstone, and those of the group, are compacted away."""
    before = log(*FIRST_JOIN, (at(5), 17, GROUP, metadata(5)))
    again = log((at(900), 19, M1, member()), (at(900), 17, GROUP, metadata(2)), first=len(before))
    row = to_row("c", fold([*before, *again]).group)
    assert [(one["member_id"], one["member_epoch"]) for one in row["members"]] == [("m1", None)]
    assert row["assignments"] == []
