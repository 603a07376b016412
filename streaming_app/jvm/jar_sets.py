"""The sets of jars that the job and the demo need, their checksums, and where they come from.

A set comes from the directory that STREAMS_GROUPS_JARS names, which `streams-groups jars fetch --directory` fills and
which can be carried to a host without network; else from the cache, which is filled from a Maven repository.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm import jars
from streaming_app.jvm.spark_installation import SparkAndDelta, installed, untested_warning
from streaming_app.text import first_of

DIRECTORY_VARIABLE = "STREAMS_GROUPS_JARS"
_CHECKSUMS = Path(__file__).with_name("checksums")
_Progress = Callable[[str], None]


class JarSet(NamedTuple):
    """Jars that are used together."""

    what: str
    coordinates: Sequence[str]
    exclude: Sequence[str]
    checksums: Mapping[str, str]
    """SHA-256 in hexadecimal by the name of the jar, in the order of the class path; empty for untested versions."""
    artifacts: Sequence[str] = ()
    """`group:artifact:version` of each of these jars, in the same order."""


def spark_jars(versions: SparkAndDelta | None = None) -> JarSet:
    """Return the jars of Delta Lake and of Spark's Kafka connector for the installed versions, or these."""
    spark, delta = versions or installed()
    return _jar_set(
        f"the jars of Delta Lake {delta} and Spark's Kafka connector {spark}",
        jars.spark_coordinates(spark, delta),
        jars.SPARK_EXCLUSIONS,
        f"spark-{spark}-delta-{delta}",
    )


def kafka_jars(version: str = jars.KAFKA_VERSION) -> JarSet:
    """Return the jars of a Kafka broker, which the demo starts."""
    return _jar_set(
        f"the jars of Kafka {version}",
        jars.kafka_coordinates(version),
        jars.KAFKA_EXCLUSIONS,
        f"kafka-{version}",
    )


def _jar_set(what: str, coordinates: Sequence[str], exclude: Sequence[str], name: str) -> JarSet:
    checksums = read_checksums(name)
    by_jar = {jars.jar_name(artifact): checksum for artifact, checksum in checksums.items()}
    return JarSet(what, coordinates, exclude, by_jar, tuple(checksums))


def read_checksums(name: str) -> Mapping[str, str]:
    """Return the SHA-256 of each artifact of a set, from the project's own list of it; empty if it has none."""
    file = _CHECKSUMS / f"{name}.sha256"
    if not file.is_file():
        return {}
    pairs = (line.split() for line in file.read_text("utf-8").splitlines())
    return {artifact: checksum for checksum, artifact in pairs}


def find_jars(jar_set: JarSet, progress: _Progress | None = None, poll: Callable[[], None] | None = None) -> list[Path]:
    """Return the jars of a set, in the order of the class path; fetch missing ones unless STREAMS_GROUPS_JARS is set.

    `progress` and `poll` are as for `jars.resolve`. Jars of that directory, and jars that were just fetched, have the
    project's checksums. Raises SetupError if one is missing or has another checksum, and what `jars.resolve` raises.
    """
    if (directory := os.environ.get(DIRECTORY_VARIABLE)) and jar_set.checksums:
        found = [Path(directory).absolute() / name for name in jar_set.checksums]
        _require(jar_set, found, f"{DIRECTORY_VARIABLE}={directory}")
        return found
    return fetch_jars(jar_set, progress, poll)


def fetch_jars(
    jar_set: JarSet, progress: _Progress | None = None, poll: Callable[[], None] | None = None
) -> list[Path]:
    """Return the jars of a set in the cache, fetched from the repository where they are missing; as `find_jars`."""
    return jars.resolve(
        *jar_set.coordinates,
        exclude=jar_set.exclude,
        progress=progress,
        poll=poll,
        check=lambda fetched: _require(jar_set, fetched, "the repository"),
        known=jar_set.artifacts,
    )


def copy_jars(jar_set: JarSet, directory: Path, progress: _Progress | None = None) -> list[Path]:
    """Fetch the jars of a set, and copy them into a directory; return the copies. Raises SetupError.

    The jars of several sets may be in one directory.
    """
    fetched = fetch_jars(jar_set, progress)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(jar, directory)) for jar in fetched]
    except OSError as error:
        raise SetupError(f"Cannot write {directory}: {reason_of(error)}") from None


def differences(jar_set: JarSet, files: Iterable[Path]) -> list[str]:
    """Return a line for each jar of the set that is missing among `files` or has another checksum."""
    by_name = {file.name: file for file in files}
    lines = []
    for name, expected in jar_set.checksums.items():
        actual = _sha256(by_name[name]) if name in by_name else None
        if actual is None:
            lines.append(f"{name} is missing")
        elif actual != expected:
            lines.append(f"{name} has the SHA-256 {actual} instead of {expected}")
    return lines


def _require(jar_set: JarSet, files: Iterable[Path], source: str) -> None:
    wrong = differences(jar_set, files)
    if wrong:
        raise SetupError(
            f"{jar_set.what[0].upper()}{jar_set.what[1:]}, from {source}: {first_of(wrong, 1)}; "
            "fetch them with `streams-groups jars fetch`"
        )


def _sha256(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return hashlib.sha256(opened.read()).hexdigest()
    except OSError:
        return None


def version_warning() -> str | None:
    """Return a line about installed versions of Spark and Delta Lake that were not tested together; else None."""
    return untested_warning(installed())
