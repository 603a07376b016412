"""The small files beside the tables: the same on this machine, and as Spark's file manager writes them in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_app.job.errors import JobError
from streaming_app.job.files import Files, _Local, _Remote
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["local", "by Hadoop"])
def files(request: pytest.FixtureRequest, spark: SparkSession) -> Files:
    return _Local() if request.param == "local" else _Remote(spark)


def test_a_text_is_read_as_it_was_written_last(files: Files, tmp_path: Path) -> None:
    place = Place.of(tmp_path) / "_jobs" / "a.json"
    assert files.read(place) is None
    for text in ("ü" * 10_000, "short"):
        files.write(place, text)
        assert (files.read(place), place.read_text()) == (text, text)
    assert [name for name in place.parent.names() if not name.endswith(".crc")] == ["a.json"]


def test_a_directory_goes_with_all_that_is_in_it(files: Files, tmp_path: Path) -> None:
    place = Place.of(tmp_path) / "checkpoint"
    files.write(place / "commits" / "0", "v1")
    assert files.exists(place / "commits")
    files.remove(place)
    assert not files.exists(place)
    files.remove(place)
    assert not files.exists(place / "commits")


def test_what_hadoop_says_of_a_trouble_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = Place.of(tmp_path) / "file" / "directory" / "a.json"
    with pytest.raises(JobError, match=f"Cannot read or write {below}: .*(?i:not a directory)"):
        _Remote(spark).write(below, "text")
