"""Sessions that load their classes from the archive, or cannot."""

from pathlib import Path

import pytest

from streaming_app.jvm.class_archive import make_archive
from streaming_app.jvm.jars import connector_jars
from streaming_app.jvm.spark_jvm import archive_option
from streaming_app.jvm.spark_session import spark_session

pytestmark = pytest.mark.java


def test_a_session_loads_its_classes_from_the_archive_or_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_app.jvm.spark_jvm.cache_directory", lambda: tmp_path)
    monkeypatch.delenv("STREAMS_GROUPS_JARS", raising=False)
    archive = make_archive()
    assert archive_option(connector_jars()) == [f"-XX:SharedArchiveFile={archive}"]
    assert _share_of_archived(tmp_path) > 0.8
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    assert _share_of_archived(tmp_path) < 0.2, "Java's own archive has the classes of Java"


def _share_of_archived(directory: Path) -> float:
    log = directory / "classes"
    options = [*archive_option(connector_jars()), f"-Xlog:class+load:file={log}"]
    with spark_session(directory / "spark.log", java_options=options) as spark:
        assert spark.range(3).count() == 3
    lines = [line for line in log.read_text("utf-8").splitlines() if "Lambda" not in line]
    return sum("source: shared objects file" in line for line in lines) / len(lines)
