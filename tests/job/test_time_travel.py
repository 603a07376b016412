"""Delta's time travel: what a group's row said before a later batch, in both engines, as the README says."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable, QueryBuilder

from offsets_decoder import encode
from streaming_app.job.pipeline import Pipeline
from streaming_app.job.tables import Warehouse
from tests.job.frames import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
ASKED = "SELECT state, group_epoch FROM {} WHERE group_id = 'g'"


def test_an_earlier_version_of_groups_tells_the_earlier_state(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    taken = Pipeline(warehouse, "default", "topic", lambda *_: None)
    group = {"group_id": "g"}
    pairs = [encode(17, group, {"epoch": 2}), encode(17, group, {"epoch": 3}), encode(17, group, None)]
    versions, moments = [], []
    for number, (key, value) in enumerate(pairs):
        taken(batch(spark, [(number, START, key, value)]), number)
        versions.append(DeltaTable(tmp_path / "groups").version())
        moments.append(datetime.now(timezone.utc))
    expected = [("Empty", 2), ("Empty", 3), ("Dead", 3)]

    table = f"delta.`{tmp_path}/groups`"
    for version, moment, told in zip(versions, moments, expected, strict=True):
        travelled = [f"{table} VERSION AS OF {version}"]
        if version != versions[-1]:  # Delta refuses a time after its newest commit
            travelled.append(f"{table} TIMESTAMP AS OF '{moment:%Y-%m-%d %H:%M:%S.%f}'")
        for where in travelled:
            assert [tuple(row) for row in spark.sql(ASKED.format(where)).collect()] == [told]
        builder = QueryBuilder().register("groups", DeltaTable(tmp_path / "groups", version=version))
        rows = builder.execute(ASKED.format("groups")).read_all()
        assert list(zip(*(rows[name].to_pylist() for name in ("state", "group_epoch")), strict=True)) == [told]
