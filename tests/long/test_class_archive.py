"""Sessions that load their classes from the archive, or cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.jvm.class_archive import archive_path, make_archive
from streaming_app.jvm.jars import connector_jars, find_jars

pytestmark = pytest.mark.java
_PROGRAM = """
import sys
from pathlib import Path
from py4j.protocol import Py4JJavaError
from streaming_app.jvm.spark_session import spark_session
with spark_session(Path(sys.argv[1]), conf={"spark.driver.extraJavaOptions": sys.argv[2]}) as spark:
    assert spark.range(3).count() == 3
    for name in sys.argv[3:]:
        try:
            spark._jvm.java.lang.Class.forName(name)
        except Py4JJavaError as error:
            assert "ClassNotFoundException" in str(error)
"""


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    return find_jars(connector_jars())


def start_session(directory: Path, option: str, *classes: str) -> None:
    """Start a session with an option of Java, in which these classes are loaded."""
    command = [sys.executable, "-c", _PROGRAM, directory / "spark.log", option, *classes]
    subprocess.run(command, check=True, cwd=directory)  # where a JVM that crashes leaves its report


@pytest.mark.parametrize("fits", [True, False])
def test_a_session_loads_its_classes_from_the_archive_or_starts_without_it(
    jars: list[Path], tmp_path: Path, *, fits: bool
) -> None:
    assert make_archive(jars) == archive_path(jars), "make test has made it"
    log, other = tmp_path / "classes", tmp_path / "other.jsa"
    other.write_bytes(b"no archive")
    start_session(tmp_path, f"-Xlog:class+load:file={log}" + ("" if fits else f" -XX:SharedArchiveFile={other}"))
    lines = [line for line in log.read_text("utf-8").splitlines() if "Lambda" not in line]
    share = sum("source: shared objects file" in line for line in lines) / len(lines)
    assert share > 0.8 if fits else share == 0.0
