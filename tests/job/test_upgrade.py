from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offsets_decoder import encode
from schemas.table_definitions import Table, tables
from streaming_app.job import tables as written
from streaming_app.job.errors import JobError
from streaming_app.job.pipeline import Pipeline
from streaming_app.job.tables import Warehouse
from streaming_app.serve.warehouse import Warehouse as Served
from streaming_app.serve.warehouse import WarehouseError
from tests.job.frames import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)


def older(definition: Table) -> Table:
    """As a release would have had it that knew no reasons, no joined_at of members and no deliveries."""
    kept = [column for column in definition.columns if column.name not in {"not_ready_reason", "deliveries"}]
    return replace(definition, columns=tuple(replace(c, type=c.type.replace(",joined_at:timestamp", "")) for c in kept))


def newer(definition: Table) -> Table:
    return replace(definition, columns=(*definition.columns, replace(definition.columns[0], name="hat_size")))


def take(spark: SparkSession, path: Path, group: str, offset: int) -> None:
    pairs = [
        encode(19, {"group_id": group, "member_id": "m"}, {"topology_epoch": 0, "client_id": "c", "client_host": "h"}),
        encode(17, {"group_id": group}, {"epoch": 2}),
    ]
    rows = [(offset + n, AT, key, value) for n, (key, value) in enumerate(pairs)]
    Pipeline(Warehouse(spark, str(path), "default"), "default", "topic", lambda *_: None)(batch(spark, rows), offset)


def test_tables_of_an_older_release_get_the_columns_they_lack(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(written, "tables", lambda: tuple(map(older, tables())))
        Warehouse(spark, str(tmp_path), "default").prepare()
    with pytest.raises(WarehouseError, match="made by an older release"):
        Served(tmp_path)
    spark.sql(
        f"INSERT INTO delta.`{tmp_path}/groups` (cluster, group_id, state, last_offset, members) "
        "VALUES ('default', 'old', 'Stable', 1, array())"
    )
    assert Warehouse(spark, str(tmp_path), "default").prepare() == set()
    take(spark, tmp_path, "new", 10)
    rows = Served(tmp_path).rows("SELECT group_id, not_ready_reason FROM groups ORDER BY group_id")
    assert [row["group_id"] for row in rows] == ["new", "old"]
    assert Served(tmp_path).rows("SELECT joined_at FROM members") == [{"joined_at": AT}]
    assert Served(tmp_path).rows("SELECT deliveries FROM alerts") == []


def test_tables_of_a_newer_release_are_refused_by_the_name_of_the_column(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as after:
        after.setattr(written, "tables", lambda: tuple(map(newer, tables())))
        Warehouse(spark, str(tmp_path), "default").prepare()
    with pytest.raises(JobError, match=r"has a column hat_size that this release does not know"):
        Warehouse(spark, str(tmp_path), "default").prepare()
