"""Resolves Maven coordinates to jars on this machine, with the Ivy that PySpark bundles and a separate cache.

Everything that the project runs on a JVM comes from `resolve`: brokers, Spark's connectors, Kafka Streams applications.
The resolved class paths are cached: the next call starts no JVM and needs no network.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs
import pyspark
from filelock import FileLock
from typing_extensions import Self

from streaming_app.errors import SetupError
from streaming_app.jvm.java import find_java
from streaming_app.text import digest, escape

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
# Reads jars from the repository that Ivy has by default, and nothing else: neither POMs, nor those that they inherit
# from, nor checksums. Kafka's 44 jars took 12 s of 50 this way, on a busy machine.
_JARS_ONLY = """\
<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""/>
  </resolvers>
</ivysettings>
"""
_FIRST_ANSWER_SECONDS = 15.0  # Ivy asks the repository two seconds after its launch
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # it runs for seconds, and mostly waits
_WORK = "ivy-run-"
_SETTINGS_VARIABLE = "STREAMS_GROUPS_IVY_SETTINGS"


def kafka_coordinates(version: str = KAFKA_VERSION) -> tuple[str, ...]:
    """Return the coordinates of a complete broker; resolve them with `exclude=KAFKA_EXCLUSIONS`."""
    return f"org.apache.kafka:kafka_{SCALA}:{version}", LOG4J


def spark_coordinates(spark: str, delta: str) -> tuple[str, ...]:
    """Return the coordinates of Delta Lake and Spark's Kafka connector of these versions."""
    return f"io.delta:delta-spark_{SCALA}:{delta}", f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}"


def cache_directory() -> Path:
    """Return the directory of cached jars and class paths: STREAMS_GROUPS_CACHE, else this user's cache directory."""
    return Path(os.environ.get("STREAMS_GROUPS_CACHE") or platformdirs.user_cache_dir("streams-groups")).absolute()


def jar_name(artifact: str) -> str:
    """Return the name of the jar of a `group:artifact:version`."""
    return "-".join(artifact.split(":")[1:]) + ".jar"


