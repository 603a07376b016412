"""The Python stage of a batch, without Spark: what one record causes stays within its group."""

import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from streaming_app.groups.group import GroupEvent
from streaming_app.groups.partition import partition_of
from streaming_app.groups.topology import topology_hash
from streaming_app.stream import source
from streaming_app.stream.batch_rows import APPENDED, EVENTS, QUARANTINE, RETRACTED, TOPOLOGIES, join
from streaming_app.stream.fold_stage import fold_stream, sort_for_fold, stored_as_records
from streaming_app.stream.group_result import FoldOptions, GroupResult
from tests.support.encode import encode
from tests.support.encoded import metadata_record
from tests.support.event_chain import gaps
from tests.support.warehouses import arrow_schema

# A worker finds these modules by the functions that `mapInArrow` gets.
_OF_WORKERS = ("streaming_app.stream.fold_stage", "streaming_app.stream.newest_records")
_NOT_FOR_WORKERS = {"kafka", "cryptography", "urllib3", "pydantic", "deltalake", "pyspark", "click", "starlette"}
START = datetime(2026, 11, 1, tzinfo=timezone.utc)
_KINDS = (pa.binary(), pa.int64(), pa.int32(), pa.timestamp("us", "UTC"), pa.binary(), pa.binary())
RAW = pa.schema(zip(source.RAW, _KINDS, strict=True))
Pair = tuple[bytes | None, bytes | None]
TOO_LATE = 300_000_000_000_000  # ms: the year 11476
OPTIONS = FoldOptions("default", "topic")


def group(group_id: str, epoch: int = 2, members: Iterable[str] = ("m",)) -> list[Pair]:
    """A group whose members have joined at an epoch."""
    key = {"group_id": group_id}
    return [
        *(encode(19, {**key, "member_id": member}, {"client_id": "c"}) for member in members),
        encode(23, key, {"epoch": 0, "subtopologies": []}),
        metadata_record(key, epoch, validated_topology_epoch=0),
    ]


def assigned(group_id: str, epoch: int, at_ms: int = 0) -> Pair:
    return encode(20, {"group_id": group_id}, {"assignment_epoch": epoch, "assignment_timestamp": at_ms})


def records(pairs: Iterable[Pair], *, first: int = 0, partition: int = 0, second: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "group_bytes": key[4 : 4 + int.from_bytes(key[2:4], "big")] if key else None,
            "offset": first + number,
            "partition": partition,
            "timestamp": START + timedelta(seconds=second),
            "key": key,
            "value": value,
        }
        for number, (key, value) in enumerate(pairs)
    ]


def fold_all(
    rows: list[dict[str, Any]], stored: Iterable[dict[str, Any]] | None = None, options: FoldOptions = OPTIONS
) -> dict[str, Any]:
    """Return the rows by table, and the counts."""
    raw = pa.Table.from_pylist(rows, RAW)
    kept = None if stored is None else stored_as_records(pa.Table.from_pylist(list(stored), arrow_schema("groups")))
    found = join(fold_stream(sort_for_fold(raw, kept).to_batches(), options))
    tables = {name: one.to_pylist() for name, one in found.tables.items()}
    return {**{name: [] for name in ("groups", RETRACTED, *APPENDED)}, **tables, "counts": found.counts}


def fold(
    rows: list[dict[str, Any]], stored: Iterable[dict[str, Any]] | None = None, options: FoldOptions = OPTIONS
) -> list[dict[str, Any]]:
    """Return the rows of the groups."""
    groups: list[dict[str, Any]] = fold_all(rows, stored, options)["groups"]
    return groups


def by_id(folded: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["group_id"]: row for row in folded}


def test_a_record_that_cannot_be_folded_goes_to_quarantine_and_the_other_records_count() -> None:
    rows = records([*group("bad"), assigned("bad", 2, TOO_LATE), *group("good"), assigned("good", 2)])
    folded = fold_all(rows)
    groups = by_id(folded["groups"])
    assert groups["bad"]["member_count"] == groups["good"]["member_count"] == 1
    assert groups["bad"]["assignment_epoch"] == 1
    assert groups["good"]["assignment_epoch"] == 2
    (refused,) = folded[QUARANTINE]
    assert (refused["error_kind"], refused["offset"], refused["partition"]) == ("UnfoldableRecord", 3, 0)
    assert (refused["key"], refused["value"], refused["topic"]) == (*assigned("bad", 2, TOO_LATE), "topic")
    assert folded["counts"][QUARANTINE] == 1


