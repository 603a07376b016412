"""Kafka Streams with the classic protocol: the row, events and copies that records of type 2 give."""

from datetime import datetime
from struct import pack
from typing import Any

import pytest

from streaming_app.groups.budget import Budget, OverBudgetError
from streaming_app.groups.fold import Fold
from streaming_app.groups.group import LogRecord
from streaming_app.groups.row import from_row, to_row
from streaming_app.groups.task_copies import copies_of_row
from streaming_app.queries.described import member_rows
from tests.groups.classic_records import (
    AT_ONCE,
    P1,
    P2,
    P3,
    assignment,
    generation,
    records,
    subscription,
    thread,
)
from tests.groups.records import FIRST_JOIN, GROUP, at, fold, log

PROBING = round(at(600).timestamp() * 1000)
M1 = thread("m1", subscription(P1), assignment([(0, 0), (0, 1)]))
M2 = thread("m2", subscription(P2), assignment([(1, 0), (1, 1)]))


def kinds(result: Fold, *wanted: str) -> list[str]:
    return [event.kind for event in result.events if not wanted or event.kind in wanted]


def tasks(row: dict[str, Any], *fields: str) -> list[str]:
    """Return `member role 0_1` of each row of `assignments` in which these fields are set."""
    return [
        f"{one['member_id']} {one['role']} {one['subtopology_id']}_{one['partition']}"
        for one in row["assignments"]
        if all(one[name] for name in fields or ("current",))
    ]


def test_a_first_generation_creates_the_group_with_its_threads_tasks_and_source_topics() -> None:
    told = subscription(P1, endpoint="h:80", tags={"zone": "a"})
    first = thread("m1", told, assignment([(0, 0), (1, 0)]), instance="i-1")
    result = fold(records(generation(1, first, M2)))
    row = to_row("c", result.group)
    facts = ("group_type", "protocol", "state", "group_epoch", "assignment_epoch", "member_count", "undecoded_members")
    assert [row[name] for name in facts] == ["classic", "classic", "Unknown", 1, None, 2, 0]
    assert (row["first_seen_at"], row["description_status"], row["solicitable"]) == (at(0), None, None)
    member = row["members"][0]
    assert (member["member_epoch"], member["instance_id"], member["client_id"]) == (1, "i-1", "g-m1")
    assert (member["client_host"], member["rebalance_timeout_ms"]) == ("/10.0.0.1", 300_000)
    assert (member["process_id"], member["user_endpoint"]) == ("00000000-0000-0000-0000-000000000001", "h:80")
    assert (member["client_tags"], member["client_version"]) == ([("zone", "a")], 11)
    assert (member["joined_at"], member["updated_at"], member["member_state"]) == (at(0), at(0), None)
    assert tasks(row) == tasks(row, "target") == ["m1 active 0_0", "m1 active 1_0", "m2 active 1_0", "m2 active 1_1"]
    assert [(one["subtopology_id"], one["source_topics"]) for one in row["subtopologies"]] == [
        ("0", ["words"]),
        ("1", ["letters"]),
    ]
    assert row["subtopologies"][1]["repartition_source_topics"][0]["name"] == "g-word-repartition"
    assert row["subtopologies"][1]["state_changelog_topics"] is None
    assert kinds(result) == ["created", "group_epoch", "member_joined", "assignment", "member_joined", "assignment"]
    assert {event.protocol for event in result.events} == {"classic"}


@pytest.mark.parametrize(("used", "newest", "release"), [(9, 11, "3.2 or newer"), (2, None, None), (9, 9, "2.8")])
def test_the_release_of_a_client_follows_from_the_newest_version_that_it_supports(
    used: int, newest: int | None, release: str | None
) -> None:
    latest = b"" if newest is None else pack(">i", newest)
    info = pack(">i", used) + latest + P1.bytes + (bytes(8) if used == 2 else b"") + bytes(4)
    info += bytes(4 + 1 + 4) if used == 9 else b""
    told = pack(">hi", 0, 0) + pack(">i", len(info)) + info
    row = to_row("c", fold(records(generation(1, thread("m1", told)))).group)
    assert (row["undecoded_members"], row["members"][0]["client_version"]) == (0, newest)
    (printed,) = member_rows([row], verbose=True)
    assert printed["CLIENT-VERSION"] == release


def test_a_record_that_a_static_member_wrote_again_has_the_time_of_its_generation() -> None:
    result = fold([LogRecord(9, at(5_000), 2, GROUP, generation(1, M1, entered=at(3)))])
    assert result.group.first_seen_at == at(3)


