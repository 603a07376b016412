"""Maintenance runs the tasks that are due, and deletes expired rows only."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from offsets_decoder import encode
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.tables import rust_table, table_creation
from streaming_app.tables.definitions import table
from streaming_app.tables.maintenance import COMMITS_PER_COMPACTION, Maintenance
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.frames import Pair, Row, batch, expect_few_records
from tests.support.locks import WatchedLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def done(maintenance: Maintenance, *, wrote: bool = True) -> None:
    """Let a batch be done, and the maintenance that is due after it."""
    maintenance.after_batch(wrote=wrote)
    maintenance.run()


@pytest.fixture
def writer(spark: SparkSession, empty_warehouse: Path) -> TableWriter:
    expect_few_records(empty_warehouse)
    return TableWriter(spark, str(empty_warehouse), "default")


def write_batches(writer: TableWriter, **settings: Any) -> Callable[[DataFrame, int], None]:
    return GroupsBatchWriter(writer, "default", "topic", lambda *_: None, **settings)


def set_back(files: Iterable[Path]) -> None:
    """Let files be an hour older, and keep their order in time: Delta 4.4 skips a checkpoint as old as its entry."""
    for file in files:
        an_hour_earlier = file.stat().st_mtime - 3600
        os.utime(file, (an_hour_earlier, an_hour_earlier))


def test_expired_events_and_deleted_groups_are_removed_and_files_are_compacted(
    spark: SparkSession, empty_warehouse: Path, writer: TableWriter
) -> None:
    now = datetime.now(timezone.utc)
    lines: list[str] = []
    seconds = [1_000_000.0]
    tables = [table(name) for name in ("groups", "group_events", "quarantine")]
    done_at = empty_warehouse / "_jobs" / "done"
    maintenance = Maintenance(writer, done_at, 30, lines.append, lambda: seconds[0], tables=tables)
    write_batch = write_batches(writer, maintenance=maintenance)
    offsets = itertools.count()

    def records(group: str, days_ago: float, *, deleted: bool) -> list[Row]:
        pairs = [encode(17, {"group_id": group}, {"epoch": 2}), (b"\x00\x18\x00\x01g", b"?")]
        pairs += [encode(17, {"group_id": group}, None)] if deleted else []
        at = now - timedelta(days=days_ago)
        return [(next(offsets), at, key, value) for key, value in pairs]

    for number, (group, days_ago, deleted) in enumerate((("old", 40, True), ("kept", 40, False), ("new", 1, True))):
        write_batch(batch(spark, records(group, days_ago, deleted=deleted)), number)
        maintenance.run()
        assert bool(lines) == (number == 2)
        seconds[0] += 24 * 3600 * (number == 1)

    opened = WarehouseReader(empty_warehouse)
    assert [row["group_id"] for row in opened.rows("SELECT group_id FROM groups ORDER BY group_id")] == ["kept", "new"]
    assert {row["group_id"] for row in opened.rows("SELECT group_id FROM group_events")} == {"kept", "new"}
    assert len(opened.rows("SELECT * FROM quarantine")) == 1
    assert any("expired rows of group_events deleted" in line for line in lines)

    files = len(list((empty_warehouse / "groups").rglob("*.parquet")))
    assert files > 1
    for _ in range(COMMITS_PER_COMPACTION):
        done(maintenance)
    assert any("files compacted" in line for line in lines)
    opened = WarehouseReader(empty_warehouse)
    assert [row["group_id"] for row in opened.rows("SELECT group_id FROM groups ORDER BY group_id")] == ["kept", "new"]
    newest = spark.sql(f"DESCRIBE DETAIL delta.`{empty_warehouse}/groups`").collect()[0]
    assert newest["numFiles"] == 1


def test_expired_events_are_kept_if_their_state_still_held(
    spark: SparkSession, empty_warehouse: Path, writer: TableWriter
) -> None:
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
    log = [
        (50, rebalance(2, {"stays": [0], "left": [1]})),
        (45, rebalance(3, {"stays": [0, 1]}, leaves="left")),
        (40, rebalance(4, {"stays": [0, 1], "came": [2]})),
        (39, [encode(17, group, pushed), encode(17, group, pushed)]),
        (20, [encode(17, group, {**pushed, "epoch": 5})]),
    ]
    times = [(now - timedelta(days=days), pair) for days, pairs in log for pair in pairs]
    rows = [(offset, at, key, value) for offset, (at, (key, value)) in enumerate(times)]
    write_batches(writer)(batch(spark, rows), 0)

    query = "SELECT kind, member_id, new FROM group_events ORDER BY kind, member_id, new"
    before = WarehouseReader(empty_warehouse).rows(query)
    deleted = writer.delete_expired(table("group_events"), 30)
    after = WarehouseReader(empty_warehouse).rows(query)
    assert deleted == len(before) - len(after)
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
    assert writer.delete_expired(table("group_events"), 30) == 0

    writer.table("groups").delete()
    writer.delete_expired(table("group_events"), 30)
    assert len(WarehouseReader(empty_warehouse).rows(query)) == 2, (
        "events of a deleted group are kept for the retention only"
    )


def test_the_log_of_old_versions_is_removed_and_the_table_stays_usable(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"):
        monkeypatch.setitem(table_creation._PROPERTIES, name, "interval 1 minute")
    monkeypatch.setitem(table_creation._PROPERTIES, "delta.checkpointInterval", "3")
    monkeypatch.setattr(rust_table, "_COMMITS_PER_CHECKPOINT", 3)
    writer, log = TableWriter(spark, str(tmp_path), "default"), tmp_path / "groups" / "_delta_log"
    writer.prepare()
    expect_few_records(tmp_path)
    write_batch = write_batches(writer)

    def write(number: int) -> None:
        key, value = encode(17, {"group_id": "g"}, {"epoch": 2 + number})
        write_batch(batch(spark, [(number, datetime.now(timezone.utc), key, value)]), number)

    for number in range(8):
        write(number)
        if number < 3:
            spark.sql(f"ALTER TABLE delta.`{log.parent}` SET TBLPROPERTIES ('number' = '{number}')")
    before = list(log.glob("*.json"))
    set_back(log.iterdir())
    writer.clean_up_log("groups")
    assert len(list(log.glob("*.json"))) < len(before) / 2
    write(8)
    assert WarehouseReader(tmp_path).rows("SELECT group_epoch FROM groups") == [{"group_epoch": 10}]
    assert spark.read.format("delta").load(f"{tmp_path}/groups").count() == 1


def test_a_task_that_fails_neither_fails_the_batch_nor_keeps_other_tables_from_theirs(
    spark: SparkSession, empty_warehouse: Path, writer: TableWriter
) -> None:
    lines: list[str] = []
    failures: list[None] = []
    seconds = [1_000_000.0]
    done_at = empty_warehouse / "_jobs" / "done"
    maintenance = Maintenance(
        writer, done_at, 30, lines.append, lambda: seconds[0], on_failure=lambda: failures.append(None)
    )
    write_batch = write_batches(writer, maintenance=maintenance)
    for number in range(3):
        key, value = encode(17, {"group_id": "g"}, {"epoch": 2 + number})
        write_batch(batch(spark, [(number, datetime.now(timezone.utc), key, value)]), number)
    lost = empty_warehouse / "quarantine"
    lost.rename(empty_warehouse / "away")
    for _ in range(COMMITS_PER_COMPACTION):
        done(maintenance)
    assert len(failures) == 1
    assert lines[0].startswith("maintenance: compacting quarantine failed, trying again in 1 min: ")
    assert "\n" not in lines[0]
    assert lines[1].startswith("maintenance: files compacted, ")
    assert spark.sql(f"DESCRIBE DETAIL delta.`{empty_warehouse}/groups`").collect()[0]["numFiles"] == 1

    done(maintenance, wrote=False)  # too soon
    assert len(failures) == 1
    seconds[0] += 61
    done(maintenance, wrote=False)
    assert len(failures) == 2
    assert "trying again in 2 min" in lines[-1]
    (empty_warehouse / "away").rename(lost)
    seconds[0] += 121
    done(maintenance, wrote=False)
    assert len(failures) == 2
    assert lines[-1].startswith("maintenance: files compacted, ")


def test_no_task_runs_while_a_batch_writes_and_no_batch_waits_for_what_is_not_due(
    empty_warehouse: Path, writer: TableWriter
) -> None:
    lock, lines = WatchedLock(), list[str]()
    maintenance = Maintenance(writer, empty_warehouse / "done", 30, lines.append, between_batches=lock)
    for _ in range(COMMITS_PER_COMPACTION):
        maintenance.after_batch(wrote=True)
    with lock:  # a batch
        thread = Thread(target=maintenance.run)
        assert lock.holds_up(thread)
        assert lines == []
    thread.join()
    assert lines[0].startswith("maintenance: files compacted, ")

    with lock:
        maintenance.run()
