"""What is reported of a batch, and when a query that has nothing to read has caught up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from streaming_app.job.stream_query import StreamQuery, stop_query
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.properties import client_properties
from streaming_app.stream.job_state import CommittedBatch, JobState
from streaming_app.stream.progress import Progress
from streaming_app.stream.source import read_stream
from streaming_app.tables.location import Location
from tests.support.container import Broker
from tests.support.offsets_topic import describe_offsets_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker
_TRIGGER_SECONDS = 600.0
"""No test waits for a second trigger."""
_NAME = "first-trigger"


@contextmanager
def reading(records: DataFrame, checkpoint: Path, times: int = 1) -> Iterator[tuple[JobState, list[str]]]:
    """Run a query until it has read what there is, each batch so many times; yield what was reported."""
    lines, health = list[str](), JobState()
    progress = Progress(lines.append, health)

    def write(batch: DataFrame, batch_id: int) -> None:
        counts = [batch.count() for _ in range(times)]
        progress.on_done(batch_id, CommittedBatch(written={"decoded": counts[0], "groups": 0}))

    def has_caught_up() -> bool:
        progress.poll(query)
        return health.status.caught_up

    query = StreamQuery(Location.of(checkpoint), Event(), _NAME).start(records, write, _TRIGGER_SECONDS)
    try:
        assert wait_until(has_caught_up)
        yield health, lines
    finally:
        stop_query(query)


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


def test_the_first_trigger_of_a_query_shows_whether_something_is_new_and_a_record_that_is_read_again_counts_once(
    records: DataFrame, send: Callable[[int], None], tmp_path: Path
) -> None:
    for count in (3, 0, 2):  # the last batch does not begin at the first offset
        send(count)
        with reading(records, tmp_path, times=3) as (health, lines):
            assert (health.totals.batches, health.totals.records_seen) == (int(count > 0), count)
            assert lines[-1] == "Caught up: waiting for new records."
            assert count == 0 or f"{count} records seen" in lines[0]
