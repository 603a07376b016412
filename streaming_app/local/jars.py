"""Turns Maven coordinates into jars on this machine, with the Ivy that PySpark bundles and a cache of its own.

Everything the project runs on a JVM comes through `resolve`: brokers, Spark's connectors, Kafka Streams applications.
What is resolved once is remembered: the next call starts no JVM and needs no network.
"""

import hashlib
import importlib.metadata
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs
import pyspark
from filelock import FileLock

from streaming_app.local.errors import LocalError
from streaming_app.local.java import find_java

SCALA = "2.13"
KAFKA_VERSION = "4.4.0"
LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"  # without it, brokers and Streams applications log nothing
KAFKA_EXCLUSIONS = ("org.apache.kafka:kafka-tools-api",)  # the broker's POM names it; 4.4.0 of it was not published
SPARK_EXCLUSIONS = (  # what pyspark/jars holds already: a second copy on the class path is how Spark jobs break
    "com.google.code.findbugs:jsr305",
    "org.antlr:antlr4-runtime",
    "org.apache.hadoop:*",
    f"org.apache.spark:spark-tags_{SCALA}",
    "org.lz4:lz4-java",
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:snappy-java",
)
"""Exclusions to go with `spark_coordinates()`."""

_QUIET_SECONDS = 2.0  # work that takes less needs no word of progress
_POLL_SECONDS = 0.1
_Progress = Callable[[str], None]
_ANY = "*"


def kafka_coordinates(version: str = KAFKA_VERSION) -> tuple[str, ...]:
    """Name the coordinates of a whole broker; resolve them with `exclude=KAFKA_EXCLUSIONS`."""
    return f"org.apache.kafka:kafka_{SCALA}:{version}", LOG4J


def spark_coordinates() -> tuple[str, ...]:
    """Delta Lake and Spark's Kafka connector, for the pyspark and delta-spark installed here."""
    delta, spark = importlib.metadata.version("delta-spark"), importlib.metadata.version("pyspark")
    return f"io.delta:delta-spark_{SCALA}:{delta}", f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}"


KAFKA = kafka_coordinates()


def cache_directory() -> Path:
    """Where jars and class paths are kept: STREAMS_GROUPS_CACHE, else this user's cache directory."""
    return Path(os.environ.get("STREAMS_GROUPS_CACHE") or platformdirs.user_cache_dir("streams-groups")).absolute()


def resolve(*coordinates: str, exclude: Sequence[str] = (), progress: _Progress | None = None) -> list[Path]:
    """Find the jars of these `group:artifact:version` and of all they need at run time, fetched if need be.

    `exclude` holds `group:artifact`, the artifact `*` for a whole group. `progress` is called with one line every
    2 s or so while jars are fetched. Ivy's own resolvers are used unless STREAMS_GROUPS_IVY_SETTINGS names an Ivy
    settings file or URL. Two processes may resolve at once: one fetches, the other waits for it. Raises LocalError
    when there is no Java, no network, or no such artifact.
    """
    cache = cache_directory()
    remembered = cache / "classpaths" / _name(coordinates, exclude)
    if jars := _recall(remembered):
        return jars
    java = find_java()
    try:
        remembered.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"Cannot write the cache of jars: {error}; STREAMS_GROUPS_CACHE names another place") from None
    with FileLock(cache / "ivy.lock"):
        jars = _recall(remembered) or _run_ivy(java, cache, coordinates, exclude, progress or _silent)
        _remember(remembered, jars)
    return jars


