"""Resolves Maven coordinates to jars on this machine, with the Ivy that PySpark bundles and a separate cache.

Everything that the project runs on a JVM comes from `resolve`: brokers, Spark's connectors, Kafka Streams applications.
The resolved class paths are cached: the next call starts no JVM and needs no network.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs
import pyspark
from filelock import FileLock
from typing_extensions import Self

from streaming_app.errors import SetupError
from streaming_app.jvm.java import find_java
from streaming_app.text import escape

SCALA = "2.13"
KAFKA_VERSION = "4.4.0"
LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"  # without it, brokers and Streams applications log nothing
KAFKA_EXCLUSIONS = ("org.apache.kafka:kafka-tools-api",)  # named by the broker's POM; 4.4.0 of it was not published
SPARK_EXCLUSIONS = (  # pyspark/jars has these: a second version on the class path causes linkage errors
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "io.airlift:aircompressor",
    "org.antlr:antlr4-runtime",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    f"org.apache.spark:spark-tags_{SCALA}",
    "org.lz4:lz4-java",
    "org.roaringbitmap:*",
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:snappy-java",
)
"""The `exclude` to pass with `spark_coordinates()`."""

_POLL_SECONDS = 0.1
_TERMINAL_SECONDS = 0.5  # between two changes of the line
_LOG_SECONDS = 15.0  # between two lines; the first comes after a tenth of it, so that short downloads print none
_ERASE_LINE = "\r\x1b[2K"
_Progress = Callable[[str], None]
_ANY_ARTIFACT = "*"


def kafka_coordinates(version: str = KAFKA_VERSION) -> tuple[str, ...]:
    """Return the coordinates of a complete broker; resolve them with `exclude=KAFKA_EXCLUSIONS`."""
    return f"org.apache.kafka:kafka_{SCALA}:{version}", LOG4J


def spark_coordinates(spark: str, delta: str) -> tuple[str, ...]:
    """Return the coordinates of Delta Lake and Spark's Kafka connector of these versions."""
    return f"io.delta:delta-spark_{SCALA}:{delta}", f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}"


def cache_directory() -> Path:
    """Return the directory of cached jars and class paths: STREAMS_GROUPS_CACHE, else this user's cache directory."""
    return Path(os.environ.get("STREAMS_GROUPS_CACHE") or platformdirs.user_cache_dir("streams-groups")).absolute()


def resolve(
    *coordinates: str,
    exclude: Sequence[str] = (),
    progress: _Progress | None = None,
    check: Callable[[list[Path]], None] | None = None,
    poll: Callable[[], None] | None = None,
) -> list[Path]:
    """Return the jars of these `group:artifact:version` and of their runtime dependencies; download missing ones.

    `exclude` holds `group:artifact`, with the artifact `*` for a whole group. During a download `progress` gets lines
    for the user, few where stderr is no terminal, and `poll` is called ten times a second and may raise to end it.
    `check` is called with jars that were just fetched, and raises SetupError to refuse them. Ivy's default resolvers
    are used unless STREAMS_GROUPS_IVY_SETTINGS names an Ivy settings file or URL. Two processes may resolve at the same
    time: one downloads, the other waits for it. Raises SetupError when there is no Java, no network, or no such
    artifact.
    """
    cache = cache_directory()
    class_path = _class_path_file(coordinates, exclude)
    if jars := _read_class_path(class_path):
        return jars
    java = find_java()
    try:
        class_path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"Cannot write the cache of jars: {error}; set another STREAMS_GROUPS_CACHE") from None
    with FileLock(cache / "ivy.lock"):
        jars = _read_class_path(class_path)
        if not jars:
            jars = _run_ivy(java, cache, coordinates, exclude, progress or _ignore, poll)
            if check is not None:
                check(jars)
            _write_class_path(class_path, jars)
    return jars


def cached(*coordinates: str, exclude: Sequence[str] = ()) -> list[Path]:
    """Return what `resolve` would return without a download; none unless all jars are in the cache."""
    return _read_class_path(_class_path_file(coordinates, exclude))


def _class_path_file(coordinates: Sequence[str], exclude: Sequence[str]) -> Path:
    return cache_directory() / "classpaths" / _cache_name(coordinates, exclude)


