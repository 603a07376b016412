"""Groups far larger than usual: nothing is cut off, and they do not hold up others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.tables.reader import WarehouseReader
from tests.stream.test_groups_writer import batch_writer
from tests.support.encoded import FIRST_EPOCH, group_records, metadata_record
from tests.support.frames import batch, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMBERS = 5_000


def test_five_thousand_members_with_their_tasks_are_all_there(spark: SparkSession, empty_warehouse: Path) -> None:
    write = batch_writer(spark, empty_warehouse)
    first = rows_of(group_records("g", FIRST_EPOCH, MEMBERS, tasks=2))
    write(batch(spark, first), 0)
    second = rows_of(group_records("g", FIRST_EPOCH + 1, MEMBERS, tasks=2), len(first))
    write(batch(spark, second[:-1]), 1)
    states = "SELECT state, member_count FROM groups"
    assert WarehouseReader(empty_warehouse).rows(states) == [{"state": "Reconciling", "member_count": MEMBERS}]
    write(batch(spark, second[-1:]), 2)
    opened = WarehouseReader(empty_warehouse)
    assert opened.rows(states) == [{"state": "Stable", "member_count": MEMBERS}]
    counts = "SELECT count(*) AS n, count(DISTINCT member_id) AS m FROM assignments WHERE current AND target"
    assert opened.rows(counts) == [{"n": 2 * MEMBERS, "m": MEMBERS}]
    joined = "SELECT count(*) AS n FROM group_events WHERE kind = 'member_joined'"
    assert opened.rows(joined) == [{"n": MEMBERS}]


def test_a_group_with_very_many_records_does_not_hold_up_the_others_of_its_batch(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = [metadata_record({"group_id": "heavy"}, epoch, metadata_hash=epoch) for epoch in range(2, 20_102)]
    honest = [list(group_records(f"honest-{number}", 2)) for number in range(3)]
    pairs = [*honest[0], *epochs[:9_000], *honest[1], *epochs[9_000:], *honest[2]]
    records = batch(spark, rows_of(pairs))
    write = batch_writer(spark, empty_warehouse)
    write_part, written = write._write_few, list[Any]()

    def die_after_the_first(*part: Any) -> object:
        if written:
            raise RuntimeError("the job dies")
        written.append(write_part(*part))
        return written[0]

    monkeypatch.setattr(write, "_write_few", die_after_the_first)
    with pytest.raises(RuntimeError):
        write(records, 0)
    groups = "SELECT group_id, group_epoch FROM groups ORDER BY group_id"
    expected = [{"group_id": f"honest-{number}", "group_epoch": 2} for number in range(3)]
    assert WarehouseReader(empty_warehouse).rows(groups) == expected

    batch_writer(spark, empty_warehouse)(records, 0)
    opened = WarehouseReader(empty_warehouse)
    assert opened.rows(groups) == [{"group_id": "heavy", "group_epoch": 20_101}, *expected]
    events = "SELECT group_id, count(*) AS n, count(DISTINCT e.offset) AS d FROM group_events e GROUP BY 1 ORDER BY 1"
    counts = {row["group_id"]: (row["n"], row["d"]) for row in opened.rows(events)}
    assert counts["heavy"][1] == 20_100
    assert counts["honest-0"] == counts["honest-1"] == counts["honest-2"]
    created = "SELECT count(*) AS n FROM group_events WHERE kind = 'created'"
    assert opened.rows(created) == [{"n": 4}]
