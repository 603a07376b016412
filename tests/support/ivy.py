"""Resolves Maven coordinates to jars, with the Ivy that PySpark bundles: for what only tests need.

That is Kafka Streams, other releases of Kafka, Delta Lake for Spark SQL, and servers of stores. Resolved class paths
are cached: the next call starts no JVM and needs no network.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark
from filelock import FileLock

from streaming_app.jvm.cache import cache_directory
from streaming_app.jvm.jars import SCALA
from streaming_app.jvm.java import find_java
from streaming_app.text import digest

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
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # it runs for seconds, and mostly waits


def kafka_coordinates(version: str) -> tuple[str, ...]:
    """Return the coordinates of a complete broker; resolve them with `exclude=KAFKA_EXCLUSIONS`."""
    return f"org.apache.kafka:kafka_{SCALA}:{version}", LOG4J


def resolve(*coordinates: str, exclude: Sequence[str] = ()) -> list[Path]:
    """Return the jars of these `group:artifact:version` and of what they need at run time; fetch missing ones.

    `exclude` holds `group:artifact`, with the artifact `*` for a whole group. Two processes may call it at the same
    time. Raises AssertionError with the end of what Ivy printed.
    """
    cache = cache_directory()
    name = digest("\n".join([*sorted(coordinates), "-", *sorted(exclude)]), 12)
    class_path = cache / "classpaths" / f"{coordinates[0].replace(':', '_')}-{name}"
    class_path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "ivy.lock"):
        found = [Path(line) for line in class_path.read_text("utf-8").split("\n")] if class_path.exists() else []
        if not found or not all(jar.is_file() for jar in found):
            found = _run_ivy(coordinates, exclude, cache)
            class_path.write_text("\n".join(map(str, found)), "utf-8")
    return found


def _run_ivy(coordinates: Sequence[str], exclude: Sequence[str], cache: Path) -> list[Path]:
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    with tempfile.TemporaryDirectory() as directory:
        module, class_path = Path(directory, "ivy.xml"), Path(directory, "classpath")
        module.write_text(_module(coordinates, exclude), encoding="utf-8")
        command: list[str | Path] = [find_java(), *_JVM_OPTIONS, "-jar", ivy, "-ivy", module, "-m2compatible"]
        command += ["-cache", cache / "ivy", "-cachepath", class_path]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        problems = re.sub(r"(?s).*:: problems summary ::", "", done.stdout)
        assert done.returncode == 0, problems[-4_000:]
        return [Path(jar) for jar in class_path.read_text("utf-8").strip().split(os.pathsep)]


def _module(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    lines = ['<ivy-module version="2.0">', '<info organisation="streams-groups" module="classpath"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        attributes = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        lines.append(f'<dependency {attributes} conf="default-&gt;default"/>')
    for exclusion in exclude:
        group, artifact = exclusion.split(":")
        module = "" if artifact == "*" else f" module={quoteattr(artifact)}"
        lines.append(f"<exclude org={quoteattr(group)}{module}/>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])
