"""The cause of a failed query, from what Spark says, and what the next start waits for."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streaming_app.job import stream_query
from streaming_app.job.stream_query import SparkProgress, StreamQuery, cause_of, one_line, stop_query
from streaming_app.stream.job_state import JobState
from streaming_app.tables.location import Location
from tests.support.waiting import wait_until


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


Call = Callable[[Callable[[], Any]], None]


@contextmanager
def held_batch(spark: SparkSession, query: StreamQuery) -> Iterator[Call]:
    """Start a query, and give a function that runs what the test likes in its only batch, in that thread."""
    calls, done = SimpleQueue[Callable[[], Any] | None](), SimpleQueue[None]()

    def write(_batch: DataFrame, _number: int) -> None:
        while call := calls.get():
            call()
            done.put(None)
        calls.put(None)  # for a batch that begins before the query is stopped

    def call(function: Callable[[], Any]) -> None:
        calls.put(function)
        done.get(timeout=300)

    running = query.start(spark.readStream.format("rate").option("rowsPerSecond", 1).load(), write, 0.1)
    try:
        yield call
    finally:
        calls.put(None)
        stop_query(running)


def count_rows(spark: SparkSession, call: Call = lambda function: function()) -> None:
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
    query, other = (StreamQuery(Location.of(tmp_path / name), Event()) for name in ("batch", "other"))
    health = JobState()
    progress = SparkProgress(spark, query, health, print)

    def start() -> None:
        spark.sparkContext.setJobDescription(query.start_description)
        count_rows(spark)

    starting = Thread(target=start)
    starting.start()
    starting.join()
    progress.tick()
    assert health.status.progress_at is not None
    with held_batch(spark, query) as in_batch, held_batch(spark, other) as in_other:
        count_rows(spark, in_batch)
        assert progress.has_changed()
        assert not progress.has_changed()
        count_rows(spark)  # a user's, or another service's of the job
        count_rows(spark, in_other)  # a user's stream
        assert not progress.has_changed()
        count_rows(spark, in_batch)
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


def test_batches_that_only_other_records_cause_are_further_apart_and_then_those_for_the_stream_come_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, starts, stop = [0.0], list[float](), Event()
    monkeypatch.setattr(stream_query, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(stop, "wait", lambda seconds: clock.append(clock.pop() + max(0.0, seconds)))

    def write(_: DataFrame, number: int) -> bool:
        starts.append(clock[0])
        if number == 16:
            stop.set()
        return not 7 <= number < 11

    records = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    query = StreamQuery(Location.of(tmp_path / "checkpoint"), stop).start(records, write, 0.0, 1.0)
    with pytest.raises(StreamingQueryException, match="StopRequestedError"):
        query.awaitTermination()
    assert starts == [0, 0, 0, 0, 0, 1, 2, 3, 4.5, 6, 7.5, 9, 9, 9, 9, 9, 10]