def resolve(
    *coordinates: str,
    exclude: Sequence[str] = (),
    progress: _Progress | None = None,
    check: Callable[[list[Path]], None] | None = None,
    poll: Callable[[], None] | None = None,
    known: Sequence[str] = (),
) -> list[Path]:
    """Return the jars of these `group:artifact:version` and of their runtime dependencies; download missing ones.

    `exclude` holds `group:artifact`, with the artifact `*` for a whole group. During a download `progress` gets lines
    for the user, few where stderr is no terminal, and `poll` is called ten times a second and may raise to end it.
    `check` is called with jars that were just fetched, and raises SetupError to refuse them. Ivy's default resolvers
    are used unless STREAMS_GROUPS_IVY_SETTINGS names an Ivy settings file or URL. What they would find may be `known`,
    each a `group:artifact:version`: these jars are fetched without asking what they depend on, if that succeeds. Two
    processes may resolve at the same time: one downloads, the other waits for it. Raises SetupError when there is no
    Java, no network, or no such artifact.
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
            with _work_directory(cache) as work:
                ivy = _Ivy(java, work, coordinates, progress or (lambda _: None), poll)
                if known and not os.environ.get(_SETTINGS_VARIABLE):
                    jars = ivy.fetch(known, cache / "jars")
                jars = jars or ivy.resolve(exclude, cache)
            if check is not None:
                check(jars)
            _write_class_path(class_path, jars)
    return jars


def _class_path_file(coordinates: Sequence[str], exclude: Sequence[str]) -> Path:
    return cache_directory() / "classpaths" / _cache_name(coordinates, exclude)


def _cache_name(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    text = "\n".join([*sorted(coordinates), "-", *sorted(exclude)])
    first = coordinates[0].replace(":", "_")
    return f"{first}-{digest(text, 12)}"


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


class _NoAnswerError(Exception):
    """The repository did not answer in time."""


class _Ivy:
    """Runs Ivy for these coordinates, with its files in a directory that is removed later."""

    def __init__(
        self, java: Path, work: Path, coordinates: Sequence[str], progress: _Progress, poll: Callable[[], None] | None
    ) -> None:
        self._java, self._work, self._coordinates = java, work, coordinates
        self._progress, self._poll = progress, poll or (lambda: None)

    def resolve(self, exclude: Sequence[str], cache: Path) -> list[Path]:
        """Fetch what the coordinates need, as their POMs say. Raises SetupError."""
        settings = os.environ.get(_SETTINGS_VARIABLE)
        arguments: list[str | Path] = ["-cache", cache / "ivy", *(["-settings", settings] if settings else [])]
        output, found = self._run(_ivy_module(self._coordinates, exclude), arguments, self._poll)
        if not found:
            raise SetupError(_error_message(output, self._coordinates))
        return found

    def fetch(self, artifacts: Sequence[str], target: Path) -> list[Path]:
        """Fetch these artifacts alone; return their jars, which are put into `target`, or none if one is missing."""
        settings = self._work / "settings.xml"
        settings.write_text(_JARS_ONLY, encoding="utf-8")
        arguments: list[str | Path] = ["-cache", self._work / "ivy", "-settings", settings]
        give_up_at = time.monotonic() + _FIRST_ANSWER_SECONDS

        def poll() -> None:
            self._poll()
            if time.monotonic() > give_up_at and not _count_found(self._log.read_text("utf-8", "replace")):
                raise _NoAnswerError

        try:
            _, found = self._run(_ivy_module(artifacts, ()), arguments, poll)
        except _NoAnswerError:
            return []
        by_name = {jar.name: jar for jar in found}
        kept = [target / artifact.split(":")[0] / jar_name(artifact) for artifact in artifacts]
        if by_name.keys() != {jar.name for jar in kept}:
            return []
        for jar in kept:
            jar.parent.mkdir(parents=True, exist_ok=True)
            by_name[jar.name].replace(jar)  # at once: nobody sees a part of it
        return kept

    @property
    def _log(self) -> Path:
        return self._work / "log"

    def _run(self, module: str, arguments: Sequence[str | Path], poll: Callable[[], None]) -> tuple[str, list[Path]]:
        """Return what Ivy printed and the jars that it found; none if it failed."""
        file, class_path = self._work / "ivy.xml", self._work / "classpath"
        file.write_text(module, encoding="utf-8")
        command: list[str | Path] = [self._java, *_JVM_OPTIONS, "-jar", _ivy_jar(), "-ivy", file, "-m2compatible"]
        command += [*arguments, "-cachepath", class_path]
        with self._log.open("wb") as log:
            ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
            try:
                _wait(ivy, self._log, self._coordinates[0], self._progress, poll)
            finally:  # an interrupted caller leaves no Ivy process behind
                ivy.kill()
                ivy.wait()
        is_done = ivy.returncode == 0 and class_path.exists()
        found = class_path.read_text("utf-8").strip().split(os.pathsep) if is_done else []
        return self._log.read_text("utf-8", "replace"), [Path(jar) for jar in found]


@contextmanager
def _work_directory(cache: Path) -> Iterator[Path]:
    """Make a directory for the block, and remove those of processes that were killed. For the holder of the lock."""
    for left in cache.glob(f"{_WORK}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=_WORK) as work:
        yield Path(work)


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
    ivy: subprocess.Popen[bytes], log: Path, coordinate: str, progress: _Progress, poll: Callable[[], None]
) -> None:
    """Wait for Ivy to exit, and show how far it is."""
    with ProgressLine(progress) as line:
        while ivy.poll() is None:
            time.sleep(_POLL_SECONDS)
            poll()
            if line.is_due():
                output = log.read_text(encoding="utf-8", errors="replace")
                line.show(f"Fetching {coordinate}: {_progress_text(output)}")


def _progress_text(output: str) -> str:
    artifacts = _count_found(output)
    jars = len(re.findall(r"\[SUCCESSFUL \].*\.jar", output))
    fetched = sum(int(size) for size in re.findall(r"\((\d+)kB\)", output)) / 1000
    return f"{jars} of {artifacts} jars, {fetched:.0f} MB" if jars else f"looking for dependencies, {artifacts} so far"


def _count_found(output: str) -> int:
    return len(re.findall(r"^\tfound ", output, re.MULTILINE))


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
