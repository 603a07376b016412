"""What a tenant can send to a 4.4.0 broker: requests that are valid, but larger, odder or more than usual."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaProducer

from streaming_app.groups.partition import partition_of
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.support.encoded import Pair

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


def random_id(chance: random.Random, length: int = 12) -> str:
    """Return an id of letters and digits."""
    return "".join(chance.choices(string.ascii_letters + string.digits, k=length))


@contextmanager
def internal_producer(server: str) -> Iterator[KafkaProducer]:
    """Give a producer for the internal topic, which kafka-python itself refuses.

    It has no producer id: offset commits in a batch with one would be pending in a transaction.
    """
    producer = KafkaProducer(
        bootstrap_servers=server,
        client_id=_INTERNAL_CLIENT,
        enable_idempotence=False,
        max_request_size=2 * LARGE,
        max_block_ms=60_000,
    )
    metadata = producer._metadata
    every = metadata.topics
    metadata.topics = lambda exclude_internal_topics=False: every(exclude_internal_topics)
    try:
        yield producer
    finally:
        producer.close()


def write_internal(server: str, records: Iterable[Pair], *, timestamp_ms: int | None = None) -> int:
    """Write records into the internal topic, each into its group's partition; return how many the broker has."""
    sent, size, count = [], 0, 0
    with internal_producer(server) as producer:
        for key, value in records:
            sent.append(
                producer.send(OFFSETS_TOPIC, key=key, value=value, partition=_partition(key), timestamp_ms=timestamp_ms)
            )
            size += len(key or b"") + len(value or b"")
            count += 1
            if size > _FLUSH_BYTES:
                sent, size = _acknowledged(sent), 0
        _acknowledged(sent)
    return count


def _acknowledged(sent: list[Any]) -> list[Any]:
    """Wait until the broker has these; return none. Raises kafka-python's KafkaError if it refused one."""
    for one in sent:
        one.get(60)
    return []


def raw_key(record_type: int, group_id: bytes, rest: bytes = b"") -> bytes:
    """Return a key of any type, of a group whose id may be no text."""
    return record_type.to_bytes(2, "big") + len(group_id).to_bytes(2, "big") + group_id + rest


def _partition(key: bytes | None) -> int:
    group = (key or b"")[4 : 4 + int.from_bytes((key or b"")[2:4], "big")]
    return partition_of(group.decode("utf-8", "replace"), PARTITIONS)
