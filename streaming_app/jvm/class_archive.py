"""The archive of classes with which Spark's JVM starts faster; Java calls it application class data sharing.

Spark loads many thousands of classes until the first batch is done. A JVM that finds them in an archive neither
reads nor verifies them again. A list of them is in `class_lists`; a JVM that does nothing else makes the archive from
it, in less than a minute. Java does not use an archive that does not fit it, the class path or the jars: it then starts
as without one.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.cache import cache_directory
from streaming_app.jvm.jars import DIRECTORY_VARIABLE
from streaming_app.jvm.java import identify, java_version, last_line
from streaming_app.jvm.spark_installation import installed_spark, spark_home, spark_java_home
from streaming_app.jvm.spark_jvm import collector_option
from streaming_app.text import digest

_JAVA = 17  # Java 21.0.8 crashes on the lists, and finds a jar that Spark names twice only once in an archive
_LISTS = Path(__file__).with_name("class_lists")
_NEW = "new-"  # directories in which an archive is made
_MEMORY = "512m"
_SECONDS = 600.0  # until it is given up
_POLL_SECONDS = 0.5
_UNUSED_SECONDS = 30 * 24 * 3600.0
_MAX_CAUSE = 200  # characters of a line about a failure


def class_list(spark: str | None = None) -> Path | None:
    """Return the list of classes, gzipped, for the installed version of Spark or this one; None if there is none."""
    path = _LISTS / f"spark-{spark or installed_spark()}.txt.gz"
    return path if path.is_file() else None


def reason_for_none() -> str | None:
    """Return why no archive can be made for the installed Java and Spark; None if one can."""
    if class_list() is None:
        return f"there is no list of classes for Spark {installed_spark()}"
    version = java_version(spark_java_home() / "bin" / "java")
    return None if version == _JAVA else f"Java {version} would not use it, only Java {_JAVA} does"


def archive_path(jars: Sequence[Path], directory: Path | None = None) -> Path:
    """Return where the archive for the installed Java and Spark with these jars is, or is to be.

    `directory` is by default that which STREAMS_GROUPS_JARS names, else one in the cache.
    """
    if directory is None:
        named = os.environ.get(DIRECTORY_VARIABLE)
        directory = Path(named).absolute() if named else cache_directory() / "class-archives"
    sparks = spark_home() / "jars"
    classes = class_list()
    made_from = hashlib.sha256(classes.read_bytes()).hexdigest() if classes else None
    parts = [identify(spark_java_home()), made_from, sparks, int(sparks.stat().st_mtime), *jars]
    key = digest("\n".join(map(str, parts)), 16)
    return directory / f"spark-{key}.jsa"


def archive_option(jars: Sequence[Path]) -> list[str]:
    """Return Java's option that uses the archive; none if there is no archive."""
    path = archive_path(jars)
    if not path.is_file():
        return []
    with suppress(OSError):  # of another user
        os.utime(path)
    return [f"-XX:SharedArchiveFile={path}"]


def make_archive(
    jars: Sequence[Path], directory: Path | None = None, is_stopping: Callable[[], bool] = lambda: False
) -> Path | None:
    """Make the archive unless it exists, at a low priority; return its path, None if another process makes it.

    `directory` is as for `archive_path`. Archives there that no JVM used for 30 days are removed. Raises SetupError,
    also when `is_stopping`.
    """
    path, classes = archive_path(jars, directory), class_list()
    if path.is_file():
        return path
    reason = reason_for_none()
    if reason or classes is None:
        raise SetupError(f"An archive of Spark's classes cannot be made: {reason}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / "lock", timeout=0), _new_directory(path.parent) as made:
            names, archive, log = made / "classes", made / "archive.jsa", made / "log"
            names.write_bytes(gzip.decompress(classes.read_bytes()))
            _run(_command(jars, names, archive), log, is_stopping)
            if not archive.is_file():
                raise SetupError(f"Java made no archive of classes: {last_line(log)[:_MAX_CAUSE]}")
            archive.replace(path)
            _remove_unused(path.parent)
    except Timeout:
        return None
    except OSError as error:
        raise SetupError(f"Cannot write {path.parent}: {reason_of(error)}") from None
    return path


@contextmanager
def _new_directory(parent: Path) -> Iterator[Path]:
    """Make a directory for the block, and remove those of processes that were killed."""
    for left in parent.glob(f"{_NEW}*"):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=parent, prefix=_NEW) as made:
        yield Path(made)


def _command(jars: Sequence[Path], names: Path, archive: Path) -> list[str]:
    """Return the command that starts Spark's JVM as the job does; with these options it dumps the archive and exits."""
    options = [
        "-Xshare:dump",
        *collector_option(),
        f"-XX:SharedClassListFile={names}",
        f"-XX:SharedArchiveFile={archive}",
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
    ]
    submit = [spark_home() / "bin" / "spark-submit", "--driver-class-path", os.pathsep.join(map(str, jars))]
    settings = ["--driver-memory", _MEMORY, "--driver-java-options", shlex.join(options), "pyspark-shell"]
    return ["nice", "-n", "19", *map(str, submit), *settings]


def _run(command: list[str], log: Path, is_stopping: Callable[[], bool]) -> None:
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home()), "SPARK_HOME": str(spark_home())}
    until = time.monotonic() + _SECONDS
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        while process.poll() is None:
            if is_stopping() or time.monotonic() > until:
                raise SetupError("The archive of classes was not made in time")
            time.sleep(_POLL_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def _remove_unused(directory: Path) -> None:
    since = time.time() - _UNUSED_SECONDS
    for archive in directory.glob("*.jsa"):
        with suppress(OSError):
            if archive.stat().st_mtime < since:
                archive.unlink()
