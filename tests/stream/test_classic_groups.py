"""Groups of Kafka Streams with the classic protocol in a batch, without Spark."""

from typing import Any

from streaming_app.groups.budget import Budget
from streaming_app.groups.marked_rows import marked
from streaming_app.stream.batch_rows import EVENTS, QUARANTINE
from streaming_app.stream.group_result import FoldOptions
from tests.groups.classic_records import AT_ONCE, P2, assignment, generation, subscription, thread
from tests.stream.test_fold_stage import Pair, by_id, fold, fold_all, group, records
from tests.support.encode import encode

M1 = thread("m1", subscription(sums={(0, 0): 4}), assignment([(0, 0)]))
M2 = thread("m2", subscription(P2), assignment([(1, 0)]))


def classic(group_id: str, value: dict[str, Any] | None) -> Pair:
    key, data = encode(2, {"group": group_id}, value)
    return key, None if value is None else data


def other(group_id: str) -> Pair:
    """A classic group of plain consumers."""
    return classic(group_id, {**generation(1, M1), "protocol": "range"})


def test_rows_have_the_columns_of_the_tables_and_events_the_protocol() -> None:
    found = fold_all(records([classic("g", generation(1, M1, M2)), *group("s")]))
    rows = by_id(found["groups"])
    assert (rows["g"]["protocol"], rows["s"]["protocol"]) == ("classic", "streams")
    assert rows["g"]["members"][0]["task_sums"] == [
        {"subtopology_id": "0", "partition": 0, "task_offset": 4, "at_end": False}
    ]
    assert {(one["group_id"], one["protocol"]) for one in found[EVENTS]} == {("g", "classic"), ("s", "streams")}
    again = fold(records([classic("g", generation(2))], first=9), found["groups"])
    assert (again[0]["state"], again[0]["group_epoch"]) == ("Empty", 2)


def test_other_classic_groups_give_no_row_and_are_not_decoded() -> None:
    key, _ = other("c")
    undecodable = key, b"\x00\x03\x00\x07connect" + b"\xff" * 9
    found = fold_all(records([other("a"), undecodable, classic("e", generation(4)), classic("t", None)]))
    assert (found["groups"], found[EVENTS], found[QUARANTINE]) == ([], [], [])


def test_a_record_that_does_not_decode_changes_no_row_and_is_left_to_the_query_of_the_commits() -> None:
    key, value = classic("g", generation(1, M1))
    stored = fold(records([(key, value)]))
    assert value
    found = fold_all(records([(key, value[:-3])], first=5), stored)
    assert (found["groups"], found[QUARANTINE]) == ([], [])


def test_without_the_setting_they_give_no_row_and_end_a_streams_group_as_others_do() -> None:
    off = FoldOptions("default", "topic", classic_streams=False)
    assert fold(records([classic("g", generation(1, M1))]), options=off) == []
    (row,) = fold(records([*group("g"), classic("g", generation(1, M1))]), options=off)
    assert (row["state"], row["group_type"], row["protocol"]) == ("Dead", "classic", "streams")


def test_a_group_that_is_read_again_keeps_joins_and_topics_that_only_its_row_proves() -> None:
    first = fold(records([classic("g", generation(1, M1, M2))]))
    moving = thread("m1", subscription(), assignment([(0, 0)], next_rebalance=AT_ONCE))
    (stored,) = fold(records([classic("g", generation(2, moving))], first=4, second=9), first)
    again = {**stored, "last_offset": marked(stored["last_offset"])}
    (row,) = fold(records([classic("g", generation(2, moving))], first=4, second=9), [again])
    names = ("first_seen_at", "members", "subtopologies", "state")
    assert {name: row[name] for name in names} == {name: stored[name] for name in names}
    assert row["known_before"] is None


def test_half_surrogates_in_names_are_no_reason_to_lose_a_group() -> None:
    told = subscription(tags={"zone": "a"}).replace(b"zone", b"\xed\xa0\x80e")
    (row,) = fold(records([classic("g", generation(1, thread("m1", told, assignment([(0, 0)]))))]))
    assert (row["member_count"], row["set_aside_reason"]) == (1, None)


def test_a_group_over_its_budget_is_set_aside_as_a_classic_group() -> None:
    options = FoldOptions("default", "topic", budget=Budget(members=1))
    (row,) = fold(records([classic("g", generation(1, M1, M2))]), options=options)
    assert "2 members" in row["set_aside_reason"]
    assert (row["group_type"], row["protocol"]) == ("classic", "classic")