def test_threads_that_join_leave_and_move_tasks_are_events_with_the_cause_of_the_generation() -> None:
    stored = fold(records(generation(1, M1))).group
    moved = thread("m1", subscription(P1), assignment([(0, 0)]))
    joined = thread("m3", subscription(P2), assignment([(0, 1)]))
    result = fold(records(generation(2, moved, joined), first=1), stored)
    assert [(one.kind, one.member_id, one.new, one.cause) for one in result.events] == [
        ("group_epoch", None, "2", "member_joined"),
        ("assignment", "m1", "active 0_0", None),
        ("member_joined", "m3", "g-m3", None),
        ("assignment", "m3", "active 0_1", None),
    ]
    assert result.group.members["m3"].joined_at == at(1)
    left = fold(records(generation(3, moved), first=2), result.group)
    assert [(one.kind, one.member_id) for one in left.events] == [
        ("group_epoch", None),
        ("member_left", "m3"),
        ("assignment", "m3"),
    ]
    assert left.events[0].cause == "member_left"


def test_after_a_gap_in_which_compaction_may_have_removed_a_generation_a_join_has_no_time() -> None:
    stored = fold(records(generation(1, M1))).group
    soon = fold([LogRecord(5, at(600), 2, GROUP, generation(4, M1, M2))], from_row(to_row("c", stored)))
    assert soon.group.members["m2"].joined_at == at(600)
    late = fold([LogRecord(5, at(9_000), 2, GROUP, generation(4, M1, M2))], stored)
    assert (late.group.members["m1"].joined_at, late.group.members["m2"].joined_at) == (at(0), None)


def test_a_static_thread_that_is_back_is_a_replacement_in_the_same_generation() -> None:
    before = thread("i-old", subscription(P1), assignment([(0, 0)]), instance="i")
    after = thread("i-new", subscription(P1, {(0, 0): 7}), assignment([(0, 0)]), instance="i")
    stored = fold(records(generation(3, before))).group
    result = fold(records(generation(3, after, entered=at(3)), first=1), stored)
    joined = [(one.kind, one.member_id, one.instance_id) for one in result.events if one.kind.startswith("member")]
    assert joined == [("member_left", "i-old", "i"), ("member_joined", "i-new", "i")]
    assert not kinds(result, "group_epoch")
    assert tasks(to_row("c", result.group)) == ["i-new active 0_0"]


def test_a_task_that_changes_hands_is_the_target_of_its_next_owner_and_no_standby() -> None:
    old = thread("m1", subscription(P1, {(0, 0): -2, (0, 1): -2}), assignment([(0, 0)], next_rebalance=AT_ONCE))
    new = thread("m2", subscription(P2), assignment([], [(0, 1)], next_rebalance=AT_ONCE))
    row = to_row("c", fold(records(generation(2, old, new))).group)
    assert (row["tasks_moving"], row["probing_rebalance_at"]) == (True, None)
    assert tasks(row) == ["m1 active 0_0"]
    assert tasks(row, "target") == ["m1 active 0_0", "m2 active 0_1"]


def test_of_several_threads_that_hold_a_task_that_changes_hands_none_is_named_the_next_owner() -> None:
    old = thread("m1", subscription(P1, {(0, 1): -2}), assignment([], next_rebalance=AT_ONCE))
    others = [thread(one, subscription(P2), assignment([], [(0, 1)])) for one in ("m2", "m3")]
    row = to_row("c", fold(records(generation(2, old, *others))).group)
    assert row["assignments"] == []


def test_a_warm_up_is_the_copy_that_is_least_far_of_a_task_with_more_copies_than_others() -> None:
    sums = {(0, 0): -2, (1, 0): -2}
    first = thread("m1", subscription(P1, sums), assignment([(0, 0), (1, 0)]))
    second = thread("m2", subscription(P2, {(0, 0): 90, (1, 0): 90}), assignment([], [(0, 0), (1, 0)]))
    third = thread("m3", subscription(P3, {(0, 0): 5}), assignment([], [(0, 0)]))
    group = fold(records(generation(2, first, second, third))).group
    assert tasks(to_row("c", group))[2:] == ["m2 standby 0_0", "m2 standby 1_0", "m3 standby 0_0"]
    probing = {**third, "assignment": assignment([], [(0, 0)], next_rebalance=PROBING)}
    row = to_row("c", fold(records(generation(2, first, second, probing))).group)
    assert tasks(row)[2:] == ["m2 standby 0_0", "m2 standby 1_0", "m3 warmup 0_0"]
    assert row["probing_rebalance_at"] == at(600)


