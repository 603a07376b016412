"""The archive of Spark's classes: made once, used if it fits, and nothing is lost without it."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.jvm import class_archive
from streaming_app.jvm.cache import cache_directory
from streaming_app.jvm.class_archive import archive_option, archive_path, class_list, make_archive
from streaming_app.jvm.jars import DIRECTORY_VARIABLE, connector_jars, find_jars
from streaming_app.jvm.spark_installation import TESTED

SOME_JARS = [Path("/jars/delta.jar"), Path("/jars/connector.jar")]
"""Where no JVM is started: only their names matter."""


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    return find_jars(connector_jars())


def test_there_is_a_list_of_the_classes_for_the_pinned_versions_only() -> None:
    path = class_list(TESTED[0])
    assert path
    names = set(gzip.decompress(path.read_bytes()).decode().splitlines())
    for name in (
        "org/apache/spark/sql/SparkSession",
        "org/apache/spark/sql/kafka010/KafkaSourceProvider",
    ):
        assert name in names
    assert class_list("9.9.9") is None


@pytest.mark.java
def test_a_job_that_stops_ends_the_making_and_leaves_nothing(jars: list[Path], tmp_path: Path) -> None:
    (tmp_path / "new-of-a-process-that-was-killed").mkdir()
    answers = iter((False, False, True))
    with pytest.raises(SetupError, match="not made in time"):
        make_archive(jars, tmp_path, lambda: next(answers))
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
    assert archive_path(jars, tmp_path).parent == tmp_path
    assert not archive_path(jars, tmp_path).exists()


def test_an_archive_is_used_from_where_the_jars_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert archive_path(SOME_JARS).parent == cache_directory() / "class-archives"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    assert archive_option(SOME_JARS) == []
    archive = archive_path(SOME_JARS)
    assert archive.parent == tmp_path
    archive.touch()
    os.utime(archive, (0, 0))
    assert archive_option(SOME_JARS) == [f"-XX:SharedArchiveFile={archive}"]
    assert archive.stat().st_mtime > 0, "its use is noted"
    assert archive_path([*SOME_JARS, tmp_path / "another.jar"]) != archive


def test_archives_that_were_not_used_for_a_month_are_removed(tmp_path: Path) -> None:
    old, used = tmp_path / "old.jsa", tmp_path / "used.jsa"
    for path, days in ((old, 31), (used, 29)):
        path.touch()
        at = time.time() - days * 24 * 3600
        os.utime(path, (at, at))
    class_archive._remove_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["used.jsa"]