def _cache_name(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    text = "\n".join([*sorted(coordinates), "-", *sorted(exclude)])
    first = coordinates[0].replace(":", "_")
    return f"{first}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _read_class_path(cached: Path) -> list[Path]:
    """Return the cached class path; empty unless every one of its jars exists."""
    try:
        jars = [Path(line) for line in cached.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []
    return jars if all(jar.is_file() for jar in jars) else []


def _write_class_path(cached: Path, jars: list[Path]) -> None:
    """Write atomically: a reader that does not hold the lock sees the complete file or none."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=cached.parent, delete=False) as file:
        file.write("".join(f"{jar}\n" for jar in jars))
    Path(file.name).replace(cached)


def _run_ivy(  # noqa: PLR0913, PLR0917 - one caller
    java: Path,
    cache: Path,
    coordinates: Sequence[str],
    exclude: Sequence[str],
    progress: _Progress,
    poll: Callable[[], None] | None,
) -> list[Path]:
    with tempfile.TemporaryDirectory(dir=cache, prefix="ivy-run-") as work:
        module, class_path, log = Path(work, "ivy.xml"), Path(work, "classpath"), Path(work, "log")
        module.write_text(_ivy_module(coordinates, exclude), encoding="utf-8")
        command: list[str | Path] = [java, "-jar", _ivy_jar(), "-ivy", module, "-m2compatible"]
        command += ["-cache", cache / "ivy", "-cachepath", class_path]
        if settings := os.environ.get("STREAMS_GROUPS_IVY_SETTINGS"):
            command += ["-settings", settings]
        with log.open("wb") as file:
            ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)  # noqa: S603
            try:
                _wait(ivy, log, coordinates[0], progress, poll)
            finally:  # an interrupted caller leaves no Ivy process behind
                ivy.kill()
                ivy.wait()
        output = log.read_text(encoding="utf-8", errors="replace")
        if ivy.returncode != 0 or not class_path.exists():
            raise SetupError(_error_message(output, coordinates))
        return [Path(jar) for jar in class_path.read_text(encoding="utf-8").strip().split(os.pathsep)]


def _ivy_jar() -> Path:
    """Return the path of the Ivy that PySpark bundles."""
    jars = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    if not jars:
        raise SetupError("The installed pyspark bundles no Ivy: install pyspark 4.0 from PyPI")
    return jars[-1]


def _ivy_module(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    lines = ['<ivy-module version="2.0">', '<info organisation="streams-groups" module="classpath"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        attributes = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        lines.append(f'<dependency {attributes} conf="default-&gt;default"/>')
    for exclusion in exclude:
        group, artifact = exclusion.split(":")
        module = "" if artifact == _ANY_ARTIFACT else f" module={quoteattr(artifact)}"
        lines.append(f"<exclude org={quoteattr(group)}{module}/>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])


def _wait(
    ivy: subprocess.Popen[bytes], log: Path, coordinate: str, progress: _Progress, poll: Callable[[], None] | None
) -> None:
    """Wait for Ivy to exit, and show how far it is."""
    with ProgressLine(progress) as line:
        while ivy.poll() is None:
            time.sleep(_POLL_SECONDS)
            if poll is not None:
                poll()
            if line.is_due():
                output = log.read_text(encoding="utf-8", errors="replace")
                line.show(f"Fetching {coordinate}: {_progress_text(output)}")


def _progress_text(output: str) -> str:
    artifacts = len(re.findall(r"^\tfound ", output, re.MULTILINE))
    jars = len(re.findall(r"\[SUCCESSFUL \].*\.jar", output))
    fetched = sum(int(size) for size in re.findall(r"\((\d+)kB\)", output)) / 1000
    return f"{jars} of {artifacts} jars, {fetched:.0f} MB" if jars else f"looking for dependencies, {artifacts} so far"


def _error_message(output: str, coordinates: Sequence[str]) -> str:
    unreachable = re.search(r"Server access error at url \S+ \(([^)]*)\)", output)
    if unreachable or re.search(r"Host .* not found|You probably access the destination server", output):
        why = f" ({unreachable[1]})" if unreachable else ""
        return (
            f"Cannot fetch {', '.join(coordinates)}: the repository does not answer{why}. "
            "Only the first run needs the network; STREAMS_GROUPS_IVY_SETTINGS can name another repository"
        )
    _, _, summary = output.partition(":: problems summary ::")
    names = sorted({":".join(match) for match in re.findall(r":: ([^#\s]+)#([^;\s]+);([^:\s!]+)", summary)})
    if names:
        return f"The repository has no {', '.join(names)} (required by {', '.join(coordinates)}): check the version"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"Ivy could not resolve {', '.join(coordinates)}: {lines[-1] if lines else 'it printed nothing'}"


def _ignore(_line: str) -> None:
    """Discard a line of progress."""


class ProgressLine:
    """Shows how far a download is: one line that changes on a terminal, a line now and then in a log.

    It writes to stderr if that is a terminal; else it gives lines, each once, to `report`.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._is_terminal = sys.stderr.isatty()
        self._due_at = time.monotonic() + (_TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS / 10)
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._last:
            sys.stderr.write(_ERASE_LINE)
            sys.stderr.flush()

    def is_due(self) -> bool:
        """Return whether it is time for the next text."""
        return time.monotonic() >= self._due_at

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        self._due_at = time.monotonic() + (_TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS)
        if text == self._last:
            return
        self._last = text
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(_ERASE_LINE + escape(text)[: columns - 1])
            sys.stderr.flush()
        else:
            self._report(text)