def test_up_to_2_5_a_standby_of_a_subtopology_of_which_nobody_told_state_is_no_copy() -> None:
    holder = thread("m2", subscription(P2), assignment([], [(0, 0), (1, 0)], version=6))
    first = thread("m1", subscription(P1, {(1, 0): 3}), assignment([(0, 0), (1, 0)]))
    row = to_row("c", fold(records(generation(2, first, holder))).group)
    assert tasks(row)[2:] == ["m2 standby 1_0"]
    assert [one["has_state"] for one in row["subtopologies"]] == [None, True]


def test_from_2_6_on_a_standby_proves_that_a_task_has_state_before_anybody_told_it() -> None:
    holder = thread("m2", subscription(P2), assignment([], [(1, 0)]))
    row = to_row("c", fold(records(generation(1, M1, holder))).group)
    assert tasks(row)[2:] == ["m2 standby 1_0"]
    assert [one["has_state"] for one in row["subtopologies"]] == [None, True]


def test_each_whole_topology_that_differs_is_kept_and_is_an_event() -> None:
    moving = thread("m1", subscription(P1), assignment([(0, 0)], next_rebalance=AT_ONCE))
    other = thread("m1", subscription(P1), assignment([(0, 0)], sources={0: ["other"]}))
    result = fold(records(generation(1, M1, M2), generation(2, moving), generation(3, other), generation(4)))
    found = [
        (one["first_seen_at"], [part["source_topics"] for part in one["subtopologies"]]) for one in result.topologies
    ]
    assert found == [(at(0), [["words"], ["letters"]]), (at(2), [["other"]])]
    first, second = result.topologies
    assert (first["topology_epoch"], second["topology_hash"]) == (None, result.group.topology_hash)
    assert [(one.at, one.old, one.new) for one in result.events if one.kind == "topology"] == [
        (at(2), first["topology_hash"], second["topology_hash"])
    ]
    assert not kinds(result, "deployment")  # other topics may match a pattern: the members are the same


def test_since_when_a_compacted_log_has_its_topology_is_not_known() -> None:
    (only,) = fold(records(generation(7, M1))).topologies
    assert only["first_seen_at"] is None


def test_topologies_of_two_protocols_are_not_compared() -> None:
    result = fold(log((at(9), 2, GROUP, generation(1, M1, entered=at(9))), first=7), fold(log(*FIRST_JOIN)).group)
    assert (len(result.topologies), kinds(result, "topology", "deployment")) == (1, [])
    back = fold(log((at(10), 2, {}, None), *FIRST_JOIN, first=8), result.group)
    assert (len(back.topologies), kinds(back, "topology", "deployment")) == (1, [])


def test_a_group_without_members_stays_empty_since_the_time_in_its_record() -> None:
    stored = fold(records(generation(1, M1))).group
    result = fold(records(generation(2, entered=at(0.5)), first=1), stored)
    row = to_row("c", result.group)
    assert (row["state"], row["state_since"], row["member_count"], row["deleted_at"]) == ("Empty", at(0.5), 0, None)
    assert (row["assignments"], len(row["subtopologies"])) == ([], 1)
    assert [(one.kind, one.old, one.new) for one in result.events if one.kind == "state"] == [("state", None, "Empty")]
    again = fold(records(generation(3, M1), first=2), result.group)
    assert (again.group.state, again.group.state_since) == ("Unknown", None)


def test_a_group_without_members_that_was_never_seen_with_any_has_no_row() -> None:
    result = fold(records(generation(2)))
    assert not result.touched
    assert not result.group.is_known


@pytest.mark.parametrize(
    "value",
    [None, {}, {**generation(2, M1), "protocol": "range"}, {**generation(2), "protocol_type": "", "members": [M1]}],
    ids=["a tombstone", "a record that is not decoded", "another assignor", "another protocol"],
)
def test_a_tombstone_and_a_record_of_another_protocol_delete_the_group(value: dict[str, Any] | None) -> None:
    stored = fold(records(generation(1, M1))).group
    result = fold(records(value, first=1), stored)
    row = to_row("c", result.group)
    assert (row["state"], row["deleted_at"], row["members"], row["assignments"]) == ("Dead", at(1), [], [])
    assert [(one.kind, one.protocol) for one in result.events] == [
        ("deleted", "classic"),
        ("state", "classic"),
        ("member_left", "classic"),
        ("assignment", "classic"),
    ]


