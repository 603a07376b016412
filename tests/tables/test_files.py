"""The small files next to the tables: on this machine, and through Spark's file manager as in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_app.tables.files import Files, warehouse_files
from streaming_app.tables.location import Location
from tests.support.warehouses import local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["local", "Hadoop"])
def files(request: pytest.FixtureRequest, spark: SparkSession) -> Files:
    return local_files() if request.param == "local" else files_of_a_store(spark)


def files_of_a_store(spark: SparkSession) -> Files:
    """Return the operations on the files of a store; they take the paths of this machine, too."""
    own = spark.newSession()  # a job whose warehouse is local has set in its session what writes there
    return warehouse_files(Location.of("s3a://bucket/warehouse"), own)


def test_the_text_that_was_written_last_is_read(files: Files, tmp_path: Path) -> None:
    location = Location.of(tmp_path) / "_jobs" / "a.json"
    assert files.read(location) is None
    for text in ("ü" * 10_000, "short"):
        files.write(location, text)
        assert (files.read(location), location.read_text()) == (text, text)
    assert [name for name in location.parent.names() if not name.endswith(".crc")] == ["a.json"]


def test_a_directory_is_removed_with_its_contents(files: Files, tmp_path: Path) -> None:
    location = Location.of(tmp_path) / "checkpoint"
    files.write(location / "commits" / "0", "v1")
    assert files.exists(location / "commits")
    files.remove(location)
    assert not files.exists(location)
    files.remove(location)
    assert not files.exists(location / "commits")
