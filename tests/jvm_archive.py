"""Makes the archives of classes with which the tests start JVMs: `python -m tests.jvm_archive`.

Spark and Delta load 20,000 classes before the first batch is done, a broker 8,000 before it answers. A JVM that finds
them in an archive (Java calls it class data sharing) neither reads nor checks them again, which is most of the
processor time of a short job. `make test` makes the archives once for a checkout; without one, or with one that does
not fit, a JVM starts as it always does.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from streaming_app.jvm.jar_sets import cached_jars, find_jars, kafka_jars, spark_jars
from streaming_app.jvm.java import java_home
from tests.jvm_options import FAST, KAFKA, SPARK, VARIABLES

DIRECTORY = Path(__file__).parents[1] / "build" / "test-jvm"
_JARS = {SPARK: spark_jars, KAFKA: kafka_jars}
_EXIT_SECONDS = 300.0  # a JVM writes the archive when it exits


def archive_paths() -> Mapping[str, Path]:
    """Return where each archive is, or is to be; none while its jars are not on this machine."""
    import pyspark  # noqa: PLC0415 - the import takes a second

    home, sparks = java_home(), Path(pyspark.__file__).parent / "jars"
    common = [home, (home / "release").stat().st_mtime_ns, sparks, sparks.stat().st_mtime_ns, FAST]
    paths = {}
    for name, jar_set in _JARS.items():
        if jars := cached_jars(jar_set()):
            key = hashlib.sha256("\n".join(map(str, [*common, *jars])).encode()).hexdigest()[:16]
            paths[name] = DIRECTORY / f"{name}-{key}.jsa"
    return paths


def existing_archives() -> Mapping[str, Path]:
    """Return the archives that fit Java and the jars of this machine."""
    if not any(DIRECTORY.glob("*.jsa")):
        return {}
    return {name: path for name, path in archive_paths().items() if path.exists() and path.stat().st_size}


def make_archives() -> None:
    """Make the archives unless they exist: JVMs do what those of the tests do, and write them when they exit."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with FileLock(DIRECTORY / "lock"):
        paths = archive_paths()
        if paths.keys() == _JARS.keys() and all(path.exists() for path in paths.values()):
            return
        print("Making archives of classes for the tests' JVMs (once, a minute or two) ...", flush=True)
        for jar_set in _JARS.values():
            find_jars(jar_set(), print)
        for old in DIRECTORY.glob("*.jsa"):
            old.unlink()
        with TemporaryDirectory(dir=DIRECTORY) as directory:
            written = {name: Path(directory, name) for name in _JARS}
            for variable in VARIABLES:
                os.environ.pop(variable, None)
            _use_jvms(
                Path(directory, "work"), {name: f"-XX:ArchiveClassesAtExit={path}" for name, path in written.items()}
            )
            for name, path in archive_paths().items():
                if written[name].exists():
                    written[name].rename(path)
                else:  # such as a Java without an archive of its own classes; it is not tried again
                    path.touch()
                    print(f"This Java made no archive for {name}: the tests do without", file=sys.stderr)


def _use_jvms(directory: Path, options: Mapping[str, str]) -> None:
    """Load what a broker and a job load, in JVMs with these options that then exit."""
    from streaming_app.job.session import start_spark  # noqa: PLC0415 - these load Spark
    from streaming_app.jvm.spark_jvm import SparkJvm  # noqa: PLC0415
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415
    from streaming_app.sandbox import broker as broker_module  # noqa: PLC0415
    from streaming_app.sandbox.broker import LocalBroker, SecureListeners  # noqa: PLC0415
    from streaming_app.sandbox.demo_groups import create_demo_groups  # noqa: PLC0415
    from tests.job.job_runner import run_once  # noqa: PLC0415

    broker_module._GRACE_SECONDS = _EXIT_SECONDS
    os.environ["SPARK_SUBMIT_OPTS"] = f"{FAST} {options[SPARK]}"
    listeners = SecureListeners(java_options=[options[KAFKA]])
    jvm = SparkJvm()
    spark = start_spark(directory / "spark.log", progress=print, jvm=jvm)
    with (
        LocalBroker(directory / "broker", secure_listeners=listeners) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        groups = create_demo_groups(client)
        for _ in range(2):
            run_once(spark, broker.bootstrap_server, directory / "warehouse", offsets={"enabled": True})
        groups.close()
    spark.stop()
    jvm.close(_EXIT_SECONDS)


if __name__ == "__main__":
    make_archives()