def test_a_lower_generation_is_a_new_group() -> None:
    stored = fold(records(generation(7, M1))).group
    result = fold(records(generation(1, M1), first=1), stored)
    assert kinds(result, "created", "deleted") == ["created"]
    assert (result.group.first_seen_at, result.group.members["m1"].joined_at) == (at(1), at(1))


# --- Conversions ------------------------------------------------------------------------------------------------------


def conversions(result: Fold) -> list[tuple[Any, ...]]:
    wanted = {"created", "deleted", "protocol_changed"}
    return [(one.kind, one.at, one.old, one.new) for one in result.events if one.kind in wanted]


TO_CLASSIC = [
    *(
        (at(9), kind, key, None)
        for kind, key in ((22, {**GROUP, "member_id": "m1"}), (19, {**GROUP, "member_id": "m1"}))
    ),
    *((at(9), kind, GROUP, None) for kind in (23, 20, 17)),
    (at(9), 2, GROUP, {}),  # generation 0, which has no protocol: the broker writes it in the same operation
    (at(12), 2, GROUP, generation(1, {**M1, "member_id": "t1"}, entered=at(12))),
]


@pytest.mark.parametrize("steps", [TO_CLASSIC, TO_CLASSIC[-1:]], ids=["with tombstones", "without"])
def test_a_streams_group_that_goes_back_to_the_classic_protocol_is_converted(steps: list[Any]) -> None:
    stored = fold(log(*FIRST_JOIN)).group
    result = fold(log(*steps, first=7), stored)
    row = to_row("c", result.group)
    converted_at = at(9 if len(steps) > 1 else 12)  # without: compaction has removed the tombstones
    assert conversions(result) == [("protocol_changed", converted_at, "streams", "classic")]
    assert {one.member_id for one in result.events if one.kind == "member_joined" and one.at == at(12)} == {"t1"}
    assert (row["group_type"], row["protocol"], row["topology_epoch"], row["first_seen_at"]) == (
        "classic",
        "classic",
        None,
        converted_at,
    )
    assert [one["source_topics"] for one in row["subtopologies"]] == [["words"]]


@pytest.mark.parametrize("has_tombstone", [True, False])
def test_a_group_that_migrates_to_the_streams_protocol_is_converted(has_tombstone: bool) -> None:
    stored = fold(records(generation(1, M1), generation(3))).group
    first = [(at(0), 2, {}, None)] * has_tombstone
    result = fold(log(*first, *FIRST_JOIN, first=2), from_row(to_row("c", stored)))
    row = to_row("c", result.group)
    assert conversions(result) == [("protocol_changed", at(0), "classic", "streams")]
    (epoch,) = (one for one in result.events if one.kind == "group_epoch")
    assert (epoch.old, epoch.new, epoch.cause) == ("3", "2", "member_joined,protocol_changed")
    assert (row["group_type"], row["protocol"], row["state"]) == ("streams", "streams", "Stable")
    assert (row["undecoded_members"], row["tasks_moving"], row["first_seen_at"]) == (None, None, at(0))
    assert row["members"][0]["task_sums"] is None


def test_of_a_streams_group_that_other_clients_take_over_the_conversion_and_the_end_are_told() -> None:
    others = (at(12), 2, GROUP, {})
    result = fold(log(*TO_CLASSIC[:-1], others, first=7), fold(log(*FIRST_JOIN)).group)
    assert conversions(result) == [
        ("protocol_changed", at(9), "streams", "classic"),
        ("deleted", at(12), "classic", None),
    ]
    assert to_row("c", result.group)["state"] == "Dead"


def test_a_streams_group_that_was_deleted_before_a_classic_one_began_was_not_converted() -> None:
    deleted = [(at(8), 17, GROUP, None), *TO_CLASSIC[-2:]]
    result = fold(log(*deleted, first=7), fold(log(*FIRST_JOIN)).group)
    assert [one[0] for one in conversions(result)] == ["deleted", "created"]


def test_a_classic_group_that_was_deleted_before_the_streams_group_began_was_not_converted() -> None:
    stored = fold(records(generation(1, M1), generation(2), None)).group
    result = fold(log(*FIRST_JOIN, first=3), from_row(to_row("c", stored)))
    assert [one[0] for one in conversions(result)] == ["created"]


