"""The jars that the job and the demo need: pinned lists with checksums, and where the jars come from.

A list in `checksums` has a line for each jar, in the order of the class path: its SHA-256, and its coordinates in
Maven's form `group:artifact:version`. Jars come from the directory that STREAMS_GROUPS_JARS names: `streams-groups jars
fetch --directory DIR` fills it, and it can be carried to a host without network. Else they come from the cache, which
is filled from Maven Central, or from the repository that STREAMS_GROUPS_MAVEN names. A jar with another checksum is
refused. There is no list for a version of Spark that was not tested: Spark resolves its connector then.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import unquote, urlsplit

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.cache import cache_directory
from streaming_app.jvm.spark_installation import installed_spark
from streaming_app.text import first_of, megabytes

SCALA = "2.13"
KAFKA_VERSION = "4.4.0"
DIRECTORY_VARIABLE = "STREAMS_GROUPS_JARS"
REPOSITORY_VARIABLE = "STREAMS_GROUPS_MAVEN"
_MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
_CHECKSUMS = Path(__file__).with_name("checksums")
_THREADS = 4
_POLL_SECONDS = 0.1
_FIRST_LINE_SECONDS, _LINE_SECONDS = 1.5, 15.0  # so that short downloads print none
_ANSWER_SECONDS = 30.0
_ATTEMPTS = 3
_MOST_PAUSE = 4.0
_CHUNK = 1 << 18
_FAILURES = (OSError, http.client.HTTPException)

Progress = Callable[[str], None]
"""Gets lines for the user."""
Poll = Callable[[], None]
"""Called ten times a second during a download; may raise to end it."""


class JarSet(NamedTuple):
    """Jars that are used together."""

    what: str
    checksums: Mapping[str, str]
    """SHA-256 by `group:artifact:version`, in the order of the class path; none for untested versions."""

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [jar_name(artifact) for artifact in self.checksums]


def connector_jars(spark: str | None = None) -> JarSet:
    """Return the jars of Spark's Kafka connector for the installed version of Spark, or for this one."""
    version = spark or installed_spark()
    return JarSet(f"the jars of Spark's Kafka connector {version}", _read_checksums(f"spark-{version}"))


def kafka_jars() -> JarSet:
    """Return the jars of a Kafka broker, which the demo starts."""
    return JarSet(f"the jars of Kafka {KAFKA_VERSION}", _read_checksums(f"kafka-{KAFKA_VERSION}"))


