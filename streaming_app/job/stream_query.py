"""A query of the job in Spark: how it starts, whether it writes a batch or makes progress, and why it failed."""

import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_app.errors import UnreachableError, java_error_message
from streaming_app.job.service import Service
from streaming_app.job.stopping import StopRequestedError
from streaming_app.report import Report
from streaming_app.stream.job_state import JobState
from streaming_app.tables.location import Location

OFFSETS = "offsets"
"""The name of the stream of committed offsets; the stream of groups has no name."""
_ASKING = "Getting offsets"  # Spark's description of a query that asks the brokers for the ends of the logs
_NEWEST = 40  # queries that are checked: a batch runs few at a time, and there may be two streams
_PROGRESS_SECONDS = 15.0  # between two checks of Spark's progress: executors report every 10 s
_AT_ONCE = 4  # batches after a rest that come without a pause
_NOT_WANTED = 1.5  # times as long a pause after a batch that has no record for the stream
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")
_ADD_JAR = ": add the jar for this kind of store with the setting spark.jars.packages, see deploy/README.md"
_MAX_CAUSE = 500  # characters of a line about a failure
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""The class that writes the checkpoint in a local directory.

By default Spark uses Hadoop's `FileContext`, which starts a process, `readlink`, to find out whether a path is a link:
16 processes per batch, two thirds of the duration of an empty one. Both classes write a file under another name and
rename it. With the one used here the rename overwrites, if two jobs write at the same time. That does not matter: only
the owner writes.
"""


class StreamQuery:
    """Starts one query, any number of times, one after the other."""

    def __init__(self, checkpoint: Location, stop: threading.Event, name: str | None = None) -> None:
        """Prepare; no batch begins once `stop` is set. Two active queries of a session need different names."""
        self._checkpoint, self._stop, self._name = checkpoint, stop, name
        self.current: StreamingQuery | None = None
        """The query that was started last; None before the first one."""
        self.start_description = f"start of the query of {checkpoint}"
        """Spark's description of the Spark jobs that start this query."""
        self._id: str | None = None
        self.no_batch = threading.Event()  # cleared while one is being written
        self.no_batch.set()
        self.unreachable: UnreachableError | None = None
        """Why the last batch failed, if it did because no leader answered."""
        self.lock = threading.Lock()
        """Held by each batch, and by what else writes the state of the stream."""

    @property
    def is_writing(self) -> bool:
        """Whether a batch is being written."""
        return not self.no_batch.is_set()

    def is_own(self, description: str) -> bool:
        """Return whether Spark gives this description to jobs of a batch of this query, or of its start."""
        return description == self.start_description or (self._id is not None and f"id = {self._id}" in description)

    @property
    def is_asking_for_ends(self) -> bool:
        """Whether Spark asks the brokers for the ends of the logs; if a group coordinator hangs, this never ends."""
        return self.current is not None and str(self.current.status["message"]).startswith(_ASKING)

    def start(
        self,
        records: DataFrame,
        write_batch: Callable[[DataFrame, int], bool],
        trigger_seconds: float | None,
        busy_seconds: float = 0.0,
    ) -> StreamingQuery:
        """Start the query, with a batch every `trigger_seconds`; None: process only the available records.

        `write_batch` returns whether the batch had a record that the stream reads. While these keep coming, batches are
        at least `busy_seconds` apart, except the first ones after a rest. While only others come, the time between
        batches is half as long again, and that is a rest. Raises StopRequestedError when the job ends.
        """
        due = rest = -math.inf  # the monotonic clock may start at 0

        def write(batch: DataFrame, batch_id: int) -> None:
            nonlocal due, rest
            if self._stop.is_set():
                raise StopRequestedError
            self.no_batch.clear()
            began, self.unreachable = time.monotonic(), None
            try:
                with self.lock:
                    has_records = write_batch(batch, batch_id)
                if has_records:
                    until = due = max(due, began - _AT_ONCE * busy_seconds) + busy_seconds
                else:
                    until = rest = max(rest, began) + _NOT_WANTED * busy_seconds
                if trigger_seconds is not None:
                    self._stop.wait(until - trigger_seconds - time.monotonic())  # the next trigger comes after that
            except UnreachableError as error:
                self.unreachable = error
                raise
            finally:
                self.no_batch.set()

        conf = records.sparkSession.conf
        if self._checkpoint.is_local and not conf.get(_FILE_MANAGER, ""):
            conf.set(_FILE_MANAGER, _BY_FILE_SYSTEM)
        once = trigger_seconds is None
        trigger = {"availableNow": True} if once else {"processingTime": f"{trigger_seconds} seconds"}
        stream = records.writeStream.foreachBatch(write).trigger(**trigger)
        stream = stream.option("checkpointLocation", str(self._checkpoint))
        if self._name is not None:
            stream = stream.queryName(self._name)
        if self._stop.is_set():
            raise StopRequestedError
        query = self.current = stream.start()
        self._id = query.id  # reading it takes two calls of the JVM each time
        if self._stop.is_set():  # then nobody waits for the query any more
            query.stop()
        return query


