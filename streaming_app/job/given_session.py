"""Runs the job in a user's Spark session without changing that session: `streaming_app.run`.

The job needs a dozen SQL settings. Some would change the results of the user's own queries; without one of them Spark's
Kafka source finds no partition of an internal topic. So the job runs in a session that is derived from the given one:
in the same application, with the given session's settings and then its own. It runs in its own thread, since Spark also
keeps settings and the active session per thread.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming_app.config.load import settings_of
from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError, UserError, java_error_message
from streaming_app.job.run import owned, run_with
from streaming_app.job.stopping import STOP_SECONDS, STOPPED
from streaming_app.jvm.spark_installation import version_warning
from streaming_app.jvm.spark_session import SESSION_CONF
from streaming_app.threads import in_thread

NAME = "streaming_app.run"
"""The name of the public function, for errors."""
_SHUFFLE_PARTITIONS, _DEFAULT_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions", "200"
_DEFAULT_FS = "fs.defaultFS"
_LOG = "the log of Spark's driver"
_KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10"


def run(
    spark: SparkSession,
    values: Mapping[str, Any],
    *,
    once: bool,
    stop: threading.Event | None,
    report: Callable[[str], None],
) -> None:
    """See `streaming_app.run`; `values` are the keys of the configuration."""
    stop = stop or threading.Event()
    try:
        config = _job_config(values, once=once)
        _wait_for(in_thread(partial(_run, spark, config, report, stop), "job"), stop)
    except JobError:
        raise
    except UserError as error:
        raise JobError(str(error)) from None


def _job_config(values: Mapping[str, Any], *, once: bool) -> JobConfig:
    settings = settings_of(values, f"{NAME}()")
    if not settings.bootstrap_server:
        raise JobError(f"{NAME}(): bootstrap_server: must be HOST:PORT")
    return JobConfig(once=once, given_session=True, **dict(settings))


def _wait_for(result: Future[None], stop: threading.Event) -> None:
    """Wait for the end of the job. Ctrl-C, or interrupting a notebook, stops it cleanly before it is raised."""
    try:
        result.result()
    except KeyboardInterrupt:
        stop.set()
        with suppress(Exception):  # errors of a job that is ending are not reported
            result.result(STOP_SECONDS)
        raise


def _run(spark: SparkSession, config: JobConfig, report: Callable[[str], None], stop: threading.Event) -> None:
    try:
        with derived_session(spark, config) as session, owned(config, report, stop) as (owner, end_probes):
            if line := version_warning():
                report(f"Warning: {line}")
            end_probes()
            run_with(session, config, report, stop, _LOG, owner)
    except Exception as error:
        if stop.is_set():
            report(STOPPED)  # errors of a job that is ending are not reported
        elif isinstance(error, Py4JError | PySparkException | ConnectionError):
            raise JobError(f"Spark failed, or its JVM has exited: {java_error_message(error)}") from error
        else:
            raise


@contextmanager
def derived_session(spark: SparkSession, config: JobConfig) -> Iterator[SparkSession]:
    """Give a session for the job, and stop its queries after the block. Raises JobError if it cannot be derived."""
    _require_classic(spark)
    active = SparkSession._activeSession  # noqa: SLF001 - the result of `SparkSession.active()` in every thread
    try:
        _require_connector(spark)
        session = _derive(spark, config)
        try:
            yield session
        finally:
            # Those that remain after an error: the end of the job's own Spark session would stop them. The JVM may have
            # exited, or a query does not stop in time.
            with suppress(Py4JError, PySparkException, ConnectionError):
                for query in session.streams.active:
                    query.stop()
    finally:
        SparkSession._activeSession = active  # noqa: SLF001 - as above


def _require_classic(spark: object) -> None:
    """Raise JobError for a session without a JVM, such as one of Spark Connect."""
    if isinstance(spark, SparkSession):
        return
    kind = f"{type(spark).__module__}.{type(spark).__qualname__}"
    advice = "run it where the driver is" if "connect" in kind else "pass a pyspark.sql.SparkSession"
    connect = "Spark Connect has no JVM that Python can call: " if "connect" in kind else ""
    raise JobError(f"{NAME}() does not take a {kind}: {connect}{advice}")


def _require_connector(spark: SparkSession) -> None:
    """Raise JobError if the session lacks the Kafka source, or Python may not call its JVM."""
    try:
        found: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
        for part in _KAFKA_SOURCE.split("."):
            found = getattr(found, part)
    except Exception as error:  # noqa: BLE001 - whatever a platform raises that forbids it
        raise JobError(
            f"Python may not call the JVM of the session, but the job has to ({java_error_message(error)}); "
            "see deploy/spark/README.md"
        ) from None
    if not isinstance(found, JavaClass):
        raise JobError(
            f"The Spark session has no {_KAFKA_SOURCE}: start Spark with the package {_CONNECTOR}; see "
            "deploy/spark/README.md"
        )


def _derive(spark: SparkSession, config: JobConfig) -> SparkSession:
    """Return a session with the settings of `spark`, then the job's, then `conf`. Raises JobError."""
    given, session = spark.conf.getAll, spark.newSession()
    inherited = session.conf.getAll
    for name, value in given.items():
        if inherited.get(name) != value:
            with suppress(PySparkException):  # a setting of the application, which the new session shares
                session.conf.set(name, value)
    own = dict(SESSION_CONF)
    if spark.conf.get(_SHUFFLE_PARTITIONS) == _DEFAULT_SHUFFLE_PARTITIONS:  # the default is too many for small batches
        own[_SHUFFLE_PARTITIONS] = str(spark.sparkContext.defaultParallelism)
    if config.warehouse.is_local:  # delta-rs takes a path without a scheme as a local one, so Spark must, too
        own[_DEFAULT_FS] = "file:///"
    for name, value in own.items():
        session.conf.set(name, value)
    for name, value in config.conf.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:  # noqa: PERF203 - each names its setting
            raise JobError(
                f"{NAME}(): conf.{name} cannot be set in a running session: {java_error_message(error)}"
            ) from None
    return session
