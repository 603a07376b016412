"""Folding records into a group: the traces of broker 4.4.0, any order, any cut."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_app.core.life import Event, Life, LogRecord
from streaming_app.core.row import from_row, to_row
from tests.core.records import (
    FIRST_JOIN,
    GROUP,
    M1,
    START,
    TARGET,
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
    row = to_row("c", fold(log(*FIRST_JOIN)).life)
    assert row["members"][0]["process_id"] == "process"
    assert row["members"][0]["user_endpoint"] == "h:80"


def test_what_an_operation_undoes_itself_is_no_event() -> None:
    stable = fold(log(*FIRST_JOIN)).life
    rejoin = log(
        (at(9), 22, M1, None), (at(9), 21, M1, None), (at(9), 19, M1, None),
        (at(9), 19, M1, member()), (at(9), 21, M1, TARGET), (at(9), 22, M1, current(2, active=[0, 1])),
        first=7,
    )  # fmt: skip
    assert fold(rejoin, stable).events == []


@pytest.mark.parametrize("cut", range(1, 6))
def test_since_when_a_state_holds_does_not_depend_on_where_an_operation_is_cut(cut: int) -> None:
    """A static member rejoins within one operation: in between the group looks Empty, then Reconciling."""
    stable = fold(log(*FIRST_JOIN)).life
    assert (stable.state_since, stable.description_since) == (at(4), at(0))
    rejoin = log(
        (at(9), 22, M1, None), (at(9), 21, M1, None), (at(9), 19, M1, None),
        (at(9), 19, M1, member()), (at(9), 21, M1, TARGET), (at(9), 22, M1, current(2, active=[0, 1])),
        first=7,
    )  # fmt: skip
    first = fold(rejoin[:cut], stable)
    kept = from_row(to_row("c", first.life))
    assert kept.state != "Stable"
    second = fold(rejoin[cut:], kept)
    assert (second.life.state, second.life.state_since) == ("Stable", at(4))
    assert second.events == []
    assert {(event.kind, event.offset) for event in second.retracted} == {
        (event.kind, event.offset) for event in first.events
    }


def test_the_last_leave_makes_the_group_empty() -> None:
    stable = fold(log(*FIRST_JOIN)).life
    leave = log(
        (at(9), 22, M1, None), (at(9), 21, M1, None), (at(9), 19, M1, None), (at(9), 17, GROUP, metadata(3)),
        (at(9), 20, GROUP, {"assignment_epoch": 3, "assignment_timestamp": 0}),
        first=7,
    )  # fmt: skip
    left = fold(leave, stable)
    assert left.life.state == "Empty"
    assert ("member_left", "", None) in kinds(left.events) or ("member_left", "app", None) in kinds(left.events)
    assert ("assignment", "active 0_0,0_1", None) in kinds(left.events)


def test_a_deleted_group_keeps_its_row_and_a_new_life_starts_afresh() -> None:
    life = fold(log(*FIRST_JOIN)).life
    deleted = fold(
        log((at(9), 20, GROUP, None), (at(9), 17, GROUP, None), (at(9), 23, GROUP, None), first=7), life
    ).life
    assert (deleted.state, deleted.deleted_at) == ("Dead", at(9))
    reborn = fold(log(*[(at(20 + (w - START).seconds), t, k, v) for w, t, k, v in FIRST_JOIN], first=10), deleted)
    assert (reborn.life.state, reborn.life.deleted_at, reborn.life.first_seen_at) == ("Stable", None, at(20))
    assert ("created", None, "streams") in kinds(reborn.events)


@pytest.mark.parametrize("value", [None, {}], ids=["tombstone", "classic group"])
def test_a_classic_group_record_ends_a_streams_group(value: dict[str, Any] | None) -> None:
    life = fold(log(*FIRST_JOIN)).life
    ended = fold(log((at(9), 2, {}, value), first=7), life).life
    assert (ended.state, ended.group.group_type) == ("Dead", "streams" if value is None else "classic")


@pytest.mark.parametrize("record_type", [17, 19, 20, 21, 22, 23])
def test_a_tombstone_for_an_unknown_group_makes_no_row(record_type: int) -> None:
    nothing = fold(log((at(0), record_type, M1, None)))
    assert not nothing.touched
    assert not nothing.exists


def test_a_log_of_broker_4_1_does_not_tell_whether_a_group_is_ready() -> None:
    untold = [(w, t, k, metadata(2, validated=-1, configs=None) if t == 17 else v) for w, t, k, v in FIRST_JOIN]
    assert fold(log(*untold)).life.state == "Unknown"


def test_a_group_without_its_topics_is_not_ready() -> None:
    unready = [(w, t, k, metadata(2, validated=-1) if t == 17 else v) for w, t, k, v in FIRST_JOIN]
    assert fold(log(*unready)).life.state == "NotReady"


def test_any_order_of_the_records_gives_the_same_row() -> None:
    def settled(records: list[LogRecord]) -> dict[str, Any]:
        row = to_row("c", fold(records).life)
        times = ("state_since", "description_since", "first_seen_at", "updated_at", "last_changes", "assigned_at")
        return {name: value for name, value in row.items() if name not in times}

    newest = [FIRST_JOIN[i] for i in (0, 1, 2, 4, 5, 6)]
    backwards = [(at(5), kind, key, value) for _, kind, key, value in reversed(newest)]
    forwards = [(at(5), kind, key, value) for _, kind, key, value in newest]
    assert settled(log(*backwards)) == settled(log(*forwards))


@pytest.mark.parametrize("cut", range(1, len(FIRST_JOIN)))
def test_events_do_not_depend_on_where_the_log_is_cut(cut: int) -> None:
    records = log(*FIRST_JOIN)
    whole = fold(records)
    first = fold(records[:cut])
    second = fold(records[cut:], from_row(to_row("c", first.life)))
    kept = [e for e in first.events if e._replace(new=None) not in second.retracted]
    assert sorted(map(_told, kept + second.events)) == sorted(map(_told, whole.events))
    assert _without_changes(second.life) == _without_changes(whole.life)


def _told(event: Event) -> tuple[Any, ...]:
    return tuple(str(part) for part in event[:5])


def _without_changes(life: Life) -> dict[str, Any]:
    return {name: value for name, value in to_row("c", life).items() if name != "last_changes"}


def test_folding_the_same_records_again_changes_nothing() -> None:
    records = log(*FIRST_JOIN)
    life = fold(records).life
    again = fold(records, life)
    assert (again.touched, again.events) == (False, [])


def test_copartition_groups_are_told_by_name_and_a_bad_index_is_shown() -> None:
    row = to_row("c", fold(log(*FIRST_JOIN)).life)
    assert row["subtopologies"][0]["copartition_groups"] == [["b", "c.*", "r", "repartition_source_topics[9]"]]


def test_tasks_to_be_given_up_are_told_apart_from_current_ones() -> None:
    revoking = (at(9), 22, M1, current(2, state=2, active=[0], pending=[1]))
    rows = to_row("c", fold(log(*FIRST_JOIN, revoking)).life)["assignments"]
    told = {row["partition"]: (row["current"], row["target"], row["pending_revocation"]) for row in rows}
    assert told == {0: (True, True, False), 1: (False, True, True)}


def test_records_without_a_time_are_operations_of_their_own() -> None:
    timeless = [(None, kind, key, value) for _, kind, key, value in FIRST_JOIN]
    assert [e.new for e in fold(log(*timeless)).events if e.kind == "state"][-1] == "Stable"
