"""Maintenance does what is due for each table, and deletes expired rows only."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from offsets_decoder import encode
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.tables import group_rows, maintenance, newest_tables, reader, table_creation
from streaming_app.tables.expiry import delete_expired
from streaming_app.tables.group_files import group_files, spans_of
from streaming_app.tables.maintenance import MaintainedTable, maintain_all, maintained_tables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.table_files import MAINTAINED_AFTER, TableFiles
from streaming_app.tables.writer import TableWriter
from tests.support.frames import Pair, Row, batch, expect_few_records
from tests.support.warehouses import make_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NAMES = ("groups", "group_events", "quarantine")


def of_writer(writer: TableWriter, days: float = 30) -> list[MaintainedTable]:
    found = {one.own.location.name: one for one in maintained_tables(writer, days, days)}
    return [found[name] for name in NAMES]


def let_all_be_due(tables: Iterable[MaintainedTable]) -> None:
    for one in tables:
        one.own.uses.commits += MAINTAINED_AFTER


def expire(writer: TableWriter, name: str, days: float) -> int:
    own = writer.table(name)
    return delete_expired(own, TableFiles(own), writer.table("groups"), days)


@pytest.fixture
def writer(spark: SparkSession, empty_warehouse: Path) -> TableWriter:
    expect_few_records(empty_warehouse)
    return TableWriter(spark, str(empty_warehouse), "default")


def write_batches(writer: TableWriter, **settings: Any) -> Callable[[DataFrame, int], None]:
    return GroupsBatchWriter(writer, FoldOptions("default", "topic"), lambda *_: None, **settings)


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
    write_batch = write_batches(writer)
    offsets = itertools.count()

    def records(group: str, days_ago: float, *, deleted: bool) -> list[Row]:
        pairs = [encode(17, {"group_id": group}, {"epoch": 2}), (b"\x00\x18\x00\x01g", b"?")]
        pairs += [encode(17, {"group_id": group}, None)] if deleted else []
        at = now - timedelta(days=days_ago)
        return [(next(offsets), at, key, value) for key, value in pairs]

    for number, (group, days_ago, deleted) in enumerate((("old", 40, True), ("kept", 40, False), ("new", 1, True))):
        write_batch(batch(spark, records(group, days_ago, deleted=deleted)), number)
    maintain_all(of_writer(writer), lambda: False, lines.append)

    opened = WarehouseReader(empty_warehouse)
    assert [row["group_id"] for row in opened.rows("SELECT group_id FROM groups ORDER BY group_id")] == ["kept", "new"]
    assert {row["group_id"] for row in opened.rows("SELECT group_id FROM group_events")} == {"kept", "new"}
    assert len(opened.rows("SELECT * FROM quarantine")) == 1
    assert any("expired rows of group_events deleted" in line for line in lines)

    newest = spark.sql(f"DESCRIBE DETAIL delta.`{empty_warehouse}/groups`").collect()[0]
    assert newest["numFiles"] == 1


@pytest.mark.parametrize(
    ("name", "filled", "per_key"), [("offset_commits", "metadata", 4), ("groups", "client_host", 1)]
)
def test_a_table_is_compacted_in_less_memory_than_its_rows_take(
    name: str, filled: str, per_key: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SORT_MEMORY", "24M")
    monkeypatch.setattr(group_rows, "_AT_A_TIME", 1)  # files with ids of the whole range are many
    monkeypatch.setattr(newest_tables, "_FILE_BYTES", 1 << 20)
    writer = TableWriter(cast("Any", None), make_warehouse(tmp_path, as_the_job=True), "default")
    own, count = writer.table(name), 20_000
    row = {"topic": "t", "partition": 0, "committed_offset": 1, filled: "x" * 1_000}
    for part in range(4):
        numbers = range(part, count, 4)
        own.append(own.to_table(row | {"group_id": f"g{one // per_key}", "last_offset": part} for one in numbers))
    (table,) = (one for one in maintained_tables(writer, 30, 30) if one.own is own)
    let_all_be_due([table])
    table.maintain()
    found = own.select("group_id", f"last_offset >= {per_key - 1}")
    assert len({*found["group_id"].to_pylist()}) == found.num_rows == own.count_rows() == count // per_key
    files = group_files(own.open(), "default")
    assert len(spans_of(files)) == len(files) > 4, "a reader of one group reads one file"


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
    deleted = expire(writer, "group_events", 30)
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
    assert expire(writer, "group_events", 30) == 0

    writer.table("groups").delete()
    expire(writer, "group_events", 30)
    assert len(WarehouseReader(empty_warehouse).rows(query)) == 2, (
        "events of a deleted group are kept for the retention only"
    )


def test_the_log_of_old_versions_is_removed_and_the_table_stays_usable(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"):
        monkeypatch.setitem(table_creation._PROPERTIES, name, "interval 1 minute")
    monkeypatch.setitem(table_creation._PROPERTIES, "delta.checkpointInterval", "3")
    monkeypatch.setattr(maintenance, "_COMMITS_PER_CHECKPOINT", 3)
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
    MaintainedTable(writer.table("groups")).maintain()
    assert len(list(log.glob("*.json"))) < len(before) / 2
    write(8)
    assert WarehouseReader(tmp_path).rows("SELECT group_epoch FROM groups") == [{"group_epoch": 10}]
    assert spark.read.format("delta").load(f"{tmp_path}/groups").count() == 1


def test_a_failure_keeps_no_other_table_from_its_maintenance_and_comes_again_when_it_is_due(
    spark: SparkSession, empty_warehouse: Path, writer: TableWriter
) -> None:
    write_batch, lines = write_batches(writer), list[str]()
    for number in range(3):
        key, value = encode(17, {"group_id": "g"}, {"epoch": 2 + number})
        write_batch(batch(spark, [(number, datetime.now(timezone.utc), key, value)]), number)
    tables = of_writer(writer)[::-1]
    assert tables[0].own.location.name == "quarantine"
    lost = empty_warehouse / "quarantine"
    lost.rename(empty_warehouse / "away")

    def maintain() -> None:
        maintain_all(tables, lambda: False, lines.append)

    with pytest.raises(OSError, match=r"^Cannot write the table quarantine: [^\n]+$"):
        maintain()
    assert spark.sql(f"DESCRIBE DETAIL delta.`{empty_warehouse}/groups`").collect()[0]["numFiles"] == 1
    maintain()  # nothing is due
    let_all_be_due(tables)
    with pytest.raises(OSError, match="quarantine"):
        maintain()
    (empty_warehouse / "away").rename(lost)
    let_all_be_due(tables)
    maintain()
    assert not any(one.is_due() for one in tables)
