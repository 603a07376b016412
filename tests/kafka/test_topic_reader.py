"""What a stream waits for when it asks the leaders of its topic, and that all readers of topic facts say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from threading import Event
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import RequestTimedOutError

from streaming_app.errors import UnreachableError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import ANSWER_MS, Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopicClient
from streaming_app.kafka.topic_reader import EARLIEST, PartitionCounts, TopicReader, read_offsets
from tests.support.container import Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[SharedConnection[Admin]]:
    with closing(SharedConnection({"bootstrap.servers": broker.bootstrap_server}, Admin)) as shared:
        yield shared


@pytest.fixture
def topic(client: StreamsGroupClient, broker: Broker, unique: Callable[[str], str]) -> str:
    name = unique("facts")
    client.create_topic(name, 3)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        for partition in (0, 0, 1):
            producer.send(name, b"value", partition=partition).get(300)
    return name


def client_of(connection: SharedConnection[Admin], topic: str, stop: Event | None = None) -> OffsetsTopicClient:
    asked = OffsetsTopicClient(connection, topic, None, stop)
    asked.expect(asked.describe(to_read=False).topic_id)
    return asked


def test_a_leader_that_answers_late_is_waited_for_and_no_call_waits_once_the_job_ends(
    connection: SharedConnection[Admin], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker is that has just started on a busy machine: its answers came after the time-out of each attempt."""
    stop, needed_ms = Event(), 8_000
    asked, send_all = client_of(connection, topic, stop), Admin.send_all

    def late(admin: Admin, requests: Sequence[tuple[int, Any]], timeout_ms: int) -> list[Any]:
        if timeout_ms < needed_ms:
            return [RequestTimedOutError()] * len(requests)
        return send_all(admin, requests, timeout_ms)

    monkeypatch.setattr(Admin, "send_all", late)
    assert asked.epoch_ends({0: 0, 2: 0}) == {0: (0, 2), 2: (0, 0)}
    needed_ms = ANSWER_MS + 1
    stop.set()
    with pytest.raises(UnreachableError, match=f"No leader of partition 1 of {topic} answers: BROKER_NOT_AVAILABLE"):
        asked.epoch_ends({1: 0})


def test_all_readers_say_the_same_of_a_topic(
    connection: SharedConnection[Admin], client: StreamsGroupClient, topic: str
) -> None:
    ends, asked = {0: 2, 1: 1, 2: 0}, client_of(connection, topic)
    client.delete_records({TopicPartition(topic, 0): 1})
    described, reader = asked.describe(to_read=False), TopicReader()
    reader.describe(client, [topic])
    offsets = reader.offsets(client, [(topic, one) for one in (*ends, 3)])

    assert described.end_offsets == client.end_offsets(topic) == ends
    assert {one: end.end for one, end in asked.epoch_ends(asked.epochs(ends)).items()} == ends
    assert {key[1]: one if isinstance(one, str) else one.offset for key, one in offsets.items()} == ends | {
        3: "UNKNOWN_TOPIC_OR_PARTITION"
    }
    starts = {0: 1, 1: 0, 2: 0}
    assert described.start_offsets == read_offsets(client, topic, EARLIEST)[1][0] == starts
    assert PartitionCounts(connection, pytest.fail)([topic, f"{topic}-gone"]) == {topic: 3}
    assert read_offsets(client, f"{topic}-gone", EARLIEST)[1] == [{}]
