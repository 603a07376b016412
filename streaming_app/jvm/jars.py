"""The sets of jars that the job and the demo need, and where the files come from.

The project has a list of each set, with the SHA-256 of each jar. If STREAMS_GROUPS_JARS names a directory, the jars
come from there: `streams-groups check --fetch-jars` fills it, and users can copy it to a host without network. Else
the jars come from the cache, and missing ones are downloaded from a Maven repository. For a version of Spark without a
list, Spark itself resolves and downloads the jars (`spark.jars.packages`).
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.java import cache_directory
from streaming_app.jvm.spark_installation import installed_spark, spark_home
from streaming_app.text import first_of

SCALA = "2.13"
KAFKA_VERSION = "4.4.0"
DIRECTORY_VARIABLE = "STREAMS_GROUPS_JARS"
REPOSITORY_VARIABLE = "STREAMS_GROUPS_MAVEN"
_DEFAULT_OF_IVY = re.compile(rb"https://[\w./-]+/maven2/")
_CHECKSUMS = Path(__file__).with_name("checksums")
_ANSWER_SECONDS = 10.0  # without data from the repository, then the download fails
_PROGRESS_SECONDS = 5.0  # between two progress lines
_PART = 1 << 18  # bytes


class JarSet(NamedTuple):
    """Jars that are used together."""

    name: str
    what: str
    coordinates: tuple[str, ...]
    """`group:artifact:version` of the jars that Spark resolves together with their dependencies."""
    checksums: Mapping[str, str]
    """SHA-256 by `group:artifact:version`, in the order of the class path; empty for untested versions."""


def connector_jars(spark: str | None = None) -> JarSet:
    """Return the jars of Spark's Kafka connector for this version of Spark, by default the installed one."""
    spark = spark or installed_spark()
    return JarSet(
        f"connector-{spark}",
        f"the jars of Spark's Kafka connector {spark}",
        (f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",),
        read_checksums(f"connector-{spark}"),
    )


def kafka_jars() -> JarSet:
    """Return the jars of a Kafka broker, which the demo starts."""
    name = f"kafka-{KAFKA_VERSION}"
    return JarSet(name, f"the jars of Kafka {KAFKA_VERSION}", (), read_checksums(name))


def read_checksums(name: str) -> Mapping[str, str]:
    """Return the SHA-256 of each artifact in a list of the project; empty if there is no such list."""
    file = _CHECKSUMS / f"{name}.sha256"
    pairs = (line.split() for line in file.read_text("utf-8").splitlines()) if file.is_file() else ()
    return {artifact: checksum for checksum, artifact in pairs}


def jar_name(artifact: str) -> str:
    """Return the name of the jar of a `group:artifact:version`."""
    return "-".join(artifact.split(":")[1:]) + ".jar"


def find_jars(
    jar_set: JarSet, progress: Callable[[str], None] | None = None, poll: Callable[[], None] | None = None
) -> list[Path]:
    """Return the listed jars of a set, in the order of the class path: of STREAMS_GROUPS_JARS, else as `fetch_jars`."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        return fetch_jars(jar_set, progress, poll)
    found = [Path(directory).absolute() / jar_name(artifact) for artifact in jar_set.checksums]
    sums = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in found if os.access(one, os.R_OK)}
    wrong = [
        _is_other(one.name, sums[one.name], expected) if one.name in sums else f"{one.name} is missing"
        for one, expected in zip(found, jar_set.checksums.values(), strict=True)
        if sums.get(one.name) != expected
    ]
    if wrong:
        what = f"{jar_set.what[0].upper()}{jar_set.what[1:]}"
        raise SetupError(
            f"{what}, from {DIRECTORY_VARIABLE}={directory}: {first_of(wrong, 1)}; "
            "fetch them with `streams-groups check --fetch-jars DIR`"
        )
    return found


def fetch_jars(
    jar_set: JarSet, progress: Callable[[str], None] | None = None, poll: Callable[[], None] | None = None
) -> list[Path]:
    """Return the listed jars of a set in the cache; download missing ones.

    During a download `progress` gets a line every few seconds, and `poll` is called, which may raise to end it. Two
    processes may do this at the same time. Raises SetupError for a jar that cannot be had, or has another SHA-256.
    """
    root = cache_directory() / "jars"
    files = {artifact: root / artifact.split(":")[0] / jar_name(artifact) for artifact in jar_set.checksums}
    missing = [artifact for artifact, file in files.items() if not file.is_file()]
    line_at, size = time.monotonic() + _PROGRESS_SECONDS / 5, 0
    try:
        for number, artifact in enumerate(missing, 1):
            for part in _download(artifact, files[artifact], jar_set.checksums[artifact]):
                size += part
                if poll:
                    poll()
                if progress and time.monotonic() >= line_at:
                    line_at = time.monotonic() + _PROGRESS_SECONDS
                    progress(f"Fetching {jar_set.what}: {number} of {len(missing)}, {size / 1e6:.0f} MB")
    except OSError as error:
        raise SetupError(
            f"Cannot write the cache of jars: {reason_of(error)}; set another STREAMS_GROUPS_CACHE"
        ) from None
    return list(files.values())


def copy_jars(jar_set: JarSet, directory: Path, progress: Callable[[str], None] | None = None) -> list[Path]:
    """Fetch the listed jars of a set into a directory, which may be that of other sets. Raises SetupError."""
    fetched = fetch_jars(jar_set, progress)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(jar, directory)) for jar in fetched]
    except OSError as error:
        raise SetupError(f"Cannot write {directory}: {reason_of(error)}") from None


def _is_other(name: str, actual: str, expected: str) -> str:
    return f"{name} has the SHA-256 {actual} instead of {expected}"


def _default_repository() -> str:
    """Return PySpark's default Maven repository. Raises SetupError if PySpark has no Ivy."""
    for jar in spark_home().glob("jars/ivy-*.jar"):
        with ZipFile(jar) as classes:
            found = _DEFAULT_OF_IVY.search(classes.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class"))
        if found:
            return found[0].decode()
    raise SetupError(f"No Maven repository is known: set {REPOSITORY_VARIABLE} to the URL of one")


def _download(artifact: str, target: Path, checksum: str) -> Iterator[int]:
    """Download a jar, and yield the sizes of its parts; `target` appears once verified. Raises SetupError, OSError."""
    import requests  # noqa: PLC0415 - comes with apprise; most starts download nothing

    group, name, version = artifact.split(":")
    repository = (os.environ.get(REPOSITORY_VARIABLE) or _default_repository()).rstrip("/")
    url = f"{repository}/{group.replace('.', '/')}/{name}/{version}/{target.name}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix="new-") as directory:
        new, actual = Path(directory, target.name), hashlib.sha256()
        try:
            with new.open("wb") as file, requests.get(url, stream=True, timeout=_ANSWER_SECONDS) as response:
                response.raise_for_status()
                for part in response.iter_content(_PART):
                    file.write(part)
                    actual.update(part)
                    yield len(part)
        except requests.RequestException as error:
            answer = f"answers {error.response.status_code}" if error.response is not None else "does not answer"
            raise SetupError(
                f"Cannot fetch {artifact}: the repository {answer}. "
                f"Only the first run needs the network; {REPOSITORY_VARIABLE} can name another repository"
            ) from None
        if actual.hexdigest() != checksum:
            raise SetupError(f"{_is_other(target.name, actual.hexdigest(), checksum)}, from the repository")
        new.replace(target)
