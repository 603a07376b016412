"""Facts of topics and commits of groups on the shared broker: what is known, why the rest is not, and who waits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import RequestTimedOutError

from streaming_app.errors import UnreachableError
from streaming_app.kafka import client as client_module
from streaming_app.kafka.client import StreamsGroupClient, fetch_committed_offsets
from streaming_app.kafka.connection import ANSWER_MS, Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopicClient
from streaming_app.kafka.topic_reader import (
    AWAY,
    EARLIEST,
    NO_LEADER,
    Answers,
    DescribedTopic,
    Offset,
    PartitionCounts,
    TopicReader,
    read_offsets,
)
from tests.support.container import Broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[SharedConnection[Admin]]:
    with closing(SharedConnection({"bootstrap.servers": broker.bootstrap_server}, Admin)) as shared:
        yield shared


@pytest.fixture
def topic(client: StreamsGroupClient, broker: Broker, unique: Callable[[str], str]) -> str:
    name = unique("facts")
    client.create_topic(name, 3, {"retention.ms": "-1"})
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        for number, partition in enumerate((0, 0, 1)):
            producer.send(name, b"value", partition=partition, timestamp_ms=1_000_000 + number % 2).get(300)
    return name


def client_of(connection: SharedConnection[Admin], topic: str, stop: Event | None = None) -> OffsetsTopicClient:
    asked = OffsetsTopicClient(connection, topic, None, stop or Event())
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


def offsets(found: Answers[Offset]) -> dict[int, int | str]:
    return {key[1]: one if isinstance(one, str) else one.offset for key, one in found.items()}


def test_all_readers_say_the_same_of_a_topic_with_one_request_to_each_leader(
    connection: SharedConnection[Admin], client: StreamsGroupClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, starts, asked = {0: 2, 1: 1, 2: 0}, {0: 1, 1: 0, 2: 0}, client_of(connection, topic)
    client.delete_records({TopicPartition(topic, 0): 1})
    described, reader, keys = asked.describe(to_read=False), TopicReader(), [(topic, one) for one in ends]
    reader.describe(client, [topic])
    send_all = Mock(wraps=client.send_all)
    monkeypatch.setattr(client, "send_all", send_all)

    assert offsets(reader.offsets(client, keys)) == ends
    assert [len(call.args[0]) for call in send_all.call_args_list] == [1]
    assert offsets(reader.offsets(client, keys, committed_only=True)) == ends
    assert offsets(reader.offsets(client, keys, 1_000_001)) == {0: 1, 1: -1, 2: -1}
    assert described.end_offsets == client.end_offsets(topic) == ends
    assert {one: end.end for one, end in asked.epoch_ends(asked.epochs(ends)).items()} == ends
    assert described.start_offsets == read_offsets(client, topic, EARLIEST)[1][0] == starts
    assert described.topic_id == reader.topics[topic].topic_id
    assert len(described.topic_id) == 22
    assert PartitionCounts(connection, pytest.fail)([topic, f"{topic}-gone"]) == {topic: 3}
    assert read_offsets(client, f"{topic}-gone", EARLIEST)[1] == [{}]


def test_errors_stay_with_their_partitions_and_a_leader_that_is_not_there_loses_only_its_own(
    client: StreamsGroupClient, topic: str
) -> None:
    missing, reader = f"{topic}-missing", TopicReader()
    reader.describe(client, [topic, missing])
    (leader,) = set(reader.topics[topic].leaders.values())
    # As if the metadata were old: a partition that was deleted meanwhile, one without a leader, one of another broker.
    reader.topics[topic] = DescribedTopic(None, {0: leader, 1: leader, 3: leader, 4: -1, 5: 4711})

    found = reader.offsets(client, [(topic, number) for number in (0, 1, 3, 4, 5, 6)])

    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert offsets(found) == {0: 2, 1: 1, 3: unknown, 4: NO_LEADER, 5: AWAY, 6: unknown}
    assert offsets(reader.offsets(client, [(missing, 0)])) == {0: unknown}
    assert (reader.topics[missing].leaders, reader.topics[missing].error) == ({}, unknown)
    assert missing not in client.list_topics()
    again = reader.find_leaders(client, found)  # described again, the partitions that exist have their leaders
    assert offsets(reader.offsets(client, again)) == {3: unknown, 4: unknown, 5: unknown, 6: unknown}


def test_a_coordinator_of_many_groups_is_asked_for_all_of_them(
    client: StreamsGroupClient, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [unique(f"group-{number}") for number in range(40)]  # more than kafka-python sends to a broker at a time
    assert wait_until(lambda: not fetch_committed_offsets(client, groups)[1])  # the offsets topic is created
    monkeypatch.setattr(client_module, "_GROUPS_PER_FETCH", 1)

    found, errors = fetch_committed_offsets(client, groups)

    assert (found.keys(), errors) == (set(groups), {})
