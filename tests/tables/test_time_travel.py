"""Delta's time travel: the row of a group before a later batch, in both engines, as docs/tables.md describes it."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable, QueryBuilder

from offsets_decoder import encode
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.tables.spark_writer import SparkWriter
from tests.support.frames import batch, expect_few_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
QUERY = "SELECT state, group_epoch FROM {} WHERE group_id = 'g'"


def test_an_earlier_version_of_groups_has_the_earlier_state(spark: SparkSession, empty_warehouse: Path) -> None:
    warehouse = SparkWriter(spark, str(empty_warehouse), "default")
    expect_few_records(empty_warehouse)
    write_batch = GroupsBatchWriter(warehouse, "default", "topic", lambda *_: None)
    group = {"group_id": "g"}
    pairs = [encode(17, group, {"epoch": 2}), encode(17, group, {"epoch": 3}), encode(17, group, None)]
    versions, times = [], []
    for number, (key, value) in enumerate(pairs):
        write_batch(batch(spark, [(number, START, key, value)]), number)
        versions.append(DeltaTable(empty_warehouse / "groups").version())
        times.append(datetime.now(timezone.utc))
    expected = [("Empty", 2), ("Empty", 3), ("Dead", 3)]

    table = f"delta.`{empty_warehouse}/groups`"
    for version, time, row in zip(versions, times, expected, strict=True):
        sources = [f"{table} VERSION AS OF {version}"]
        if version != versions[-1]:  # Delta refuses a time after its newest commit
            sources.append(f"{table} TIMESTAMP AS OF '{time:%Y-%m-%d %H:%M:%S.%f}'")
        for source in sources:
            assert [tuple(found) for found in spark.sql(QUERY.format(source)).collect()] == [row]
        builder = QueryBuilder().register("groups", DeltaTable(empty_warehouse / "groups", version=version))
        rows = builder.execute(QUERY.format("groups")).read_all()
        assert list(zip(*(rows[name].to_pylist() for name in ("state", "group_epoch")), strict=True)) == [row]
