"""Maintenance does what is due for each table, and deletes expired rows only."""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from streaming_app.tables import group_rows, newest_tables, reader
from streaming_app.tables.expiry import delete_expired
from streaming_app.tables.group_files import group_files, spans_of
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable, maintain_all, maintained_tables
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_files import MAINTAINED_AFTER, TableFiles
from streaming_app.tables.writer import TableWriter
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

NAMES = ("groups", "group_events", "quarantine")
NOW = datetime.now(timezone.utc)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def of_writer(writer: TableWriter) -> list[MaintainedTable]:
    found = {one.own.location.name: one for one in maintained_tables(writer, 30, 30)}
    return [found[name] for name in NAMES]


def let_all_be_due(tables: Iterable[MaintainedTable]) -> None:
    for one in tables:
        one.own.uses.commits += MAINTAINED_AFTER


@pytest.fixture
def writer(tmp_path: Path) -> TableWriter:
    return TableWriter(cast("Any", None), make_warehouse(tmp_path / "warehouse", as_the_job=True), "default")


def add(writer: TableWriter, name: str, *rows: dict[str, Any]) -> None:
    """Append rows, each in a file of its own."""
    for row in rows:
        append(writer.location.path, name, row)


def found(writer: TableWriter, name: str) -> list[str]:
    return sorted(writer.table(name).select("group_id").column(0).to_pylist())


def test_expired_events_and_deleted_groups_are_removed_and_files_are_compacted(writer: TableWriter) -> None:
    lines: list[str] = []
    for number, (group, days, deleted) in enumerate((("old", 40, True), ("kept", 40, False), ("new", 1, True))):
        at, where = days_ago(days), {"group_id": group, "offset": number}
        add(writer, "groups", group_row(group, deleted_at=at if deleted else None))
        add(writer, "group_events", {**where, "kind": "created", "new": "streams", "at": at})
        add(writer, "quarantine", {**where, "partition": 0, "timestamp": at})
    maintain_all(of_writer(writer), lambda: False, lines.append)
    left = {"groups": ["kept", "new"], "group_events": ["kept", "new"], "quarantine": ["new"]}
    assert {name: found(writer, name) for name in NAMES} == left
    assert any("expired rows of quarantine deleted" in line for line in lines)
    assert len(group_files(writer.table("groups").open(), "default")) == 1


@pytest.mark.parametrize(
    ("name", "filled", "per_key"), [("offset_commits", "metadata", 4), ("groups", "client_host", 1)]
)
def test_a_table_is_compacted_in_less_memory_than_its_rows_take(
    name: str, filled: str, per_key: int, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SORT_MEMORY", "24M")
    monkeypatch.setattr(group_rows, "_AT_A_TIME", 1)  # files with ids of the whole range are many
    monkeypatch.setattr(newest_tables, "_FILE_BYTES", 1 << 20)
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


EVENTS = [  # days ago, kind, member, the new value, and whether its state still holds
    (50, "created", None, "streams", True),
    (50, "state", None, "Stable", False),
    (50, "group_epoch", None, "2", False),
    (50, "member_joined", "stays", "stays", True),
    (50, "member_joined", "left", "left", False),
    (50, "assignment", "left", "active 1_1", False),
    (45, "member_left", "left", None, False),
    (45, "assignment", "left", None, False),
    (45, "assignment", "stays", "active 1_0,1_1", True),
    (45, "state", None, "Assigning", False),
    (45, "state", None, "Reconciling", True),
    (39, "unsolicited_push", None, "-1", False),
    (39, "group_epoch", None, "4", True),
    (20, "group_epoch", None, "5", True),
]


def test_expired_events_are_kept_if_their_state_still_held(writer: TableWriter) -> None:
    add(writer, "groups", group_row("g"))
    events = [
        {"group_id": "g", "at": days_ago(days), "offset": n, "kind": kind, "member_id": member, "new": new}
        for n, (days, kind, member, new, _) in enumerate(EVENTS)
    ]
    append(writer.location.path, "group_events", *events)

    def expire() -> tuple[int, list[int]]:
        own = writer.table("group_events")
        deleted = delete_expired(own, TableFiles(own), writer.table("groups"), 30)
        return deleted, sorted(own.select('"offset"').column(0).to_pylist())

    kept = [n for n, (*_, holds) in enumerate(EVENTS) if holds]
    assert [expire() for _ in range(2)] == [(len(EVENTS) - len(kept), kept), (0, kept)]
    writer.table("groups").delete()
    assert expire()[1] == kept[-1:], "events of a deleted group are kept for the retention only"


def test_the_log_of_old_versions_is_removed_and_spark_reads_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = make_warehouse(tmp_path, as_the_job=True) / "groups"
    own, log = RustTable(Location.of(table), "default"), table / "_delta_log"
    for name in ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"):
        own.open().alter.set_table_properties({name: "interval 1 minute"})
    for number in range(8):
        own.replace(own.to_table([group_row("g", group_epoch=number)]))
    before = len(list(log.glob("*.json")))
    # An hour older, in their order in time: Delta 4.4 skips a checkpoint as old as its entry.
    for file in log.iterdir():
        os.utime(file, (file.stat().st_mtime - 3600,) * 2)
    MaintainedTable(own).maintain()
    assert len(list(log.glob("*.json"))) < before / 2
    own.replace(own.to_table([group_row("g", group_epoch=10)]))
    assert [row.group_epoch for row in spark.read.format("delta").load(str(table)).collect()] == [10]


def test_a_failure_keeps_no_other_table_from_its_maintenance_and_comes_again_when_it_is_due(
    writer: TableWriter,
) -> None:
    tables = of_writer(writer)[::-1]
    assert tables[0].own.location.name == "quarantine"
    add(writer, "groups", *(group_row(f"g{number}") for number in range(3)))
    lost = writer.location.path / "quarantine"
    lost.rename(away := lost.with_name("away"))

    def maintain() -> None:
        maintain_all(tables, lambda: False, lambda _: None)

    with pytest.raises(OSError, match=r"^Cannot write the table quarantine: [^\n]+$"):
        maintain()
    assert len(group_files(writer.table("groups").open(), "default")) == 1
    maintain()  # nothing is due
    let_all_be_due(tables)
    with pytest.raises(OSError, match="quarantine"):
        maintain()
    away.rename(lost)
    let_all_be_due(tables)
    maintain()
    assert not any(one.is_due() for one in tables)
