"""The job reads the offsets topic while coordinators cannot load partitions of it: it needs no group of its own."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.errors import UnreachableError
from streaming_app.groups.partition import OFFSETS_TOPIC, partition_of
from streaming_app.job.stream_query import StreamQuery
from streaming_app.kafka import offsets_topic
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.reader import WarehouseReader
from tests.support.internal_topic import internal_producer, raw_key
from tests.support.offsets_topic import describe_offsets_topic
from tests.support.running_job import is_caught_up, job_in_thread
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]
PARTITIONS = 3
_METADATA = 17  # the type of a group's metadata record


def group_of(partition: int, prefix: str = "group") -> str:
    """Return the id of a group of this partition."""
    names = (f"{prefix}-{number}" for number in range(1000))
    return next(one for one in names if partition_of(one, PARTITIONS) == partition)


def make_ill(broker: LocalBroker, partitions: Iterable[int], meanwhile: Callable[[], bool] = lambda: True) -> None:
    """Restart a broker that then fails to load these partitions; it is away until what happens `meanwhile` has."""
    with internal_producer(broker.bootstrap_server) as producer:
        for partition in partitions:
            key = raw_key(_METADATA, group_of(partition, "unreadable").encode())
            producer.send(OFFSETS_TOPIC, key=key, value=b"\0\0\0", partition=partition).get(60)
    broker.stop()
    assert wait_until(meanwhile)
    broker.start()


class Drivers:
    """The consumers with which Spark's driver asks for the ends of logs, one of each query that a job starts."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self._hash = spark._jvm.java.lang.System.identityHashCode  # type: ignore[union-attr]
        self._queries: list[Any] = []
        start = StreamQuery.start

        def start_and_note(*arguments: Any) -> Any:
            self._queries.append(start(*arguments))
            return self._queries[-1]

        monkeypatch.setattr(StreamQuery, "start", start_and_note)

    def consumers(self) -> list[int]:
        """Return what identifies each of them."""
        return list(map(self._consumer, self._queries))

    def are_new(self, before: list[int]) -> bool:
        """Return whether each of these was made again, or its query has ended: the next one makes its own."""
        first = zip(self._queries, before)  # noqa: B905 - further ones may have been started since
        return all(not query.isActive or self._consumer(query) != one for query, one in first)

    def _consumer(self, query: Any) -> int:
        source = query._jsq.streamingQuery().sources().apply(0)
        return int(self._hash(source.kafkaOffsetReader()._consumer()))


def test_a_running_job_reads_on_with_another_coordinator_and_a_line_names_the_partitions_if_none_is_well(
    start_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    create_warehouse: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = start_broker(properties={"offsets.topic.num.partitions": str(PARTITIONS), "log.cleaner.enable": "false"})
    warehouse = create_warehouse(tmp_path / "warehouse")
    with StreamsGroupClient(broker.bootstrap_server) as client:
        client.create_topic("t")
        client.commit_offsets("g", {("t", 0): 1})
    chosen: set[int] = set()
    choose = offsets_topic._answering_group

    def choose_and_note(admin: Any, topic: str, partitions: int) -> str:
        group_id = choose(admin, topic, partitions)
        chosen.add(partition_of(group_id, PARTITIONS))
        return group_id

    monkeypatch.setattr(offsets_topic, "_answering_group", choose_and_note)
    drivers = Drivers(spark, monkeypatch)
    (tmp_path / "client.properties").write_text("default.api.timeout.ms=3000\nrequest.timeout.ms=2000\n", "utf-8")
    values = {"bootstrap_server": broker.bootstrap_server, "warehouse": warehouse}
    config = JobConfig.model_validate({**values, "command_config": tmp_path / "client.properties"})
    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert wait_until(lambda: is_caught_up(warehouse)), job.lines
        healthy = next(number for number in range(PARTITIONS) if number not in chosen)
        before = drivers.consumers()
        assert len(before) == 2

        make_ill(broker, set(range(PARTITIONS)) - {healthy}, lambda: drivers.are_new(before))
        with StreamsGroupClient(broker.bootstrap_server) as client:
            client.commit_offsets(group_of(healthy), {("t", 0): 7})

        def is_read() -> bool:
            read = WarehouseReader(warehouse).rows("SELECT group_id FROM offsets")
            return group_of(healthy) in {row["group_id"] for row in read}

        assert wait_until(is_read), job.lines
    make_ill(broker, [healthy])
    properties = {"bootstrap.servers": broker.bootstrap_server}
    with pytest.raises(UnreachableError, match="partition 0, 1, 2 of __consumer_offsets"):
        describe_offsets_topic(spark, properties, OFFSETS_TOPIC)
    described = describe_offsets_topic(spark, properties, OFFSETS_TOPIC, to_read=False)
    assert described.partitions == PARTITIONS