def connector_coordinates(spark: str) -> str:
    """Return Maven's coordinates of Spark's Kafka connector."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}"


def jar_name(artifact: str) -> str:
    """Return the name of the jar of a `group:artifact:version`."""
    return "-".join(artifact.split(":")[1:]) + ".jar"


def find_jars(jar_set: JarSet, progress: Progress | None = None, poll: Poll | None = None) -> list[Path]:
    """Return the jars of a set, in the order of the class path; download them unless STREAMS_GROUPS_JARS is set.

    Raises SetupError if one is missing there, cannot be downloaded, or has another checksum.
    """
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        return fetch_jars(jar_set, progress, poll)
    found = [Path(directory).absolute() / name for name in jar_set.names]
    if wrong := _differences(jar_set, found):
        raise SetupError(
            f"{jar_set.what[0].upper()}{jar_set.what[1:]}, from {DIRECTORY_VARIABLE}={directory}: "
            f"{first_of(wrong, 1)}; fetch them with `streams-groups jars fetch --directory {directory}`"
        )
    return found


def fetch_jars(jar_set: JarSet, progress: Progress | None = None, poll: Poll | None = None) -> list[Path]:
    """Return the jars of a set in the cache, downloaded where they are missing. Raises as `find_jars`."""
    cache = cache_directory() / "jars"
    found = {artifact: cache / artifact.split(":")[0] / jar_name(artifact) for artifact in jar_set.checksums}
    missing = {artifact: path for artifact, path in found.items() if not path.is_file()}
    if missing:
        try:
            for path in missing.values():
                path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"Cannot write the cache of jars: {reason_of(error)}; set another STREAMS_GROUPS_CACHE"
            ) from None
        _Download(jar_set, missing).run(progress or (lambda _: None), poll or (lambda: None))
    return list(found.values())


def copy_jars(jar_set: JarSet, directory: Path, progress: Progress | None = None) -> list[Path]:
    """Copy the jars of a set into a directory, which may hold other sets, too; return the copies. Raises SetupError."""
    fetched = fetch_jars(jar_set, progress)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(jar, directory)) for jar in fetched]
    except OSError as error:
        raise SetupError(f"Cannot write {directory}: {reason_of(error)}") from None


class _Download:
    """Downloads jars in a few threads, each into a file that gets its name once the checksum is right."""

    def __init__(self, jar_set: JarSet, missing: Mapping[str, Path]) -> None:
        self._jar_set, self._missing = jar_set, missing
        self._repository = _Repository(os.environ.get(REPOSITORY_VARIABLE) or _MAVEN_CENTRAL)
        self._ended, self._bytes = threading.Event(), 0

    def run(self, progress: Progress, poll: Poll) -> None:
        """Return once all are there. Raises SetupError, and what `poll` raises."""
        show_at = time.monotonic() + _FIRST_LINE_SECONDS
        with ThreadPoolExecutor(_THREADS) as threads:
            futures = [threads.submit(self._fetch, artifact, path) for artifact, path in self._missing.items()]
            try:
                poll()
                while not _are_done(futures):
                    poll()
                    if time.monotonic() >= show_at:
                        show_at = time.monotonic() + _LINE_SECONDS
                        done = sum(future.done() for future in futures)
                        progress(
                            f"Downloading {self._jar_set.what}: {done} of {len(futures)}, {megabytes(self._bytes)}"
                        )
            finally:
                self._ended.set()
                for future in futures:
                    future.cancel()

    def _fetch(self, artifact: str, path: Path) -> None:
        again = retry_if_exception(lambda error: isinstance(error, _FAILURES) and not _is_missing(error))
        pause = wait_exponential(max=_MOST_PAUSE)
        retrying = Retrying(
            retry=again, stop=stop_after_attempt(_ATTEMPTS), wait=pause, sleep=self._sleep, reraise=True
        )
        try:
            retrying(self._fetch_once, artifact, path)
        except _FAILURES as error:
            raise SetupError(self._describe(artifact, error)) from None

    def _sleep(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _fetch_once(self, artifact: str, path: Path) -> None:
        sha256 = hashlib.sha256()
        with (
            self._repository.open(artifact) as answer,
            tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file,
        ):
            part = Path(file.name)
            try:
                while (chunk := answer.read(_CHUNK)) and not self._ended.is_set():
                    sha256.update(chunk)
                    file.write(chunk)
                    self._bytes += len(chunk)
                file.flush()
                if self._ended.is_set():
                    return
                if sha256.hexdigest() != self._jar_set.checksums[artifact]:
                    raise SetupError(
                        f"{self._repository.name} has another {path.name} than the one that was tested: its SHA-256 "
                        f"is {sha256.hexdigest()} instead of {self._jar_set.checksums[artifact]}"
                    )
                part.chmod(0o644)
                part.replace(path)  # nobody sees a part of it
            finally:
                part.unlink(missing_ok=True)

    def _describe(self, artifact: str, error: Exception) -> str:
        if _is_missing(error):
            return f"{self._repository.name} has no {artifact}"
        reason = getattr(error, "reason", None) or error
        return (
            f"Cannot download {self._jar_set.what} from {self._repository.name}: {reason}. Only the first run needs "
            f"the network; {REPOSITORY_VARIABLE} can name another repository, {DIRECTORY_VARIABLE} a directory"
        )


class _Repository:
    """A Maven repository; its URL may hold a user and a password, which no message shows."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url.rstrip("/"))
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        self._url = parts._replace(netloc=host).geturl()
        self._headers: dict[str, str] = {}
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        if parts.scheme not in {"https", "http", "file"}:
            raise SetupError(f"{REPOSITORY_VARIABLE} must be the URL of a Maven repository, such as {_MAVEN_CENTRAL}")
        self.name = host or self._url

    def open(self, artifact: str) -> IO[bytes]:
        """Return what reads a jar. Raises OSError."""
        group, name, version = artifact.split(":")
        url = f"{self._url}/{group.replace('.', '/')}/{name}/{version}/{jar_name(artifact)}"
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - the scheme was checked
        answer: IO[bytes] = urllib.request.urlopen(request, timeout=_ANSWER_SECONDS)  # noqa: S310 - as above
        return answer


def _are_done(futures: Sequence[Future[None]]) -> bool:
    """Wait for a moment; return whether all are done. Raises the first error."""
    done, left = wait(futures, _POLL_SECONDS, FIRST_EXCEPTION)
    for future in done:
        future.result()
    return not left


def _is_missing(error: Exception) -> bool:
    return isinstance(error, urllib.error.HTTPError) and error.code == 404  # noqa: PLR2004 - Not Found


def _read_checksums(name: str) -> Mapping[str, str]:
    file = _CHECKSUMS / f"{name}.sha256"
    if not file.is_file():
        return {}
    pairs = (line.split() for line in file.read_text("utf-8").splitlines())
    return {artifact: checksum for checksum, artifact in pairs}


def _differences(jar_set: JarSet, files: Iterable[Path]) -> list[str]:
    """Return a line for each of these files that is missing or has another checksum."""
    lines = []
    for file, expected in zip(files, jar_set.checksums.values(), strict=True):
        actual = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
        if actual is None:
            lines.append(f"{file.name} is missing")
        elif actual != expected:
            lines.append(f"{file.name} has the SHA-256 {actual} instead of {expected}")
    return lines
