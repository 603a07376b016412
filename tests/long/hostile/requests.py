"""What a tenant can send to a 4.4.0 broker: requests that are valid, but larger, odder or more than usual."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaProducer

from streaming_app.groups.partition import partition_of
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.support.encoded import Pair
from tests.support.waiting import MINUTES

OFFSETS_TOPIC, PARTITIONS = "__consumer_offsets", 4
LARGE = 900_000
"""Bytes of a record that brokers accept by default; the most is a little over a megabyte."""
_INTERNAL_CLIENT = "__admin_client"  # the client id with which a broker accepts records for internal topics
_FLUSH_BYTES = 16 << 20


def join(client: StreamsGroupClient, group_id: str, *, topic: str = "orders-in", **member: Any) -> SimulatedMember:
    """Let a member join a group that reads this topic, which need not exist."""
    joined = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[topic])), **member)
    joined.join()
    return joined


@contextmanager
def internal_producer(server: str, *, max_block_ms: int = 60_000) -> Iterator[KafkaProducer]:
    """Give a producer for internal topics: the broker lets it by its client id, kafka-python itself refuses.

    It has no producer id: a broker that loads commits with one takes them for those of an open transaction.
    """
    producer = KafkaProducer(
        bootstrap_servers=server.split(","),
        client_id=_INTERNAL_CLIENT,
        enable_idempotence=False,
        max_request_size=2 * LARGE,
        max_block_ms=max_block_ms,
    )
    metadata = producer._metadata
    every = metadata.topics
    metadata.topics = lambda exclude_internal_topics=False: every(exclude_internal_topics)
    try:
        yield producer
    finally:
        producer.close()


def write_internal(server: str, records: Iterable[Pair]) -> None:
    """Write records into the internal topic, each into its group's partition, and return once the broker has them.

    Raises kafka-python's KafkaError if it refused one.
    """
    sent, size = [], 0
    with internal_producer(server) as producer:
        for key, value in records:
            sent.append(producer.send(OFFSETS_TOPIC, key=key, value=value, partition=_partition(key)))
            size += len(value or b"")
            if size > _FLUSH_BYTES:
                producer.flush(MINUTES)
                size = 0
        for one in sent:
            one.get(MINUTES)


def raw_key(record_type: int, group_id: bytes) -> bytes:
    """Return a key of any type, of a group whose id may be no text."""
    return record_type.to_bytes(2, "big") + len(group_id).to_bytes(2, "big") + group_id


def _partition(key: bytes) -> int:
    group = key[4 : 4 + int.from_bytes(key[2:4], "big")]
    return partition_of(group.decode("utf-8", "replace"), PARTITIONS)
