"""Folding records into a group: records of broker 4.4.0, in any order, cut into batches at any place."""

import pytest

from streaming_app.groups.group import Group
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import FIRST_JOIN, GROUP, M1, TOPOLOGY, at, current, fold, log, metadata


@pytest.mark.parametrize("record_type", [17, 19, 20, 21, 22, 23])
def test_a_tombstone_for_an_unknown_group_creates_no_row(record_type: int) -> None:
    result = fold(log((at(0), record_type, M1, None)))
    assert not result.touched
    assert not result.group.is_known


def test_the_state_of_a_new_group_is_derived_once_for_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    derived, derive = [], Group.derive
    monkeypatch.setattr(Group, "derive", lambda group: derived.append(group) or derive(group))
    fold(log(*FIRST_JOIN[:4]))
    assert len(derived) == 1


def test_copartition_groups_contain_topic_names_and_an_index_out_of_range_is_shown() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group)
    assert row["subtopologies"][0]["copartition_groups"] == [["b", "c.*", "r", "repartition_source_topics[9]"]]


def test_a_row_that_another_program_changed_still_takes_records() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group)
    assert any(task["current"] for task in row["assignments"])
    second = fold(log((at(9), 17, GROUP, metadata(3)), first=9), from_row({**row, "members": []}))
    assert second.group.group_epoch == 3


def test_a_field_that_an_older_release_did_not_write_keeps_its_default() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group)
    older = from_row(row | {"unsolicited_pushes": None, "stored_description_epoch": None})
    assert (older.unsolicited_pushes, older.stored_description_epoch) == (0, -1)


def test_a_member_that_left_temporarily_has_no_tasks_and_its_newest_record_is_its_departure() -> None:
    folded = fold(log(*FIRST_JOIN, (at(9), 22, M1, None)))
    row = to_row("c", folded.group)
    (left,) = row["members"]
    assert (left["member_epoch"], left["previous_member_epoch"], left["updated_at"]) == (-1, -1, at(9))
    assert [task["target"] for task in row["assignments"]] == [True, True]
    assert not any(task["current"] or task["pending_revocation"] for task in row["assignments"])


def test_a_topology_epoch_has_the_times_of_what_was_recorded_of_it_also_before_it_was_read() -> None:
    steps = [
        (at(5), 17, GROUP, metadata(3, validated=4, stored=4, failed=5)),
        (at(7), 23, GROUP, {**TOPOLOGY, "epoch": 4}),
    ]
    row = to_row("c", fold(log(*FIRST_JOIN, *steps)).group)
    times = {epoch["topology_epoch"]: epoch for epoch in row["topology_epochs"]}
    assert times[4]["first_seen_at"] == times[4]["validated_at"] == times[4]["description_stored_at"] == at(5)
    assert (times[5]["description_failed_at"], times[5]["description_stored_at"]) == (at(5), None)
    assert to_row("c", from_row(row))["topology_epochs"] == row["topology_epochs"]


def test_a_row_of_a_deleted_group_is_that_of_a_deleted_group_also_if_the_time_is_not_known() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN, (None, 17, GROUP, None))).group)
    assert (row["state"], row["deleted_at"]) == ("Dead", None)
    assert from_row(row).is_deleted
    assert from_row({**row, "state": "Stable", "deleted_at": at(9)}).is_deleted


def test_only_what_changes_a_row_touches_it() -> None:
    stored = fold(log(*FIRST_JOIN)).group
    again = fold(log(*FIRST_JOIN), stored)
    assert not again.touched
    again.set_not_ready_reason("MISSING_SOURCE_TOPICS: a")
    assert again.touched
    deleted = fold(log((at(9), 17, GROUP, None), first=20), stored).group
    as_classic = fold(log((at(12), 2, {"group": "g"}, {}), first=30), deleted)
    assert (as_classic.touched, as_classic.group.group_type) == (True, "classic")


def test_a_state_of_a_member_that_no_release_has_is_unknown() -> None:
    group = fold(log(*FIRST_JOIN, (at(9), 22, M1, current(2, state=9)))).group
    assert (group.members["m1"].member_state, group.state) == ("UNKNOWN", "Reconciling")
