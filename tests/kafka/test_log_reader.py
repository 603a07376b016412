"""What the reader of some records of a topic gives, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import OffsetOutOfRangeError

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.log_reader import LogReader
from tests.support.container import Broker

LARGE = 900_000


@pytest.fixture
def topic(broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    """A topic with 40 records in each of two partitions, every fourth of them large."""
    name = unique("topic")
    client.create_topic(name, 2)
    produce(broker, name, 40, partitions=2)
    return name


def produce(broker: Broker, topic: str, count: int, *, partitions: int = 1) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        for number in range(count):
            for partition in range(partitions):
                value = None if number % 4 == 1 else bytes([number]) * (LARGE if number % 4 == 0 else 10)
                producer.send(topic, value, key=f"{partition}-{number}".encode(), partition=partition)
        producer.flush()


def test_ranges_of_partitions_are_read_whole_and_one_after_the_other(broker: Broker, topic: str) -> None:
    with LogReader({"bootstrap.servers": broker.bootstrap_server}, topic) as log:
        for ranges in ({0: (3, 17), 1: (30, 40)}, {0: (16, 18)}, {1: (0, 40)}, {0: (5, 5)}, {}):
            read = [(one.partition, one.offset, one.key, one.value) for one in log.read(ranges)]
            assert sorted(place[:2] for place in read) == [
                (partition, offset)
                for partition, (start, end) in sorted(ranges.items())
                for offset in range(start, end)
            ]
            for partition, offset, key, value in read:
                assert key == f"{partition}-{offset}".encode()
                length = LARGE if offset % 4 == 0 else 10
                assert value == (None if offset % 4 == 1 else bytes([offset]) * length)


def test_what_the_log_no_longer_has_is_an_error(broker: Broker, client: StreamsGroupClient, topic: str) -> None:
    client.delete_records({TopicPartition(topic, 1): 20})
    with LogReader({"bootstrap.servers": broker.bootstrap_server}, topic) as log:
        assert [one.offset for one in log.read({1: (20, 22)})] == [20, 21]
        with pytest.raises(OffsetOutOfRangeError):
            list(log.read({1: (19, 22)}))