def stop_query(query: StreamingQuery) -> None:
    """Stop a query. It may still run afterwards: Spark gives up after `spark.sql.streaming.stopTimeout`."""
    try:
        query.stop()
    except (Py4JJavaError, PySparkException):  # a TimeoutException
        with suppress(Py4JError):  # another release of Spark
            # Wake the driver, whose wait for a group coordinator (in `KafkaOffsetReaderConsumer`) otherwise never ends.
            sources: Any = query._jsq.streamingQuery().sources()  # noqa: SLF001 - Spark has no public name for it
            for number in range(sources.size()):
                consumer = sources.apply(number).kafkaOffsetReader()._consumer()  # noqa: SLF001 - as above
                if consumer is not None:
                    consumer.wakeup()


class SparkProgress(Service):
    """Reports to `health` while Spark makes progress with a stream, for batches that take longer than any limit.

    The measure is the metrics of the running queries, such as rows read and written. Executors report those of running
    tasks every 10 s, so a task of an hour also shows progress. They do not change while tasks hang.
    """

    def __init__(self, spark: SparkSession, query: StreamQuery, health: JobState, report: Report) -> None:
        """Check while a batch is written or a start prepared; users may run other queries in the session."""
        super().__init__(
            "progress of Spark",
            report,
            interval=_PROGRESS_SECONDS,
            after=_PROGRESS_SECONDS,
            may_tick=lambda: query.is_writing or not health.is_reading,
        )
        self._is_own, self._health = query.is_own, health
        self._queries: Any = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - the JVM has no public name
        self._last = ""

    def tick(self) -> None:
        """Check the queries."""
        if self.has_changed():
            self._health.note(progress_at=datetime.now(timezone.utc))

    def has_changed(self) -> bool:
        """Return whether a query began, ended, or read or wrote anything since the last call."""
        count = self._queries.executionsCount()
        newest = self._queries.executionsList(max(0, count - _NEWEST), _NEWEST)
        executions = [newest.apply(number) for number in range(newest.size())]
        states = [self._state(one) for one in executions if self._is_own(str(one.description()))]
        last, self._last = self._last, str(states)
        return self._last != last

    def _state(self, query: Any) -> str:  # noqa: ANN401 - a Java object
        number = query.executionId()
        is_running = query.completionTime().isEmpty()
        return f"{number} {self._queries.executionMetrics(number).toString() if is_running else 'ended'}"


def one_line(error: Exception) -> str:
    """Return the text of an error of Spark in one line."""
    line = java_error_message(error)[:_MAX_CAUSE]
    return f"{line}{_ADD_JAR}" if _NO_FILE_SYSTEM.search(line) else line


def cause_of(failure: str) -> str:
    """Return the most specific line of a streaming failure."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    summary = re.search(r"terminated with exception: (.+?)(?: SQLSTATE| ===|$)", lines[0])
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Invalid): ", line)]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]  # follows the line of py4j's error
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    found = [summary[1] if summary else lines[0], *java, *causes, *python]
    return ([one for one in found if not one.startswith("py4j.")] or found)[-1][:_MAX_CAUSE]
