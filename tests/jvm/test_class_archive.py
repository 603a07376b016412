"""The archive of Spark's classes is where the jars are, and used if it is there."""

from pathlib import Path

import pytest

from streaming_app.jvm.jars import DIRECTORY_VARIABLE, connector_jars
from streaming_app.jvm.java import cache_directory
from streaming_app.jvm.spark_jvm import archive_option, archive_path


def test_an_archive_is_used_from_where_the_jars_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert archive_path(connector_jars()).parent == cache_directory()
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    assert archive_option(connector_jars()) == []
    archive = archive_path(connector_jars())
    assert archive.parent == tmp_path
    archive.touch()
    assert archive_option(connector_jars()) == [f"-XX:SharedArchiveFile={archive}"]
    assert archive_path(connector_jars("4.1.1")) != archive
