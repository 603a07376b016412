"""ListOffsets, Metadata and OffsetFetch for many partitions and groups, on the shared broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from kafka import KafkaProducer

from streaming_app.kafka import client as client_module
from streaming_app.kafka.client import StreamsGroupClient, fetch_committed_offsets
from streaming_app.kafka.topic_reader import (
    AWAY,
    EARLIEST,
    NO_LEADER,
    Answers,
    DescribedTopic,
    Offset,
    TopicReader,
)
from tests.support.container import Broker
from tests.support.waiting import wait_until


@pytest.fixture
def producer(broker: Broker) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as connected:
        yield connected


def offsets(found: Answers[Offset]) -> dict[tuple[str, int], int | str]:
    return {key: one if isinstance(one, str) else one.offset for key, one in found.items()}


def test_the_ends_of_each_partition_and_the_id_of_the_topic(
    client: StreamsGroupClient,
    producer: KafkaProducer,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, send_all = unique("ends"), Mock(wraps=client.send_all)
    client.create_topic(topic, 3)
    for number in range(5):
        producer.send(topic, b"value", partition=1, timestamp_ms=1_000_000 + number)
    producer.flush()
    keys = [(topic, partition) for partition in range(3)]

    reader = TopicReader()
    reader.describe(client, [topic])
    monkeypatch.setattr(client, "send_all", send_all)
    latest = reader.offsets(client, keys)

    assert reader.topics[topic].error is None
    assert len(reader.topics[topic].topic_id or "") == 22
    assert offsets(latest) == {(topic, 0): 0, (topic, 1): 5, (topic, 2): 0}
    assert [len(call.args[0]) for call in send_all.call_args_list] == [1]  # one request for the leader of all
    assert offsets(reader.offsets(client, keys, committed_only=True)) == offsets(latest)
    assert set(offsets(reader.offsets(client, keys, EARLIEST)).values()) == {0}
    assert offsets(reader.offsets(client, keys, 1_000_003)) == {
        (topic, 0): -1,
        (topic, 1): 3,
        (topic, 2): -1,
    }


def test_errors_stay_with_their_partitions_and_a_leader_that_is_not_there_loses_only_its_own(
    client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    topic, missing = unique("half"), unique("missing")
    client.create_topic(topic, 2)
    reader, known = TopicReader(), {(topic, 0): 0, (topic, 1): 0}
    reader.describe(client, [topic, missing])
    (leader,) = set(reader.topics[topic].leaders.values())
    # The leader has them a moment after the topic was created.
    assert wait_until(lambda: offsets(reader.offsets(client, known)) == known)
    # As if the metadata were old: partitions that were deleted meanwhile, one without a leader, one of another broker.
    reader.topics[topic] = DescribedTopic(None, {0: leader, 1: leader, 2: leader, 3: -1, 4: 4711})
    keys = [*((topic, number) for number in range(6)), (missing, 0)]

    found = reader.offsets(client, keys)

    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert (reader.topics[missing].leaders, reader.topics[missing].error) == ({}, unknown)
    gone = {(topic, 2): unknown, (topic, 3): NO_LEADER, (topic, 4): AWAY, (topic, 5): unknown, (missing, 0): unknown}
    assert offsets(found) == {(topic, 0): 0, (topic, 1): 0, **gone}
    assert missing not in client.list_topics()


def test_a_coordinator_of_many_groups_is_asked_for_all_of_them(
    client: StreamsGroupClient, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [unique(f"group-{number}") for number in range(40)]  # more than kafka-python sends to a broker at a time
    assert wait_until(lambda: not fetch_committed_offsets(client, groups)[1])  # the offsets topic is created
    monkeypatch.setattr(client_module, "_GROUPS_PER_FETCH", 1)

    found, errors = fetch_committed_offsets(client, groups)

    assert (found.keys(), errors) == (set(groups), {})