def test_a_tombstone_of_the_streams_protocol_does_not_delete_a_classic_group() -> None:
    stored = fold(records(generation(1, M1))).group
    assert not fold(log((at(9), 17, GROUP, None), first=9), stored).touched


# --- What cannot be decoded, and what is too large --------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00", b"\xff" * 40, subscription()[:-20], b"\x00\x01" + b"\x7f\xff\xff\xff" * 3]
)
def test_bytes_that_are_not_those_of_kafka_streams_are_counted_and_the_member_stays(garbage: bytes) -> None:
    row = to_row("c", fold(records(generation(1, M1, thread("m2", garbage, garbage)))).group)
    assert (row["member_count"], row["undecoded_members"]) == (2, 1)
    assert (row["members"][1]["process_id"], row["members"][1]["client_version"]) == (None, None)
    assert tasks(row) == ["m1 active 0_0", "m1 active 0_1"]


def test_a_time_of_the_next_rebalance_that_is_no_date_is_unknown() -> None:
    member = thread("m1", subscription(P1), assignment([(0, 0)], next_rebalance=(1 << 63) - 2))
    assert fold(records(generation(1, member))).group.probing_rebalance_at is None


@pytest.mark.parametrize(
    ("budget", "what"),
    [(Budget(members=1), "2 members"), (Budget(tasks=8), "11 tasks"), (Budget(bytes=300), "bytes of text")],
)
def test_the_budget_of_a_group_counts_threads_tasks_and_sums(budget: Budget, what: str) -> None:
    members = M1, thread("m2", subscription(P2, {(0, n): n for n in range(5)}), assignment([(1, 0)]))
    with pytest.raises(OverBudgetError, match=what):
        Fold.of("g", 3, None, budget).add(records(generation(1, *members)))


# --- Copies -----------------------------------------------------------------------------------------------------------


def copies(*threads: dict[str, Any]) -> list[tuple[str, str, str, int | None, int | None, datetime | None]]:
    row = to_row("c", fold(records(generation(1, *threads))).group)
    return sorted(
        (one.member_id, one.role, f"{one.subtopology_id}_{one.partition}", one.task_offset, one.lag, one.reported_at)
        for one in copies_of_row(row)
        if one.stateful and one.protocol == "classic"
    )


def test_copies_have_the_sums_that_threads_told_and_a_running_task_is_at_its_end() -> None:
    first = thread("m1", subscription(P1, {(0, 0): -2, (0, 1): 7}), assignment([(0, 0), (0, 1)], [(0, 2)]))
    second = thread("m2", subscription(P2, {(0, 0): 50}), assignment([(0, 2)], [(0, 0)]))
    assert copies(first, second) == [
        ("m1", "active", "0_0", None, 0, at(0)),
        ("m1", "active", "0_1", 7, None, at(0)),
        ("m1", "standby", "0_2", None, None, None),
        ("m2", "active", "0_2", None, None, None),
        ("m2", "standby", "0_0", 50, None, at(0)),
    ]


def test_a_thread_may_tell_the_sum_of_a_task_that_another_thread_of_its_process_has() -> None:
    first = thread("m1", subscription(P1, {(0, 1): 7}), assignment([(0, 0)]))
    second = thread("m2", subscription(P1, {(0, 0): 9}), assignment([(0, 1)]))
    assert copies(first, second) == [("m1", "active", "0_0", 9, None, at(0)), ("m2", "active", "0_1", 7, None, at(0))]


def test_state_that_is_left_on_a_disk_is_a_dormant_copy_unless_the_task_changes_hands() -> None:
    first = thread("m1", subscription(P1, {(0, 1): 7}), assignment([(0, 0)]))
    second = thread("m2", subscription(P2), assignment([(0, 1)]))
    assert ("m1", "dormant", "0_1", 7, None, at(0)) in copies(first, second)
    moving = thread("m2", subscription(P2), assignment([], next_rebalance=AT_ONCE))
    assert [one[1] for one in copies(first, moving)] == ["active"]


def test_all_threads_replaced_within_minutes_are_a_deployment() -> None:
    stored = fold(records(generation(1, M1))).group
    later = [
        LogRecord(1, at(2_000), 2, GROUP, generation(2, M1, thread("n1"))),
        LogRecord(2, at(2_060), 2, GROUP, generation(3, thread("n1"))),
    ]
    (deployed,) = [one for one in fold(later, stored).events if one.kind == "deployment"]
    assert (deployed.at, deployed.new, deployed.protocol) == (at(2_060), "processes", "classic")
