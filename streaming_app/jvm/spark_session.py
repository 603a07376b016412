"""Starts Spark with its Kafka connector. The JVM and the Python libraries write to log files only."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import javaproperties

from streaming_app.errors import JobError, java_error_message
from streaming_app.jvm.jars import JarSet, connector_jars, find_jars
from streaming_app.jvm.java import last_line
from streaming_app.jvm.spark_installation import spark_java_home, use_spark_home, version_warning
from streaming_app.jvm.spark_jvm import JAVA_OPTIONS, SparkJvm, archive_option
from streaming_app.text import escape_lines

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
logger.stop.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.stop.level = error
logger.late.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.late.level = error
"""

_JVM_EXITED = "JAVA_GATEWAY_EXITED"
_CRASH_SECONDS = 5.0  # a crashed JVM exits within this time after its connection broke
_EXIT_SECONDS = 2.0  # for the JVM to exit after its session was stopped
MAX_CORES = 4  # by default: each core has a Python worker, so memory must not grow with the machine

# Each entry has its reason; `--conf` overrides any of them.
SESSION_CONF = {
    # With Spark's default, the Kafka source lists no internal topics: it would read nothing, without an error.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.sql.session.timeZone": "UTC",
    # A `spark-defaults.conf` of the user also applies; another value there would change the columns.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Micro-batches are small: adaptive planning costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # How many tasks list the files of a table: by default one per file.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.inMemoryColumnarStorage.batchSize": "1000",  # a row of `groups` has kilobytes
    # The most bytes that a Python worker gets at once: by default Spark limits only the rows, to 10,000.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.sql.streaming.minBatchesToRetain": "20",  # limits the size of the checkpoint
    "spark.sql.streaming.noDataProgressEventInterval": "2000",  # ms until a job with nothing to read reports readiness
    # The job asks once a second: with fewer than there were triggers it would miss batches, and what they have read.
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.streaming.stopTimeout": "2000",  # in ms: by default a stop may wait for brokers for ever
}
"""For every session in which the job runs, including one that the user passes: they can be set while it runs."""
_CONF = {
    **SESSION_CONF,
    "spark.sql.catalogImplementation": "in-memory",  # a user's setting could create a database in the directory
    # There are two streams (`job/streams.py`). With FAIR, neither waits for the tasks of the other. Each stream has a
    # consumer for each partition of the topic.
    "spark.scheduler.mode": "FAIR",
    "spark.kafka.consumer.cache.capacity": "256",
    # The consumer keeps the result of the last poll of each partition, up to 5,000 records, for the next batch. The
    # default of five minutes took a third of the heap while a catch-up was folded and written.
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    "spark.ui.enabled": "false",
    # What Spark keeps in memory for its web pages, even if they are off. The defaults are a thousand queries with the
    # text of their plans, and as many jobs and stages with all their tasks: the heap grew for the first hour of a job.
    "spark.sql.ui.retainedExecutions": "100",  # `SparkProgress` reads the newest of them
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.showConsoleProgress": "false",
    # Spark caches data on disk as a stream of Java objects, each of a thousand rows (see `SESSION_CONF`). By default
    # the stream keeps its last hundred objects in memory, which is most of the heap at a first catch-up.
    "spark.serializer.objectStreamReset": "1",
    # Each sort and each aggregate of a task allocates at least one page, by default of 32 MB, however few its rows.
    "spark.buffer.pageSize": "2m",
    # After a large batch each core has a Python worker of 100 MB that waits; with this, from Spark 4.1 on, one waits.
    # By default all do for a minute, in which the first verdicts need most memory.
    "spark.python.factory.idleWorkerMaxPoolSize": "1",
    "spark.driver.memory": "2g",
}
_LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",  # in local mode no other machine connects to the driver
    "spark.driver.host": "127.0.0.1",
    # A path without a scheme is a local one, even if HADOOP_CONF_DIR names another file system.
    "spark.hadoop.fs.defaultFS": "file:///",
}


