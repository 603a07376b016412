"""New tables need no feature of Delta that some reader lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from streaming_app.errors import JobError
from streaming_app.tables.definitions import tables
from streaming_app.tables.spark_writer import SparkWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_reader_takes_new_tables(spark: SparkSession, tmp_path: Path) -> None:
    SparkWriter(spark, str(tmp_path), "default").prepare()
    for definition in tables():
        table = DeltaTable(tmp_path / definition.name)
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), definition.name
        assert (protocol.reader_features, protocol.writer_features) == (None, None)
        assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
        assert table.to_pandas().empty
        assert list(spark.read.format("delta").load(str(tmp_path / definition.name)).columns) == list(definition.names)


def test_settings_of_the_user_do_not_become_properties_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    default = "spark.databricks.delta.properties.defaults.enableDeletionVectors"
    spark.conf.set(default, "true")
    try:
        SparkWriter(spark, str(tmp_path), "default").prepare()
    finally:
        spark.conf.unset(default)
    assert DeltaTable(tmp_path / "groups").metadata().configuration["delta.enableDeletionVectors"] == "false"


def test_a_table_that_cannot_be_created_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    writer = SparkWriter(spark, str(tmp_path), "default")
    writer.prepare()
    (tmp_path / "alerts").rename(tmp_path / "other")
    (tmp_path / "alerts").write_text("a file is in the way", "utf-8")
    with pytest.raises(JobError, match=r"^Cannot (read|write) the warehouse .*[^\n]$"):
        writer.prepare()
