"""Starts Spark with Delta Lake and the Kafka connector, quietly: what the JVM says goes to a log file."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.job.errors import JobError
from streaming_app.local.jars import SPARK_EXCLUSIONS, resolve, spark_coordinates
from streaming_app.local.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.stop.name = org.apache.spark.sql.execution.streaming.MicroBatchExecution
logger.stop.level = error
"""

_JVM_SECONDS = 5.0  # a JVM whose connection broke is gone within these, or something else is wrong

# Each with its reason; `--conf` overrides them one by one.
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Spark's default way of listing topics leaves internal ones out, and reads nothing without an error.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.sql.session.timeZone": "UTC",
    # Micro-batches are small: planning, tasks and log replay cost more than the rows.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM would start 10,000 tasks
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.merge.materializeSource": "none",  # the source is cached and computes the same again
    "spark.sql.streaming.minBatchesToRetain": "20",  # bounds the checkpoint
    "spark.sql.streaming.noDataProgressEventInterval": "2000",  # how soon a job that has nothing to read is ready
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
}
_LOCAL_CONF = {  # nothing but this machine needs to reach the driver; executors elsewhere do
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def start_spark(
    log_file: Path,
    *,
    conf: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> SparkSession:
    """A Spark session whose JVM writes to `log_file` only. `conf` wins over what stands here.

    `spark.master` may name a cluster: its executors are given the jars, and must have this package (see deploy/spark).
    Raises LocalError when there is no Java or the jars cannot be fetched, JobError when Spark does not start.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the workers are the first python3 of the PATH
    jars = resolve(*spark_coordinates(), exclude=SPARK_EXCLUSIONS, progress=progress)
    wanted = dict(conf or {})
    master = wanted.pop("spark.master", "local[*]")
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        placed = _LOCAL_CONF
    else:
        placed = {"spark.jars": ",".join(map(str, jars))}
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log4j = log_file.with_suffix(".log4j2.properties")
    log4j.write_text(_LOG4J.format(path=log_file), "utf-8")
    settings = {
        **_CONF,
        **placed,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}",
        **wanted,
    }
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is loaded by those who need it
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName("streams-groups").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _output_to(log_file):
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise JobError(f"Spark did not start: {str(error).splitlines()[0]} (see {log_file})") from None


@contextmanager
def spark_session(
    log_file: Path, *, conf: Mapping[str, str] | None = None, progress: Callable[[str], None] | None = None
) -> Iterator[SparkSession]:
    """A session as `start_spark` makes it, which ends with the block. Raises JobError, too, when its JVM is lost."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is loaded by those who need it

    spark = start_spark(log_file, conf=conf, progress=progress)
    jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001 - the only way to it
    try:
        yield spark
    except (Py4JError, ConnectionError):
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_JVM_SECONDS)
            raise JobError(
                f"Spark's JVM is gone: was it killed, or was there no memory left? Start the job again (see {log_file})"
            ) from None
        raise
    finally:
        if jvm.poll() is None:
            spark.stop()


@contextmanager
def library_logs(log_file: Path) -> Iterator[None]:
    """Let what Python libraries log go to `log_file`, and only our own warnings to stderr.

    py4j logs tracebacks, and by calls that send them to stderr where nothing else is set up.
    """
    ours, theirs = logging.getLogger("streaming_app"), logging.getLogger()
    to_people, to_file = logging.StreamHandler(), WatchedFileHandler(log_file, delay=True)
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    propagate, ours.propagate = ours.propagate, False
    ours.addHandler(to_people)
    theirs.addHandler(to_file)
    try:
        yield
    finally:
        ours.propagate = propagate
        ours.removeHandler(to_people)
        theirs.removeHandler(to_file)
        to_file.close()


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Let a process started within write its standard output and error to `log_file`: Spark's JVM inherits them."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    try:
        with log_file.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for descriptor, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