@contextmanager
def spark_session(  # noqa: PLR0913 - each is one thing it needs
    log_file: Path,
    *,
    conf: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    poll: Callable[[], None] | None = None,
    jvm: SparkJvm | None = None,
    java_options: Sequence[str] | None = None,
    exit_seconds: float = _EXIT_SECONDS,
) -> Iterator[SparkSession]:
    """Start a session whose JVM logs to `log_file` only; after the block stop it, and wait until its JVM has exited.

    `conf` overrides the defaults above. `spark.master` may be a cluster (see deploy/spark). `poll` is called again and
    again during the download of jars and before the session starts; it may raise to stop. `jvm` becomes the process
    that is launched. `java_options` is by default the option for the archive of classes. The JVM is killed if it runs
    longer than `exit_seconds` after the block: it could write into tables to which another job writes by then.
    Raises SetupError when there is no Java or no jars, JobError when Spark does not start or its JVM exits.
    """
    os.environ["JAVA_HOME"] = str(spark_java_home())
    for warning in filter(None, (version_warning(), use_spark_home())):
        if progress:
            progress(f"Warning: {warning}")
    jars, jvm = connector_jars(), jvm or SparkJvm()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    settings = _settings(log_file, conf or {}, jars, find_jars(jars, progress, poll))
    options = [*(archive_option(jars) if java_options is None else java_options), _log_option(log_file)]
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only the job loads Spark
    from pyspark import SparkContext  # noqa: PLC0415

    spark: SparkSession | None = None
    try:
        spark = _start(log_file, settings, options, jvm, poll or (lambda: None))
        yield spark
    except (Py4JError, ConnectionError):
        if jvm.wait(_CRASH_SECONDS):
            raise JobError(
                f"Spark's JVM has exited: was it killed, or out of memory? Start the job again (see {log_file})"
            ) from None
        raise
    finally:
        if spark is not None and jvm.is_running:
            with suppress(Py4JError, ConnectionError):  # the JVM may have begun to exit
                spark.stop()
        jvm.close(exit_seconds)
        context: Any = SparkContext
        context._gateway = context._jvm = None  # noqa: SLF001 - they have no public names; PySpark may launch another


def _start(
    log_file: Path, settings: Mapping[str, str], java_options: Sequence[str], jvm: SparkJvm, poll: Callable[[], None]
) -> SparkSession:
    """Launch the JVM, and start a session in it. Raises JobError, and what `poll` raises."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only the job loads Spark
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the Python that has this package
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # by default workers run the first python3 on their PATH
    log_start = log_file.stat().st_size if log_file.exists() else 0
    try:
        gateway = jvm.launch(settings, java_options, log_file)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - it has no public name
        poll()
        builder = SparkSession.builder.appName("streams-groups")
        for name, value in settings.items():
            if name != JAVA_OPTIONS:  # the JVM runs already
                builder = builder.config(name, value)
        spark = builder.getOrCreate()
        # By default Hadoop writes a file of checksums next to each local file. It runs `chmod` for each file.
        context: Any = spark.sparkContext
        files = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001 - the JVM has no public name
        with suppress(Py4JError):  # a user has chosen another class for local files
            files.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001 - as above
    except (PySparkException, Py4JError, OSError) as error:
        # If the JVM exits before it answers, only its log says why.
        has_exited = _JVM_EXITED in str(error)
        log = last_line(log_file, "Error", "Exception", start=log_start) if has_exited else None
        raise JobError(f"Spark did not start: {log or java_error_message(error)} (see {log_file})") from None
    return spark


def default_cores() -> int:
    """Return the number of cores that Spark uses by default: all of this machine, at most `MAX_CORES`."""
    return min(_usable_cores(), MAX_CORES)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settings(log_file: Path, conf: Mapping[str, str], jars: JarSet, files: Sequence[Path]) -> dict[str, str]:
    """Return all settings of Spark: the defaults, the ones for this kind of master and for the jars, and `conf`."""
    master = conf.get("spark.master", f"local[{default_cores()}]")
    is_local = master.startswith("local")
    mask = os.umask(0o077)  # reading the umask requires setting it
    os.umask(mask)
    found = {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, files)),
        **({} if is_local else {"spark.jars": ",".join(map(str, files))}),
    }
    return {
        **_CONF,
        "spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}",  # Hadoop's file system would use its own default
        # Spark creates this directory, but nothing is written into it.
        "spark.sql.warehouse.dir": str(log_file.parent.absolute() / "spark-warehouse"),
        **(_LOCAL_CONF if is_local else {}),
        "spark.master": master,
        "spark.sql.shuffle.partitions": str(_local_cores(master)),
        **(found if files else {"spark.jars.packages": ",".join(jars.coordinates)}),
        **conf,
    }


def _local_cores(master: str) -> int:
    cores = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if cores is None:
        return default_cores()
    return _usable_cores() if cores[1] == "*" else int(cores[1] or 1)


def _log_option(log_file: Path) -> str:
    """Write the log settings of the JVM, and return the Java option that names their file."""
    log4j = log_file.with_suffix(".log4j2.properties")
    log4j.write_text(_LOG4J.format(path=javaproperties.escape(str(log_file))), "ascii")
    return f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}"


@contextmanager
def library_logs(log_file: Path) -> Iterator[None]:
    """Send logs of Python libraries to `log_file` (also py4j's tracebacks), this package's warnings alone to stderr."""
    own, root = logging.getLogger("streaming_app"), logging.getLogger()
    to_stderr, to_file = logging.StreamHandler(), WatchedFileHandler(log_file, delay=True)
    to_stderr.setFormatter(_EscapingFormatter())
    to_file.setFormatter(_EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    propagate, own.propagate = own.propagate, False
    own.addHandler(to_stderr)
    root.addHandler(to_file)
    try:
        yield
    finally:
        own.propagate = propagate
        own.removeHandler(to_stderr)
        root.removeHandler(to_file)
        to_file.close()


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the record with terminal control characters escaped: others may have chosen the text in it."""
        return escape_lines(super().format(record))
