"""Groups far larger than usual: nothing is cut off, and the cost of a record does not grow with its group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offsets_decoder import decode, encode
from streaming_app.groups.fold import Fold
from streaming_app.groups.group import LogRecord
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.spark_writer import SparkWriter
from tests.support.encoded import group_records, metadata_record
from tests.support.frames import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
GROUP = {"group_id": "g"}
Pair = tuple[bytes, bytes | None]
MEMBERS, SUBTOPOLOGIES = 5_000, 500


def of(member: int) -> dict[str, str]:
    return {**GROUP, "member_id": f"member-{member}"}


def tasks(member: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": [2 * member, 2 * member + 1]}]


def rebalance(members: int, epoch: int) -> Iterator[Pair]:
    """Yield the records of a group whose members are all stable at an epoch."""
    yield encode(23, GROUP, {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["in"]}]})
    for member in range(members):
        yield encode(19, of(member), {"client_id": "app", "client_host": "/10.0.0.1"})
    yield metadata_record(GROUP, epoch, validated_topology_epoch=0)
    for member in range(members):
        yield encode(21, of(member), {"active_tasks": tasks(member)})
    yield encode(20, GROUP, {"assignment_epoch": epoch})
    for member in range(members):
        yield heartbeat(member, epoch)


def heartbeat(member: int, epoch: int) -> Pair:
    return encode(22, of(member), {"member_epoch": epoch, "state": 1, "active_tasks": tasks(member)})


def test_five_thousand_members_with_their_tasks_are_all_there(spark: SparkSession, empty_warehouse: Path) -> None:
    warehouse = SparkWriter(spark, str(empty_warehouse), "default")
    write = GroupsBatchWriter(warehouse, "default", "topic", lambda *_: None)
    first = list(rebalance(MEMBERS, 2))
    write(batch(spark, [(n, START, key, value) for n, (key, value) in enumerate(first)]), 0)
    metadata = {"epoch": 3, "validated_topology_epoch": 0, "last_assignment_configs": []}
    second = [encode(17, GROUP, metadata), encode(20, GROUP, {"assignment_epoch": 3})]
    second += [heartbeat(member, 3) for member in range(MEMBERS)]
    rows = [(len(first) + n, START + timedelta(seconds=1 + n), *pair) for n, pair in enumerate(second)]
    write(batch(spark, rows[:-1]), 1)
    states = "SELECT state, member_count FROM groups"
    assert WarehouseReader(empty_warehouse).rows(states) == [{"state": "Reconciling", "member_count": MEMBERS}]
    write(batch(spark, rows[-1:]), 2)
    opened = WarehouseReader(empty_warehouse)
    assert opened.rows(states) == [{"state": "Stable", "member_count": MEMBERS}]
    counts = "SELECT count(*) AS n, count(DISTINCT member_id) AS m FROM assignments WHERE current AND target"
    assert opened.rows(counts) == [{"n": 2 * MEMBERS, "m": MEMBERS}]
    joined = "SELECT count(*) AS n FROM group_events WHERE kind = 'member_joined'"
    assert opened.rows(joined) == [{"n": MEMBERS}]


def test_five_hundred_subtopologies_are_all_there(spark: SparkSession, empty_warehouse: Path) -> None:
    def part(number: int) -> dict[str, Any]:
        return {
            "subtopology_id": str(number),
            "source_topics": [f"in-{number}", f"in-{number + 1}"],
            "repartition_source_topics": [{"name": f"g-{number}-repartition", "topic_configs": []}],
            "state_changelog_topics": [
                {"name": f"g-{number}-changelog", "topic_configs": [{"key": "cleanup.policy", "value": "compact"}]}
            ],
            "copartition_groups": [{"source_topics": [0, 1], "repartition_source_topics": [0]}],
        }

    pair = encode(23, GROUP, {"epoch": 0, "subtopologies": [part(number) for number in range(SUBTOPOLOGIES)]})
    warehouse = SparkWriter(spark, str(empty_warehouse), "default")
    write = GroupsBatchWriter(warehouse, "default", "topic", lambda *_: None)
    write(batch(spark, [(0, START, *pair)]), 0)
    later = metadata_record(GROUP, 2)
    write(batch(spark, [(1, START + timedelta(seconds=1), *later)]), 1)  # its row is read, and written again
    rows = WarehouseReader(empty_warehouse).rows("SELECT * FROM subtopologies")
    assert {row["subtopology_id"] for row in rows} == {str(number) for number in range(SUBTOPOLOGIES)}
    last = next(row for row in rows if row["subtopology_id"] == "499")
    assert last["copartition_groups"] == [["in-499", "in-500", "g-499-repartition"]]
    assert last["state_changelog_topics"][0]["name"] == "g-499-changelog"


def test_the_cost_of_a_record_does_not_grow_with_its_group() -> None:
    """Counted, not timed: the calls of a fold in which every member of a group heartbeats once."""

    def calls(members: int) -> int:
        decoded = [decode(key, value) for key, value in rebalance(members, 2)]
        decoded += [decode(*heartbeat(member, 3)) for member in range(members)]
        records = [
            LogRecord(n, START + timedelta(seconds=n), one.record_type, one.key, one.value)
            for n, one in enumerate(decoded)
        ]
        folding, counted = Fold.of("g", 0, None), 0

        def count(*_: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            folding.add(records)
            folding.close()
        finally:
            sys.setprofile(None)
        return counted

    assert calls(400) < 4.5 * calls(100)


def test_a_group_with_very_many_records_does_not_hold_up_the_others_of_its_batch(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = [metadata_record({"group_id": "heavy"}, epoch, metadata_hash=epoch) for epoch in range(2, 20_102)]
    honest = [list(group_records(f"honest-{number}", 2)) for number in range(3)]
    pairs = [*honest[0], *epochs[:9_000], *honest[1], *epochs[9_000:], *honest[2]]
    records = batch(spark, [(n, START + timedelta(milliseconds=n), *pair) for n, pair in enumerate(pairs)])
    write = GroupsBatchWriter(SparkWriter(spark, str(empty_warehouse), "default"), "default", "topic", lambda *_: None)
    write_part, written = write._write_small, list[object]()

    def die_after_the_first(*part: Any) -> object:
        if written:
            raise RuntimeError("the job dies")
        written.append(write_part(*part))
        return written[0]

    monkeypatch.setattr(write, "_write_small", die_after_the_first)
    with pytest.raises(RuntimeError):
        write(records, 0)
    groups = "SELECT group_id, group_epoch FROM groups ORDER BY group_id"
    expected = [{"group_id": f"honest-{number}", "group_epoch": 2} for number in range(3)]
    assert WarehouseReader(empty_warehouse).rows(groups) == expected

    again = GroupsBatchWriter(SparkWriter(spark, str(empty_warehouse), "default"), "default", "topic", lambda *_: None)
    again(records, 0)
    opened = WarehouseReader(empty_warehouse)
    assert opened.rows(groups) == [{"group_id": "heavy", "group_epoch": 20_101}, *expected]
    events = "SELECT group_id, count(*) AS n, count(DISTINCT e.offset) AS d FROM group_events e GROUP BY 1 ORDER BY 1"
    counts = {row["group_id"]: (row["n"], row["d"]) for row in opened.rows(events)}
    assert counts["heavy"][1] == 20_100
    assert counts["honest-0"] == counts["honest-1"] == counts["honest-2"]
    created = "SELECT count(*) AS n FROM group_events WHERE kind = 'created'"
    assert opened.rows(created) == [{"n": 4}]
