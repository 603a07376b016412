"""The cause of a failed query, from what Spark says, and what the next start waits for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from streaming_app.job.stream_query import SparkProgress, StreamQuery, cause_of, one_line, stop_query
from streaming_app.stream.job_state import JobState
from streaming_app.tables.location import Location
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_failure_of_java_within_a_batch_is_told_by_its_cause() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised by the Python "
        """Proxy. Return Message: Traceback (most recent call last):
  File "groups_writer.py", line 10, in __call__
py4j.protocol.Py4JJavaError: An error occurred while calling o6698.execute.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
"""
    )
    assert cause_of(failure) == "org.apache.spark.SparkException: Job aborted due to stage failure"
    full = f"{failure}Caused by: java.io.IOException: No space left on device\n\t... 1 more\n"
    assert cause_of(full) == "java.io.IOException: No space left on device"
    assert cause_of(f"{full}streaming_app.errors.JobError: Two rows\n") == "streaming_app.errors.JobError: Two rows"


def test_a_store_of_which_spark_has_no_jar_is_told_with_what_to_do(spark: SparkSession) -> None:
    query = StreamQuery(Location.of("gs://bucket/checkpoint"), Event())
    with pytest.raises(Exception, match="not found") as caught:
        query.start(spark.readStream.format("rate").load(), lambda *_: None, None)
    assert re.fullmatch(
        r"Class org\.apache\.hadoop\.fs\.gs\.\w+ not found: add the jar for this kind of store with the setting "
        r"spark\.jars\.packages, see deploy/README\.md",
        one_line(caught.value),
    )


class HeldBatch:
    """A query in whose only batch the test runs what it likes, in the thread of the batch."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark, self._calls, self._done = spark, SimpleQueue[Callable[[], Any] | None](), SimpleQueue[None]()
        self.query = StreamQuery(Location.of(checkpoint), Event())

    @contextmanager
    def running(self) -> Iterator[None]:
        rates = self._spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        running = self.query.start(rates, self._write, 0.1)
        try:
            yield
        finally:
            self._calls.put(None)
            stop_query(running)

    def call(self, function: Callable[[], Any]) -> None:
        self._calls.put(function)
        self._done.get(timeout=300)

    def _write(self, batch: DataFrame, _: int) -> None:
        del batch
        while call := self._calls.get():
            call()
            self._done.put(None)
        self._calls.put(None)  # for a batch that begins before the query is stopped


def count_rows(spark: SparkSession, call: Callable[[Callable[[], Any]], Any] = lambda function: function()) -> None:
    """Run a query of Spark, and wait until Spark's store of queries, which it writes later, says that it has ended."""
    store: Any = spark._jsparkSession.sharedState().statusStore()

    def newest_ended() -> int:
        kept = store.executionsList(0, 1_000)
        queries = [kept.apply(number) for number in range(kept.size())]
        return max((one.executionId() for one in queries if one.completionTime().isDefined()), default=-1)

    before = newest_ended()
    call(spark.range(10).count)
    assert wait_until(lambda: newest_ended() > before)


def test_progress_is_what_runs_to_start_the_query_and_in_its_batches_alone(spark: SparkSession, tmp_path: Path) -> None:
    batch, others = HeldBatch(spark, tmp_path / "batch"), HeldBatch(spark, tmp_path / "others")
    health = JobState()
    progress = SparkProgress(spark, batch.query, health, print)

    def start() -> None:
        spark.sparkContext.setJobDescription(batch.query.start_description)
        count_rows(spark)

    starting = Thread(target=start)
    starting.start()
    starting.join()
    progress.tick()
    assert health.status.progress_at is not None
    with batch.running(), others.running():
        count_rows(spark, batch.call)
        assert progress.has_changed()
        assert not progress.has_changed()
        count_rows(spark)  # a user's, or another service's of the job
        count_rows(spark, others.call)  # a user's stream
        assert not progress.has_changed()
        count_rows(spark, batch.call)
        assert progress.has_changed()


def test_no_batch_begins_once_the_job_ends_and_a_users_choice_of_how_checkpoints_are_written_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark, setting = spark.newSession(), "spark.sql.streaming.checkpointFileManagerClass"
    chosen = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    spark.conf.set(setting, chosen)
    stop, numbers = Event(), list[int]()

    def write(_: DataFrame, number: int) -> None:
        numbers.append(number)
        if number == 2:
            stop.set()

    query = StreamQuery(Location.of(tmp_path / "checkpoint"), stop).start(
        spark.readStream.format("rate").option("rowsPerSecond", 100).load(), write, 0.0
    )
    with pytest.raises(StreamingQueryException, match="StopRequestedError"):
        query.awaitTermination()
    assert numbers == [0, 1, 2]
    assert spark.conf.get(setting) == chosen


def test_batches_pause_while_records_keep_coming_but_not_the_first_ones_after_a_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    pauses = list[float]()

    class Watched(Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return False

    stop = Watched()
    query = StreamQuery(Location.of(tmp_path / "checkpoint"), stop).start(
        spark.readStream.format("rate").option("rowsPerSecond", 100).load(), lambda *_: None, 0.0, 10_000.0
    )
    try:
        assert wait_until(lambda: len(pauses) >= 6)
    finally:
        stop.set()
        stop_query(query)
    assert all(pause <= 0 for pause in pauses[:4]), pauses
    assert 9_000 < pauses[4] <= 10_000
    assert 19_000 < pauses[5] <= 20_000  # nobody has waited for the one before
