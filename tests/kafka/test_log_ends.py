"""ListOffsets, Metadata and OffsetFetch for many partitions and groups, on the shared broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from kafka import KafkaProducer

from streaming_app.kafka import lag_offsets
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.lag_offsets import (
    AWAY,
    EARLIEST,
    NO_LEADER,
    Offsets,
    TopicLeaders,
    describe_leaders,
    fetch_committed_offsets,
    list_offsets,
)
from tests.support.container import Broker
from tests.support.waiting import wait_until


@pytest.fixture
def producer(broker: Broker) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as connected:
        yield connected


def offsets(found: Offsets) -> dict[tuple[str, int], int | str]:
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

    topics = describe_leaders(client, [topic])
    monkeypatch.setattr(client, "send_all", send_all)
    latest = list_offsets(client, keys, topics)

    assert topics[topic].error is None
    assert len(topics[topic].topic_id or "") == 22
    assert offsets(latest) == {(topic, 0): 0, (topic, 1): 5, (topic, 2): 0}
    assert [len(call.args[0]) for call in send_all.call_args_list] == [1]  # one request for the leader of all
    assert offsets(list_offsets(client, keys, topics, committed_only=True)) == offsets(latest)
    assert set(offsets(list_offsets(client, keys, topics, EARLIEST)).values()) == {0}
    assert offsets(list_offsets(client, keys, topics, 1_000_003)) == {
        (topic, 0): -1,
        (topic, 1): 3,
        (topic, 2): -1,
    }


def test_errors_stay_with_their_partitions_and_a_leader_that_is_not_there_loses_only_its_own(
    client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    topic, missing = unique("half"), unique("missing")
    client.create_topic(topic, 2)
    described = describe_leaders(client, [topic, missing])
    (leader,) = set(described[topic].leaders.values())
    # The leader has them a moment after the topic was created.
    assert wait_until(
        lambda: offsets(list_offsets(client, [(topic, 0), (topic, 1)], described)) == {(topic, 0): 0, (topic, 1): 0}
    )
    # As if the metadata were old: partitions that were deleted meanwhile, one without a leader, one of another broker.
    topics = {**described, topic: TopicLeaders(None, {0: leader, 1: leader, 2: leader, 3: -1, 4: 4711})}

    found = list_offsets(client, [*((topic, number) for number in range(6)), (missing, 0)], topics)

    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert described[missing] == TopicLeaders(None, {}, unknown)
    gone = {(topic, 2): unknown, (topic, 3): NO_LEADER, (topic, 4): AWAY, (topic, 5): unknown, (missing, 0): unknown}
    assert offsets(found) == {(topic, 0): 0, (topic, 1): 0, **gone}
    assert missing not in client.list_topics()


def test_a_coordinator_of_many_groups_is_asked_for_all_of_them(
    client: StreamsGroupClient, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [unique(f"group-{number}") for number in range(40)]  # more than kafka-python sends to a broker at a time
    assert wait_until(lambda: not fetch_committed_offsets(client, groups)[1])  # the offsets topic is created
    monkeypatch.setattr(lag_offsets, "_GROUPS_PER_FETCH", 1)

    found, errors = fetch_committed_offsets(client, groups)

    assert (found.keys(), errors) == (set(groups), {})
