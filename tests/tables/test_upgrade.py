from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from offsets_decoder import encode
from streaming_app.errors import JobError, WarehouseError
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.tables import table_creation
from streaming_app.tables.definitions import Table, tables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.frames import batch
from tests.support.warehouses import make_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)


def as_of_older_release(definition: Table) -> Table:
    """Return the table as of a release without not_ready_reason, topology_hash, the members' joined_at, deliveries."""
    added = {"not_ready_reason", "topology_hash", "deliveries"}
    kept = [column for column in definition.columns if column.name not in added]
    return replace(definition, columns=tuple(replace(c, type=c.type.replace(",joined_at:timestamp", "")) for c in kept))


def write_group(spark: SparkSession, path: Path, group: str, offset: int) -> None:
    pairs = [
        encode(19, {"group_id": group, "member_id": "m"}, {"topology_epoch": 0, "client_id": "c", "client_host": "h"}),
        encode(17, {"group_id": group}, {"epoch": 2}),
    ]
    rows = [(offset + n, AT, key, value) for n, (key, value) in enumerate(pairs)]
    writer = TableWriter(spark, str(path), "default")
    GroupsBatchWriter(writer, FoldOptions("default", "topic"), lambda *_: None)(batch(spark, rows), offset)


def test_tables_of_an_older_release_get_the_missing_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        older = [as_of_older_release(definition) for definition in tables() if definition.name != "topologies"]
        before.setattr(table_creation, "tables", lambda: tuple(older))
        TableWriter(spark, str(tmp_path), "default").prepare()
    for query in ("SELECT not_ready_reason FROM groups", "SELECT joined_at FROM members"):
        with pytest.raises(WarehouseError, match="created by an older release and lacks columns"):
            WarehouseReader(tmp_path).rows(query)
    assert WarehouseReader(tmp_path).rows("SELECT group_id FROM groups") == []
    spark.sql(
        f"INSERT INTO delta.`{tmp_path}/groups` (cluster, group_id, state, last_offset, members) "
        "VALUES ('default', 'old', 'Stable', 1, array())"
    )
    assert TableWriter(spark, str(tmp_path), "default").prepare() == {"topologies"}
    write_group(spark, tmp_path, "new", 10)
    rows = WarehouseReader(tmp_path).rows("SELECT group_id, not_ready_reason FROM groups ORDER BY group_id")
    assert [row["group_id"] for row in rows] == ["new", "old"]
    assert WarehouseReader(tmp_path).rows("SELECT joined_at FROM members") == [{"joined_at": AT}]
    assert WarehouseReader(tmp_path).rows("SELECT deliveries FROM alerts") == []


def test_a_warehouse_of_an_older_release_lacks_a_table_and_none_is_no_warehouse(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"No streams-groups warehouse at .* run `streams-groups run"):
        WarehouseReader(tmp_path).rows("SELECT 1 AS one")
    shutil.rmtree(make_warehouse(tmp_path) / "topologies")
    with pytest.raises(WarehouseError, match=r"created by an older release and lacks the table topologies: start the"):
        WarehouseReader(tmp_path).rows("SELECT * FROM topologies")


def test_tables_of_a_newer_release_are_rejected_and_the_column_is_named(
    spark: SparkSession, empty_warehouse: Path
) -> None:
    DeltaTable(empty_warehouse / "groups").alter.add_columns(Field("hat_size", PrimitiveType("string")))
    with pytest.raises(JobError, match=r"has a column hat_size that this release does not know"):
        TableWriter(spark, str(empty_warehouse), "default").prepare()
