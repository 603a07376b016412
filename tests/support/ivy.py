"""Resolves Maven coordinates to jars with PySpark's Ivy, for JVM libraries that only tests use.

The resolved class paths are cached: the next call starts no JVM and needs no network.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

import pyspark
from filelock import FileLock

from streaming_app.errors import SetupError
from streaming_app.jvm.jars import KAFKA_VERSION, SCALA, find_jars, kafka_jars
from streaming_app.jvm.java import cache_directory, find_java
from streaming_app.text import digest

LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"  # without it, brokers and Streams applications log nothing
NOT_PUBLISHED = ("org.apache.kafka:kafka-tools-api",)  # the broker's POM names it
SPARK_EXCLUSIONS = (  # pyspark/jars has these: a second version on the class path would cause linkage errors
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


def broker_jars(version: str) -> list[Path]:
    if version == KAFKA_VERSION:
        return find_jars(kafka_jars())
    return resolve(f"org.apache.kafka:kafka_{SCALA}:{version}", LOG4J, exclude=NOT_PUBLISHED)


def resolve(*coordinates: str, exclude: Sequence[str] = ()) -> list[Path]:
    """Return the jars of these `group:artifact:version` and of their runtime dependencies; download missing ones.

    `exclude` has `group:artifact`, with the artifact `*` for a whole group. Raises SetupError.
    """
    cache = cache_directory()
    name = digest("\n".join([*sorted(coordinates), "-", *sorted(exclude)]), 12)
    class_path = cache / "classpaths" / f"{coordinates[0].replace(':', '_')}-{name}"
    class_path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "ivy.lock"):
        if not (found := _read(class_path, "\n")):
            found = _run_ivy(coordinates, exclude, cache / "ivy")
            class_path.write_text("".join(f"{jar}\n" for jar in found), "utf-8")
    return found


def _read(class_path: Path, separator: str) -> list[Path]:
    """Return the jars of a class path; empty unless all of them exist."""
    text = class_path.read_text("utf-8").strip() if class_path.exists() else ""
    jars = [Path(jar) for jar in text.split(separator) if jar]
    return jars if all(jar.is_file() for jar in jars) else []


def _run_ivy(coordinates: Sequence[str], exclude: Sequence[str], cache: Path) -> list[Path]:
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    with TemporaryDirectory() as directory:
        file, class_path = Path(directory, "ivy.xml"), Path(directory, "classpath")
        file.write_text(_module(coordinates, exclude), "utf-8")
        command = [find_java(), "-jar", ivy, "-ivy", file, "-m2compatible", "-cache", cache, "-cachepath", class_path]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (found := _read(class_path, os.pathsep)):
            raise SetupError(f"Ivy could not resolve {', '.join(coordinates)}: {ran.stdout[-2000:]}")
        return found


def _module(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    lines = ['<ivy-module version="2.0">', '<info organisation="streams-groups" module="classpath"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    for coordinate in coordinates:
        org, name, rev = map(quoteattr, coordinate.split(":"))
        lines.append(f'<dependency org={org} name={name} rev={rev} conf="default-&gt;default"/>')
    for org, artifact in (one.split(":") for one in exclude):
        module = "" if artifact == "*" else f" module={quoteattr(artifact)}"
        lines.append(f"<exclude org={quoteattr(org)}{module}/>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])