@pytest.mark.parametrize("us", [-1, TOO_LATE * 1_000, (1 << 63) - 1])
def test_a_record_with_a_time_that_python_cannot_hold_is_one_without_a_time(us: int) -> None:
    rows = [{**row, "timestamp": us} for row in records([*group("g"), (None, b"value")])]
    folded = by_id(fold(rows[:-1]))
    assert folded["g"]["member_count"] == 1
    assert (folded["g"]["updated_at"], folded["g"]["state_since"]) == (None, None)
    (refused,) = fold_all(rows[-1:])[QUARANTINE]
    assert (refused["value"], refused["timestamp"]) == (b"value", None)


def test_times_out_of_order_or_missing_change_neither_state_nor_history() -> None:
    """State and order come from offsets, times are as written: a clock may be set back, a mirrored topic has none."""
    at, member = {"group_id": "g"}, {"group_id": "g", "member_id": "m"}
    stored = {"epoch": 2, "validated_topology_epoch": 0, "last_assignment_configs": []}
    pairs = [  # a member joins, gets its assignment, becomes stable, and pushes a description twice
        encode(19, member, {"client_id": "c"}),
        encode(23, at, {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["in"]}]}),
        encode(17, at, stored),
        encode(20, at, {"assignment_epoch": 2}),
        encode(22, member, {"member_epoch": 2, "state": 1}),
        encode(17, at, {**stored, "stored_description_topology_epoch": 0}),
        encode(17, at, {**stored, "stored_description_topology_epoch": -2}),
        encode(17, at, {**stored, "stored_description_topology_epoch": 0}),
    ]
    jumping = [START + timedelta(seconds=second) for second in (0, -60, 0, 60, -86_400, 0, -1, 0)]
    without = [datetime.fromtimestamp(-0.001, timezone.utc)] * len(pairs)  # as Spark shows Kafka's -1
    for written, times in ((jumping, [None, *(jumping[n] for n in (4, 7, 6, 7))]), (without, [None] * 5)):
        folded = fold_all([{**one, "timestamp": time} for one, time in zip(records(pairs), written, strict=True)])
        (row,) = folded["groups"]
        wanted = {"state": "Stable", "description_status": "CURRENT", "unsolicited_pushes": 1, "member_count": 1}
        assert {name: row[name] for name in wanted} == wanted
        events = [GroupEvent(**{name: one[name] for name in GroupEvent._fields}) for one in folded[EVENTS]]
        assert list(gaps("g", events, row)) == []
        states = [event.new for event in sorted(events, key=lambda one: one.offset) if event.kind == "state"]
        assert states == ["Assigning", "Reconciling", "Stable"]
        # No operation holds both the topology and record 17, so the log does not prove when the group was created.
        columns = ("first_seen_at", "state_since", "description_since", "last_unsolicited_push_at", "updated_at")
        assert [row[name] for name in columns] == times
        assert written is jumping or {event.at for event in events} == {None}


def let_rows_be_too_large(monkeypatch: pytest.MonkeyPatch, *group_ids: str) -> None:
    """Let the rows of these groups have a value that Arrow cannot hold."""

    def too_large(self: Any, fold: Any) -> dict[str, Any]:
        rows = with_group(self, fold)
        (row,) = rows["groups"]
        return {**rows, "groups": [row | {"group_epoch": 1 << 40}]} if row["group_id"] in group_ids else rows

    with_group = GroupResult.with_group
    monkeypatch.setattr(GroupResult, "with_group", too_large)


