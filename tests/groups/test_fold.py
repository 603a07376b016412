"""Folding records into a group: records of broker 4.4.0, in any order, cut into batches at any place."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_app.groups.group import Event, GroupState, LogRecord
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import (
    FIRST_JOIN,
    GROUP,
    M1,
    START,
    TARGET,
    TOPOLOGY,
    at,
    current,
    fold,
    log,
    member,
    metadata,
)


def kinds(events: list[Event]) -> list[tuple[str, str | None, str | None]]:
    return [(event.kind, event.old, event.new) for event in events]


def test_a_first_join_goes_through_assigning_and_reconciling_to_stable() -> None:
    states = [(e.at, e.new) for e in fold(log(*FIRST_JOIN)).events if e.kind == "state"]
    assert states == [(at(0), "Assigning"), (at(3), "Reconciling"), (at(4), "Stable")]


def test_the_first_record_of_a_group_is_not_lost() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group_state)
    assert row["members"][0]["process_id"] == "process"
    assert row["members"][0]["user_endpoint"] == "h:80"


def test_a_change_that_its_operation_reverts_is_not_an_event() -> None:
    stable = fold(log(*FIRST_JOIN)).group_state
    rejoin = log(
        (at(9), 22, M1, None), (at(9), 21, M1, None), (at(9), 19, M1, None),
        (at(9), 19, M1, member()), (at(9), 21, M1, TARGET), (at(9), 22, M1, current(2, active=[0, 1])),
        first=7,
    )  # fmt: skip
    assert fold(rejoin, stable).events == []


@pytest.mark.parametrize("cut", range(1, 6))
def test_the_time_of_a_state_does_not_depend_on_where_an_operation_is_cut(cut: int) -> None:
    """A static member rejoins within one operation: in between the group is Empty, then Reconciling."""
    stable = fold(log(*FIRST_JOIN)).group_state
    assert (stable.state_since, stable.description_since) == (at(4), at(0))
    rejoin = log(
        (at(9), 22, M1, None), (at(9), 21, M1, None), (at(9), 19, M1, None),
        (at(9), 19, M1, member()), (at(9), 21, M1, TARGET), (at(9), 22, M1, current(2, active=[0, 1])),
        first=7,
    )  # fmt: skip
    first = fold(rejoin[:cut], stable)
    stored = from_row(to_row("c", first.group_state))
    assert stored.state != "Stable"
    second = fold(rejoin[cut:], stored)
    assert (second.group_state.state, second.group_state.state_since) == ("Stable", at(4))
    assert second.events == []
    assert {(event.kind, event.offset) for event in second.retracted} == {
        (event.kind, event.offset) for event in first.events
    }


def test_the_group_is_empty_after_the_last_member_left() -> None:
    stable = fold(log(*FIRST_JOIN)).group_state
    leave = log(
        (at(9), 22, M1, None), (at(9), 21, M1, None), (at(9), 19, M1, None), (at(9), 17, GROUP, metadata(3)),
        (at(9), 20, GROUP, {"assignment_epoch": 3, "assignment_timestamp": 0}),
        first=7,
    )  # fmt: skip
    left = fold(leave, stable)
    assert left.group_state.state == "Empty"
    assert ("member_left", "", None) in kinds(left.events) or ("member_left", "app", None) in kinds(left.events)
    assert ("assignment", "active 0_0,0_1", None) in kinds(left.events)


def test_a_deleted_group_keeps_its_row_and_a_new_group_with_its_id_starts_empty() -> None:
    stable = fold(log(*FIRST_JOIN)).group_state
    deleted = fold(
        log((at(9), 20, GROUP, None), (at(9), 17, GROUP, None), (at(9), 23, GROUP, None), first=7), stable
    ).group_state
    assert (deleted.state, deleted.deleted_at) == ("Dead", at(9))
    records = log(*[(at(20 + (w - START).seconds), t, k, v) for w, t, k, v in FIRST_JOIN], first=10)
    recreated = fold(records, deleted)
    group_state = recreated.group_state
    assert (group_state.state, group_state.deleted_at, group_state.first_seen_at) == ("Stable", None, at(20))
    assert ("created", None, "streams") in kinds(recreated.events)


@pytest.mark.parametrize("value", [None, {}], ids=["tombstone", "classic group"])
def test_a_record_of_a_classic_group_deletes_the_streams_group(value: dict[str, Any] | None) -> None:
    stable = fold(log(*FIRST_JOIN)).group_state
    deleted = fold(log((at(9), 2, {}, value), first=7), stable).group_state
    assert (deleted.state, deleted.group.group_type) == ("Dead", "streams" if value is None else "classic")


@pytest.mark.parametrize("record_type", [17, 19, 20, 21, 22, 23])
def test_a_tombstone_for_an_unknown_group_creates_no_row(record_type: int) -> None:
    result = fold(log((at(0), record_type, M1, None)))
    assert not result.touched
    assert not result.exists


def test_a_log_of_broker_4_1_does_not_contain_whether_a_group_is_ready() -> None:
    records = [(w, t, k, metadata(2, validated=-1, configs=None) if t == 17 else v) for w, t, k, v in FIRST_JOIN]
    assert fold(log(*records)).group_state.state == "Unknown"


def test_a_group_without_its_topics_is_not_ready() -> None:
    not_ready = [(w, t, k, metadata(2, validated=-1) if t == 17 else v) for w, t, k, v in FIRST_JOIN]
    assert fold(log(*not_ready)).group_state.state == "NotReady"


def test_any_order_of_the_records_gives_the_same_row() -> None:
    def row_without_times(records: list[LogRecord]) -> dict[str, Any]:
        row = to_row("c", fold(records).group_state)
        times = ("state_since", "description_since", "first_seen_at", "updated_at", "last_changes", "assigned_at")
        return {name: value for name, value in row.items() if name not in times}

    newest = [FIRST_JOIN[i] for i in (0, 1, 2, 4, 5, 6)]
    backwards = [(at(5), kind, key, value) for _, kind, key, value in reversed(newest)]
    forwards = [(at(5), kind, key, value) for _, kind, key, value in newest]
    assert row_without_times(log(*backwards)) == row_without_times(log(*forwards))


@pytest.mark.parametrize("cut", range(1, len(FIRST_JOIN)))
def test_events_do_not_depend_on_where_the_log_is_cut(cut: int) -> None:
    records = log(*FIRST_JOIN)
    whole = fold(records)
    first = fold(records[:cut])
    second = fold(records[cut:], from_row(to_row("c", first.group_state)))
    retracted = {event[:4] + event[5:6] for event in second.retracted}
    kept = [event for event in first.events if event[:4] + event[5:6] not in retracted]
    assert sorted(map(_without_offset, kept + second.events)) == sorted(map(_without_offset, whole.events))
    assert _without_changes(second.group_state) == _without_changes(whole.group_state)


def _without_offset(event: Event) -> tuple[Any, ...]:
    return tuple(str(part) for part in (*event[:5], *event[6:]))


def _without_changes(group_state: GroupState) -> dict[str, Any]:
    return {name: value for name, value in to_row("c", group_state).items() if name != "last_changes"}


def test_folding_the_same_records_again_has_no_effect() -> None:
    records = log(*FIRST_JOIN)
    again = fold(records, fold(records).group_state)
    assert (again.touched, again.events) == (False, [])


def test_copartition_groups_contain_topic_names_and_an_index_out_of_range_is_shown() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group_state)
    assert row["subtopologies"][0]["copartition_groups"] == [["b", "c.*", "r", "repartition_source_topics[9]"]]


def test_tasks_pending_revocation_are_not_current_tasks() -> None:
    revoking = (at(9), 22, M1, current(2, state=2, active=[0], pending=[1]))
    rows = to_row("c", fold(log(*FIRST_JOIN, revoking)).group_state)["assignments"]
    flags = {row["partition"]: (row["current"], row["target"], row["pending_revocation"]) for row in rows}
    assert flags == {0: (True, True, False), 1: (False, True, True)}


def test_each_record_without_a_time_is_its_own_operation() -> None:
    without_times = [(None, kind, key, value) for _, kind, key, value in FIRST_JOIN]
    assert [e.new for e in fold(log(*without_times)).events if e.kind == "state"][-1] == "Stable"


def test_a_row_that_another_program_changed_still_takes_records() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group_state)
    assert any(task["current"] for task in row["assignments"])
    second = fold(log((at(9), 17, GROUP, metadata(3)), first=9), from_row({**row, "members": []}))
    assert second.group_state.group.group_epoch == 3


def test_a_field_that_an_older_release_did_not_write_keeps_its_default() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).group_state)
    older = from_row(row | {"unsolicited_pushes": None, "stored_description_epoch": None})
    assert (older.unsolicited_pushes, older.group.stored_description_epoch) == (0, -1)


def test_a_group_with_members_and_without_a_topology_is_not_ready() -> None:
    folded = fold(log(*(step for step in FIRST_JOIN if step[1] != 23)))
    assert folded.group_state.state == "NotReady"


def test_a_member_that_left_temporarily_has_no_tasks_and_its_newest_record_is_its_departure() -> None:
    folded = fold(log(*FIRST_JOIN, (at(9), 22, M1, None)))
    row = to_row("c", folded.group_state)
    (left,) = row["members"]
    assert (left["member_epoch"], left["previous_member_epoch"], left["updated_at"]) == (-1, -1, at(9))
    assert [task["target"] for task in row["assignments"]] == [True, True]
    assert not any(task["current"] or task["pending_revocation"] for task in row["assignments"])


def test_a_description_of_a_member_is_its_newest_record() -> None:
    folded = fold(log(*FIRST_JOIN, (at(9), 19, M1, member())))
    assert folded.group_state.group.members["m1"].updated_at == at(9)


def test_a_topology_epoch_has_the_times_of_what_was_recorded_of_it_also_before_it_was_read() -> None:
    steps = [
        (at(5), 17, GROUP, metadata(3, validated=4, stored=4, failed=5)),
        (at(7), 23, GROUP, {**TOPOLOGY, "epoch": 4}),
    ]
    row = to_row("c", fold(log(*FIRST_JOIN, *steps)).group_state)
    times = {epoch["topology_epoch"]: epoch for epoch in row["topology_epochs"]}
    assert times[4]["first_seen_at"] == times[4]["validated_at"] == times[4]["description_stored_at"] == at(5)
    assert (times[5]["description_failed_at"], times[5]["description_stored_at"]) == (at(5), None)
    assert to_row("c", from_row(row))["topology_epochs"] == row["topology_epochs"]


def test_a_row_of_a_deleted_group_is_that_of_a_deleted_group_also_if_the_time_is_not_known() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN, (None, 17, GROUP, None))).group_state)
    assert (row["state"], row["deleted_at"]) == ("Dead", None)
    assert from_row(row).group.deleted
    assert from_row({**row, "state": "Stable", "deleted_at": at(9)}).group.deleted


def test_only_what_changes_a_row_touches_it() -> None:
    stored = fold(log(*FIRST_JOIN)).group_state
    again = fold(log(*FIRST_JOIN), stored)
    assert not again.touched
    again.set_not_ready_reason("MISSING_SOURCE_TOPICS: a")
    assert again.touched
    deleted = fold(log((at(9), 17, GROUP, None), first=20), stored).group_state
    as_classic = fold(log((at(12), 2, {"group": "g"}, {}), first=30), deleted)
    assert (as_classic.touched, as_classic.group_state.group.group_type) == (True, "classic")


def test_a_topology_that_is_deleted_leaves_nothing_of_it() -> None:
    group = fold(log(*FIRST_JOIN, (at(9), 23, GROUP, None))).group_state.group
    assert (group.topology_epoch, group.subtopologies, group.state) == (None, [], "NotReady")


def test_a_state_of_a_member_that_no_release_has_is_unknown() -> None:
    group = fold(log(*FIRST_JOIN, (at(9), 22, M1, current(2, state=9)))).group_state.group
    assert (group.members["m1"].member_state, group.state) == ("UNKNOWN", "Reconciling")


def test_a_client_id_that_is_read_later_is_no_event() -> None:
    first = fold(log((at(0), 17, GROUP, metadata()), (at(0), 22, M1, current(2))))
    later = fold(log((at(5), 19, M1, member()), first=10), first.group_state)
    assert later.group_state.group.members["m1"].client_id == "app"
    assert [event.kind for event in later.events if event.member_id == "m1"] == []
