"""The cluster of the tests does to its logs what the tests of the job rely on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.groups.encoded import Pair
from tests.kafka_cluster import LocalCluster
from tests.waiting import wait_until

_OLD, _LOST, _KEPT = (b"old", b""), (b"lost", b""), (b"kept", b"")


def _keys(three_brokers: LocalCluster, topic: str) -> list[bytes]:
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=three_brokers.bootstrap_server.split(",")) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        (end,) = consumer.end_offsets([partition]).values()
        found: list[bytes] = []
        while len(found) < end:
            found += [one.key for batch in consumer.poll(500).values() for one in batch]
    return found


@pytest.mark.parametrize("kept", [(), (_KEPT,), (_KEPT,) * 3], ids=["shorter", "as long", "longer"])
def test_an_unclean_election_cuts_a_log(
    three_brokers: LocalCluster, unique: Callable[[str], str], kept: tuple[Pair, ...]
) -> None:
    topic = unique("cut")
    three_brokers.create_topic(topic)
    three_brokers.append(topic, _OLD)
    epoch = three_brokers.leader_epoch(topic, 0)

    def write(*records: Pair) -> None:
        if records:
            three_brokers.append(topic, *records)

    three_brokers.cut(topic, 0, lost=lambda: write(_LOST), kept=lambda: write(*kept))

    assert _keys(three_brokers, topic) == [b"old", *(key for key, _ in kept)]
    assert three_brokers.leader_epoch(topic, 0) > epoch


def test_a_paused_broker_loses_its_partitions_and_gets_back_into_the_isr(
    three_brokers: LocalCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("paused")
    three_brokers.create_topic(topic)
    paused = three_brokers.leader(topic, 0)
    three_brokers.pause(paused)
    try:
        assert wait_until(lambda: three_brokers.leader(topic, 0) not in {paused, -1})
    finally:
        three_brokers.resume(paused)

    assert wait_until(lambda: paused in three_brokers.in_sync(topic, 0))
