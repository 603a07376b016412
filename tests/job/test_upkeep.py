"""Upkeep: what is due is done, rows go when their time is over, and none else."""

from __future__ import annotations

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
from tests.job.frames import Row, batch

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

    def records(group: str, days_ago: float, *, deleted: bool) -> list[Row]:
        pairs = [encode(17, {"group_id": group}, {"epoch": 2}), (b"\x00\x18\x00\x01g", b"?")]
        pairs += [encode(17, {"group_id": group}, None)] if deleted else []
        at = now - timedelta(days=days_ago)
        return [(len(rows) + i, at, k, v) for i, (k, v) in enumerate(pairs)]

    rows: list[Row] = []
    for group, days_ago, deleted in (("old", 40, True), ("kept", 40, False), ("new", 1, True)):
        rows += records(group, days_ago, deleted=deleted)
    for number, row in enumerate(rows):
        taken(batch(spark, [row]), number)
        assert bool(lines) == (number == len(rows) - 1)
        seconds[0] += 24 * 3600 * (number == len(rows) - 2)

    opened = Served(tmp_path)
    assert [row["group_id"] for row in opened.rows("SELECT group_id FROM groups ORDER BY group_id")] == ["kept", "new"]
    assert {row["group_id"] for row in opened.rows("SELECT group_id FROM group_events")} == {"new"}
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
