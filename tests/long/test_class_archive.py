"""Sessions that load their classes from the archive, or cannot."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.jvm.class_archive import archive_path, class_list, make_archive
from streaming_app.jvm.jar_sets import find_jars, spark_jars

pytestmark = pytest.mark.java
_PROGRAM = """
import sys
from pathlib import Path
from streaming_app.jvm.spark_session import spark_session
with spark_session(Path(sys.argv[1]), conf={"spark.driver.extraJavaOptions": sys.argv[2]}) as spark:
    assert spark.range(3).count() == 3
"""


def share_from_archive(directory: Path, *options: str) -> float:
    """Start a session with these options of Java, and return how many of its classes came from an archive."""
    log = directory / "classes"
    option = " ".join((f"-Xlog:class+load:file={log}", *options))
    subprocess.run([sys.executable, "-c", _PROGRAM, directory / "spark.log", option], check=True)
    lines = [line for line in log.read_text("utf-8").splitlines() if "Lambda" not in line]
    return sum("source: shared objects file" in line for line in lines) / len(lines)


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    return find_jars(spark_jars())


def test_a_session_loads_its_classes_from_the_archive(jars: list[Path], tmp_path: Path) -> None:
    assert make_archive(jars) == archive_path(jars), "make test has made it"
    assert share_from_archive(tmp_path) > 0.8


_LOADS_CLASSES = """
import sys
from pathlib import Path
from py4j.protocol import Py4JJavaError
from streaming_app.jvm.spark_session import spark_session
with spark_session(Path(sys.argv[1]), conf={"spark.driver.extraJavaOptions": sys.argv[2]}) as spark:
    for name in sys.argv[3:]:
        try:
            spark._jvm.java.lang.Class.forName(name)
        except Py4JJavaError as error:
            assert "ClassNotFoundException" in str(error)
"""


def test_a_flight_recorder_may_look_at_the_classes_of_the_archive(jars: list[Path], tmp_path: Path) -> None:
    assert make_archive(jars), "make test has made it"
    path = class_list()
    assert path
    names = {line.partition(" ")[0] for line in gzip.decompress(path.read_bytes()).decode().splitlines()}
    generated = sorted(name.replace("/", ".") for name in names if "$Species_" in name)
    assert len(generated) > 10
    recording = f"-XX:StartFlightRecording=filename={tmp_path / 'recording.jfr'}"
    subprocess.run(
        [sys.executable, "-c", _LOADS_CLASSES, tmp_path / "spark.log", recording, *generated],
        check=True,
        cwd=tmp_path,  # where a JVM that crashes leaves its report
    )


def test_a_session_starts_with_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    other = tmp_path / "other.jsa"
    other.write_bytes(b"no archive")
    assert share_from_archive(tmp_path, f"-XX:SharedArchiveFile={other}") == 0.0
