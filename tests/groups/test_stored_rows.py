"""Rows of `groups` that older releases and other programs wrote, and rows with values that the log does not prove."""

from typing import Any

import pytest

from streaming_app.groups.row import from_row
from streaming_app.groups.task_copies import copies_of_row
from streaming_app.groups.topology import sources_hash
from tests.groups.records import FIRST_JOIN, GROUP, M1, M2, TOPOLOGY, at, current, fold, log, member, metadata
from tests.groups.test_compacted import row_of


def stored(**columns: Any) -> dict[str, Any]:
    """Return the row of a stable group, with other values in these columns."""
    return row_of(fold(log(*FIRST_JOIN))) | columns


def test_a_group_of_an_older_release_that_is_created_again_keeps_nothing_of_before() -> None:
    """It did not write when the newest record 17 was read."""
    again = fold(log((at(60), 17, GROUP, metadata(1)), first=9), from_row(stored(metadata_at=None, assigned_at=None)))
    assert (row_of(again)["group_epoch"], row_of(again)["members"]) == (1, [])


def test_an_assignment_of_which_an_older_release_kept_no_cause_has_an_unknown_one() -> None:
    row = stored(group_epoch=3, causes_since_assignment=None)
    assigned = fold(
        log((at(60), 20, GROUP, {"assignment_epoch": 3, "assignment_timestamp": 0}), first=9), from_row(row)
    )
    assert [one.cause for one in assigned.events if one.kind == "assignment_epoch"] == ["unknown"]


def test_tasks_of_a_member_that_another_program_took_out_of_the_row_are_left_out() -> None:
    revoking = (at(9), 22, M1, current(2, state=2, active=[0], pending=[1]))
    row = row_of(fold(log(*FIRST_JOIN, revoking)))
    group = from_row({**row, "members": []})
    assert (group.members, set(group.targets)) == ({}, {"m1"})
    assert copies_of_row({**row, "members": None}) == []


def test_groups_have_the_same_sources_if_they_read_the_same_topics() -> None:
    """The hash is stored: a group under a new id is compared with one of which another release wrote the row."""
    (part,) = stored()["subtopologies"]
    assert sources_hash([part]) == stored()["sources_hash"] == "0b47f00f59ad7817"
    assert sources_hash([{**part, "source_topics": ["a"]}, {**part, "source_topics": ["b"]}]) == "0b47f00f59ad7817"
    assert sources_hash([{**part, "source_topics": ["a"]}]) != "0b47f00f59ad7817"


def test_members_whose_time_is_not_known_are_left_out_of_since_when_there_are_members() -> None:
    newer = (at(20), 23, GROUP, {**TOPOLOGY, "epoch": 1})
    row = row_of(fold(log(*FIRST_JOIN, (None, 19, M2, member()), newer)))
    assert (row["members_since"], row["stale_member_count"], row["stale_members_since"]) == (at(0), 2, at(20))
    row = row_of(fold(log((None, 19, M2, member()), newer)))
    assert (row["members_since"], row["stale_members_since"]) == (None, None)


@pytest.mark.parametrize(
    ("epoch", "solicitable"), [(2, True), (1, True), (0, True), (-1, False), (-2, False)], ids="epoch {}".format
)
def test_only_a_member_that_is_there_is_asked_for_the_description(epoch: int, *, solicitable: bool) -> None:
    row = row_of(fold(log(*FIRST_JOIN, (at(9), 22, M1, current(epoch)))))
    assert row["solicitable"] is solicitable