def test_a_group_whose_row_arrow_cannot_hold_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its row as it was, of which a release reads all records again."""
    before = fold(records([*group("bad"), *group("good")]))
    let_rows_be_too_large(monkeypatch, "bad", "new")
    many = [one for epoch in (3, 4, 5) for name in ("bad", "good", "new") for one in group(name, epoch)]
    folded = fold_all(records([*many, assigned("bad", 5, TOO_LATE)], first=50), before)
    rows = by_id(folded["groups"])
    assert (rows["good"]["group_epoch"], rows["good"]["set_aside_reason"]) == (5, None)
    assert (rows["bad"]["group_epoch"], rows["bad"]["last_offset"]) == (2, 2)  # as it was
    assert rows["new"]["state"] == "Unknown"
    for name in ("bad", "new"):
        assert rows[name]["set_aside_reason"].startswith("ArrowInvalid: ")
        assert name not in {one["group_id"] for one in folded[EVENTS]}
    (refused,) = folded[QUARANTINE]
    assert (refused["offset"], refused["error_kind"]) == (50 + len(many), "UnfoldableRecord")  # for itself
    assert folded["counts"]["decoded"] == len(many) + 1
    assert folded["counts"][QUARANTINE] == 1


def other_partition(group_id: str, partitions: int) -> tuple[int, int]:
    here = partition_of(group_id, partitions)
    return here, (here + 1) % partitions


def test_a_record_in_the_partition_that_now_holds_the_group_starts_its_row_over() -> None:
    now, before = other_partition("g", 4)
    options = FoldOptions("default", "topic", partitions=4)
    stored = fold(records(group("g", 90), first=5_000, partition=before), options=options)
    assert [one["source_partition"] for one in stored] == [before]
    (row,) = fold(records(group("g", 7), partition=now), stored, options)
    assert (row["group_epoch"], row["source_partition"], row["last_offset"]) == (7, now, 2)
    again = fold_all(records(group("g", 91), first=6_000, partition=before), [row], options)
    assert [one["error_kind"] for one in again[QUARANTINE]] == ["LeftoverRecord"] * 3
    assert again["groups"] == []


@pytest.mark.parametrize(("grew", "groups"), [(False, 1), (True, 0)])
def test_records_left_in_an_old_partition_count_only_where_the_topic_never_grew(grew: bool, groups: int) -> None:
    _, before = other_partition("g", 4)
    options = FoldOptions("default", "topic", partitions=4, partitions_grew=grew)
    assert len(fold(records(group("g"), partition=before), options=options)) == groups


def test_reading_again_ends_an_operation_where_the_history_ends() -> None:
    """As the batch did that wrote the history, so that its events are retracted and not emitted a second time."""
    whole = records([*group("g", 2, ["m", "n"])])
    first = fold(whole[:2])
    second = fold_all(whole[2:], first)
    again = fold_all(whole, options=FoldOptions("default", "topic", history_offsets={EVENTS: {0: 1}}))
    assert again[RETRACTED] == second[RETRACTED] != []
    assert again[EVENTS] == second[EVENTS] != []


def test_a_batch_gives_the_new_topologies_of_a_group_and_none_that_is_known() -> None:
    def deployed(topics: list[str]) -> list[Pair]:
        subtopology = {"subtopology_id": "0", "source_topics": topics}
        topology = encode(23, {"group_id": "g"}, {"epoch": 0, "subtopologies": [subtopology]})
        return [topology, encode(17, {"group_id": "g"}, {"epoch": 2})]

    gone = [encode(kind, {"group_id": "g"}, None) for kind in (17, 23)]
    first = fold_all(records(deployed(["a"]), partition=4))
    same = fold_all(records([*gone, *deployed(["a"])], first=2, partition=4, second=9), first["groups"])
    other = fold_all(records([*gone, *deployed(["b"])], first=6, partition=4, second=19), same["groups"])
    (row,), (topology,) = other["groups"], other[TOPOLOGIES]
    assert (len(first[TOPOLOGIES]), len(same[TOPOLOGIES])) == (1, 0)
    assert (topology["source_partition"], topology["offset"], topology["topology_epoch"]) == (4, 8, 0)
    assert topology["subtopologies"][0]["source_topics"] == ["b"]
    assert [(one["old"], one["new"]) for one in other[EVENTS] if one["kind"] == "topology"] == [
        (first["groups"][0]["topology_hash"], row["topology_hash"])
    ]
    assert topology["topology_hash"] == row["topology_hash"] == topology_hash(topology["subtopologies"])


@pytest.mark.parametrize(
    ("key", "group_id"),
    [(b"\x00\x63\x00\x01g", "g"), (b"\x00\x63\x00\x02\xff\xfe", None), (b"\x00\x11\x00\x09g", None), (b"", None)],
)
@pytest.mark.parametrize("other", [True, False], ids=["with another record", "alone"])
def test_a_record_in_quarantine_names_its_group_whatever_else_is_in_the_batch(
    key: bytes, group_id: str | None, other: bool
) -> None:
    (row,) = fold_all(records([*(group("g") if other else []), (key, b"?")]))[QUARANTINE]
    assert row["group_id"] == group_id


def test_unknown_tags_are_counted() -> None:
    tagged = bytes.fromhex("0000 00000002 0000000000000000 02 02 04 00000005 09 01 00")  # tag 2 is 5, tag 9 unknown
    folded = fold_all(records([(b"\x00\x11\x00\x01g", tagged)]))
    assert [folded["counts"][name] for name in ("decoded", "drifted", QUARANTINE)] == [1, 1, 0]
    (row,) = folded["groups"]
    assert (row["stored_description_epoch"], row["failed_description_epoch"]) == (5, -1)


@pytest.mark.parametrize("module", _OF_WORKERS)
def test_a_worker_loads_nothing_that_only_the_driver_needs(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert "pyarrow" in loaded
    assert loaded & _NOT_FOR_WORKERS == set()