def _name(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    wanted = "\n".join([*sorted(coordinates), "-", *sorted(exclude)])
    first = coordinates[0].replace(":", "_")
    return f"{first}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"


def _recall(remembered: Path) -> list[Path]:
    """Read the jars resolved before; empty unless every one of them is still there."""
    try:
        jars = [Path(line) for line in remembered.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []
    return jars if all(jar.is_file() for jar in jars) else []


def _remember(remembered: Path, jars: list[Path]) -> None:
    """Write at one go: a reader that does not hold the lock sees all of it or nothing."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=remembered.parent, delete=False) as file:
        file.write("".join(f"{jar}\n" for jar in jars))
    Path(file.name).replace(remembered)


def _run_ivy(
    java: Path, cache: Path, coordinates: Sequence[str], exclude: Sequence[str], progress: _Progress
) -> list[Path]:
    with tempfile.TemporaryDirectory(dir=cache, prefix="ivy-run-") as work:
        module, class_path, log = Path(work, "ivy.xml"), Path(work, "classpath"), Path(work, "log")
        module.write_text(_ivy_module(coordinates, exclude), encoding="utf-8")
        command: list[str | Path] = [java, "-jar", _ivy_jar(), "-ivy", module, "-m2compatible"]
        command += ["-cache", cache / "ivy", "-cachepath", class_path]
        if settings := os.environ.get("STREAMS_GROUPS_IVY_SETTINGS"):
            command += ["-settings", settings]
        with log.open("wb") as output:
            ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603
            try:
                _watch(ivy, log, coordinates[0], progress)
            finally:  # an interrupted caller leaves no Ivy behind
                ivy.kill()
                ivy.wait()
        said = log.read_text(encoding="utf-8", errors="replace")
        if ivy.returncode != 0 or not class_path.exists():
            raise LocalError(_failure(said, coordinates))
        return [Path(jar) for jar in class_path.read_text(encoding="utf-8").strip().split(os.pathsep)]


def _ivy_jar() -> Path:
    """Find PySpark's own copy of Ivy."""
    jars = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    if not jars:
        raise LocalError("The installed pyspark bundles no Ivy: install pyspark 4.0 from PyPI")
    return jars[-1]


def _ivy_module(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    lines = ['<ivy-module version="2.0">', '<info organisation="streams-groups" module="classpath"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        where = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        lines.append(f'<dependency {where} conf="default-&gt;default"/>')
    for exclusion in exclude:
        group, artifact = exclusion.split(":")
        module = "" if artifact == _ANY else f" module={quoteattr(artifact)}"
        lines.append(f"<exclude org={quoteattr(group)}{module}/>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])


def _watch(ivy: subprocess.Popen[bytes], log: Path, what: str, progress: _Progress) -> None:
    """Wait for Ivy, with a line of progress every now and then."""
    next_line = time.monotonic() + _QUIET_SECONDS
    while ivy.poll() is None:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() >= next_line:
            next_line += _QUIET_SECONDS
            progress(f"Fetching {what}: {_how_far(log.read_text(encoding='utf-8', errors='replace'))}")


def _how_far(said: str) -> str:
    found = len(re.findall(r"^\tfound ", said, re.MULTILINE))
    jars = len(re.findall(r"\[SUCCESSFUL \].*\.jar", said))
    fetched = sum(int(size) for size in re.findall(r"\((\d+)kB\)", said)) / 1000
    return f"{jars} of {found} jars, {fetched:.0f} MB" if jars else f"{found} artifacts found"


def _failure(said: str, coordinates: Sequence[str]) -> str:
    unreachable = re.search(r"Server access error at url \S+ \(([^)]*)\)", said)
    if unreachable or re.search(r"Host .* not found|You probably access the destination server", said):
        why = f" ({unreachable[1]})" if unreachable else ""
        return (
            f"Cannot fetch {', '.join(coordinates)}: the repository does not answer{why}. "
            "The first run needs the network, later ones do not; STREAMS_GROUPS_IVY_SETTINGS names another repository"
        )
    _, _, verdict = said.partition(":: problems summary ::")
    names = sorted({":".join(match) for match in re.findall(r":: ([^#\s]+)#([^;\s]+);([^:\s!]+)", verdict)})
    if names:
        return f"The repository has no {', '.join(names)} (asked for by {', '.join(coordinates)}): check the version"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"Ivy could not resolve {', '.join(coordinates)}: {lines[-1] if lines else 'it said nothing'}"


def _silent(_line: str) -> None:
    """Take progress that nobody asked for."""


if __name__ == "__main__":  # an image's build fetches ahead of the first start
    print(*resolve(*spark_coordinates(), exclude=SPARK_EXCLUSIONS, progress=print), sep="\n")  # noqa: T201
