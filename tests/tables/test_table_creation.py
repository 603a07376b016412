"""New tables need no feature of Delta that some reader lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from streaming_app.tables.definitions import tables
from streaming_app.tables.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_reader_takes_new_tables_also_after_an_interrupted_creation_and_whatever_the_session_has_set(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "groups" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (tmp_path / "alerts" / "_delta_log").mkdir(parents=True)
    default = "spark.databricks.delta.properties.defaults.enableDeletionVectors"
    spark.conf.set(default, "true")
    try:
        created = TableWriter(spark, str(tmp_path), "default").prepare()
    finally:
        spark.conf.unset(default)
    assert created == {one.name for one in tables()}
    for definition in tables():
        table = DeltaTable(tmp_path / definition.name)
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), definition.name
        assert (protocol.reader_features, protocol.writer_features) == (None, None)
        assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
        assert table.to_pandas().empty
        assert list(spark.read.format("delta").load(str(tmp_path / definition.name)).columns) == list(definition.names)
