"""Upkeep: what is due is done, rows go when their time is over, and none else."""

from __future__ import annotations

import itertools
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offsets_decoder import encode
from streaming_app.job import tables
from streaming_app.job.pipeline import Pipeline
from streaming_app.job.tables import Warehouse
from streaming_app.job.upkeep import COMMITS, Upkeep
from streaming_app.serve.warehouse import Warehouse as Served
from tests.job.frames import Pair, Row, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_old_history_and_long_dead_groups_go_and_files_are_compacted(spark: SparkSession, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    lines: list[str] = []
    seconds = [1_000_000.0]
    upkeep = Upkeep(warehouse, tmp_path / "_jobs" / "done", 30, lines.append, lambda: seconds[0])
    taken = Pipeline(warehouse, "default", "topic", lambda *_: None, upkeep=upkeep)

    offsets = itertools.count()

    def records(group: str, days_ago: float, *, deleted: bool) -> list[Row]:
        pairs = [encode(17, {"group_id": group}, {"epoch": 2}), (b"\x00\x18\x00\x01g", b"?")]
        pairs += [encode(17, {"group_id": group}, None)] if deleted else []
        at = now - timedelta(days=days_ago)
        return [(next(offsets), at, key, value) for key, value in pairs]

    for number, (group, days_ago, deleted) in enumerate((("old", 40, True), ("kept", 40, False), ("new", 1, True))):
        taken(batch(spark, records(group, days_ago, deleted=deleted)), number)
        assert bool(lines) == (number == 2)
        seconds[0] += 24 * 3600 * (number == 1)

    opened = Served(tmp_path)
    assert [row["group_id"] for row in opened.rows("SELECT group_id FROM groups ORDER BY group_id")] == ["kept", "new"]
    assert {row["group_id"] for row in opened.rows("SELECT group_id FROM group_events")} == {"kept", "new"}
    assert len(opened.rows("SELECT * FROM quarantine")) == 1
    assert any("old rows of group_events dropped" in line for line in lines)

    files = len(list((tmp_path / "groups").rglob("*.parquet")))
    assert files > 1
    for _ in range(COMMITS):
        upkeep.after_batch(wrote=True)
    assert any("files compacted" in line for line in lines)
    opened = Served(tmp_path)
    assert [row["group_id"] for row in opened.rows("SELECT group_id FROM groups ORDER BY group_id")] == ["kept", "new"]
    newest = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path}/groups`").collect()[0]
    assert newest["numFiles"] == 1


def test_of_old_history_stays_what_was_still_so(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    taken = Pipeline(warehouse, "default", "topic", lambda *_: None)
    group = {"group_id": "g"}
    now = datetime.now(timezone.utc)

    def rebalance(epoch: int, members: dict[str, list[int]], leaves: str | None = None) -> list[Pair]:
        pairs = [encode(23, group, {"epoch": 0, "subtopologies": [{"subtopology_id": "1"}]})]
        if leaves:
            pairs += [encode(kind, {**group, "member_id": leaves}, None) for kind in (22, 21, 19)]
        pairs.append(encode(17, group, {"epoch": epoch, "validated_topology_epoch": 0}))
        for member in members:
            pairs.append(encode(19, {**group, "member_id": member}, {"client_id": member}))
        pairs.append(encode(20, group, {"assignment_epoch": epoch}))
        for member, partitions in members.items():
            tasks = [{"subtopology_id": "1", "partitions": partitions}]
            current = {"member_epoch": epoch, "state": 1, "active_tasks": tasks}
            pairs.append(encode(22, {**group, "member_id": member}, current))
        return pairs

    pushed = {"epoch": 4, "validated_topology_epoch": 0, "stored_description_topology_epoch": 0}
    told = [
        (50, rebalance(2, {"stays": [0], "left": [1]})),
        (45, rebalance(3, {"stays": [0, 1]}, leaves="left")),
        (40, rebalance(4, {"stays": [0, 1], "came": [2]})),
        (39, [encode(17, group, pushed), encode(17, group, pushed)]),
        (20, [encode(17, group, {**pushed, "epoch": 5})]),
    ]
    times = [(now - timedelta(days=days), pair) for days, pairs in told for pair in pairs]
    rows = [(offset, at, key, value) for offset, (at, (key, value)) in enumerate(times)]
    taken(batch(spark, rows), 0)

    asked = "SELECT kind, member_id, new FROM group_events ORDER BY kind, member_id, new"
    before = Served(tmp_path).rows(asked)
    gone = warehouse.trim("group_events", "at", 30)
    after = Served(tmp_path).rows(asked)
    assert gone == len(before) - len(after)
    assert [tuple(row.values()) for row in after] == [
        ("assignment", "came", "active 1_2"),
        ("assignment", "stays", "active 1_0,1_1"),
        ("assignment_epoch", None, "4"),
        ("created", None, "streams"),
        ("description_status", None, "CURRENT"),
        ("failed_description_epoch", None, "-1"),
        ("group_epoch", None, "4"),
        ("group_epoch", None, "5"),
        ("member_joined", "came", "came"),
        ("member_joined", "stays", "stays"),
        ("state", None, "Assigning"),
        ("state", None, "Stable"),
        ("stored_description_epoch", None, "0"),
        ("topology_epoch", None, "0"),
        ("validated_topology_epoch", None, "0"),
    ]
    assert warehouse.trim("group_events", "at", 30) == 0

    warehouse.forget_groups()
    warehouse.trim("group_events", "at", 30)
    assert len(Served(tmp_path).rows(asked)) == 2, "events of a group that is gone stay for their own time only"


def test_the_log_of_old_versions_goes_and_the_table_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tables._PROPERTIES, "delta.logRetentionDuration", "interval 1 minute")
    monkeypatch.setitem(tables._PROPERTIES, "delta.checkpointInterval", "3")
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    taken = Pipeline(warehouse, "default", "topic", lambda *_: None)

    def take(number: int) -> None:
        key, value = encode(17, {"group_id": "g"}, {"epoch": 2 + number})
        taken(batch(spark, [(number, datetime.now(timezone.utc), key, value)]), number)

    for number in range(8):
        take(number)
    before = list((tmp_path / "groups" / "_delta_log").iterdir())
    long_ago = time.time() - 3600
    for file in before:
        os.utime(file, (long_ago, long_ago))
    warehouse.forget_versions("groups")
    left = list((tmp_path / "groups" / "_delta_log").iterdir())
    assert len(left) < len(before) / 2
    take(8)
    assert Served(tmp_path).rows("SELECT group_epoch FROM groups") == [{"group_epoch": 10}]
    assert spark.read.format("delta").load(f"{tmp_path}/groups").count() == 1
