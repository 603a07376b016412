"""What is reported of a batch, and when a query that has nothing to read has caught up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer
from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming_app.job.stream_query import StreamQuery, wait_for_listeners
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.properties import client_properties
from streaming_app.sandbox.container import Broker
from streaming_app.stream.batch_outcome import Outcome
from streaming_app.stream.health import Health
from streaming_app.stream.progress import Progress
from streaming_app.stream.source import read_stream
from streaming_app.tables.location import Location
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broker
_TRIGGER_SECONDS = 600.0
"""No test waits for a second trigger."""
_NAME = "first-trigger"


@contextmanager
def reading(
    spark: SparkSession, records: DataFrame, checkpoint: Path, times: int = 1
) -> Iterator[tuple[Health, list[str]]]:
    """Run a query until it has read what there is, each batch so many times; yield what was reported."""
    lines, health = list[str](), Health()
    progress = Progress(lines.append, health, _NAME)

    def write(batch: DataFrame, batch_id: int) -> None:
        counts = [batch.count() for _ in range(times)]
        progress.on_done(batch_id, Outcome(written={"decoded": counts[0], "groups": 0}))

    def has_caught_up() -> bool:
        progress.look_at(query)
        return health.status.caught_up

    spark.streams.addListener(progress)
    query = StreamQuery(Location.of(checkpoint), Event(), _NAME).start(records, write, _TRIGGER_SECONDS)
    try:
        assert wait_until(has_caught_up)
        yield health, lines
    finally:
        query.stop()
        spark.streams.removeListener(progress)


class HeldUp(StreamingQueryListener):
    """Holds up all events of batches, for itself and for those who come after, until it is released."""

    def __init__(self) -> None:
        self.released = Event()

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802 - Spark's name

    def onQueryProgress(self, event: Any) -> None:  # noqa: ARG002, N802 - as above
        self.released.wait(600)

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802 - as above

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802 - as above


@pytest.fixture
def topic(client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    name = unique("progress")
    client.create_topic(name, 1)
    return name


@pytest.fixture
def records(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    """The stream of the topic."""
    properties = client_properties(broker.bootstrap_server, None)
    return read_stream(spark, properties, describe_offsets_topic(spark, properties, topic), 1_000)


@pytest.fixture
def send(broker: Broker, topic: str) -> Callable[[int], None]:
    """Appends so many records to the topic."""

    def append(count: int) -> None:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
            for _ in range(count):
                producer.send(topic, b"x").get(timeout=300)

    return append


def test_a_batch_is_known_although_its_event_arrives_late_and_the_event_changes_nothing(
    spark: SparkSession, records: DataFrame, send: Callable[[int], None], tmp_path: Path
) -> None:
    held_up, began = HeldUp(), datetime.now(timezone.utc)
    send(1)
    spark.streams.addListener(held_up)
    try:
        with reading(spark, records, tmp_path) as (health, lines):
            status, known_at = health.status, datetime.now(timezone.utc)
            held_up.released.set()
            wait_for_listeners(spark)
            after, totals = health.status, health.totals
    finally:
        held_up.released.set()
        spark.streams.removeListener(held_up)
    assert status.last_success_at is not None
    assert began <= status.last_success_at <= known_at
    assert (after, totals.batches, len(lines)) == (status, 1, 2)


def test_the_first_trigger_of_a_query_shows_whether_something_is_new_and_a_record_that_is_read_again_counts_once(
    spark: SparkSession, records: DataFrame, send: Callable[[int], None], tmp_path: Path
) -> None:
    for count in (3, 0, 2):  # the last batch does not begin at the first offset
        send(count)
        with reading(spark, records, tmp_path, times=3) as (health, lines):
            assert (health.totals.batches, health.totals.records_seen) == (int(count > 0), count)
            assert lines[-1] == "Caught up: waiting for new records."
            assert count == 0 or f"{count} records seen" in lines[0]
