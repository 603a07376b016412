"""Writes records into the brokers' own offsets topic, as a coordinator does."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kafka import KafkaProducer

from streaming_app.groups.partition import OFFSETS_TOPIC, partition_of
from tests.support.encoded import Pair
from tests.support.waiting import MINUTES

PARTITIONS = 4
LARGE = 900_000
"""Bytes of a record that brokers accept by default; the most is a little over a megabyte."""
_INTERNAL_CLIENT = "__admin_client"  # the client id with which a broker accepts records for internal topics
_FLUSH_BYTES = 16 << 20


class TimedRecord(NamedTuple):
    """A record for a partition of a topic, with its time in milliseconds since 1970; None: now."""

    at: int | None
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


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
        max_in_flight_requests_per_connection=1,  # so that they keep their order
        linger_ms=5,
    )
    metadata = producer._metadata
    every = metadata.topics
    metadata.topics = lambda exclude_internal_topics=False: every(exclude_internal_topics)
    try:
        yield producer
    finally:
        producer.close()


def write_records(server: str, records: Iterable[TimedRecord]) -> int:
    """Write records into any topics, and return their number once the broker has them.

    Raises kafka-python's KafkaError if it refused one.
    """
    sent, size = [], 0
    with internal_producer(server) as producer:
        for one in records:
            sent.append(producer.send(one.topic, one.value, one.key, partition=one.partition, timestamp_ms=one.at))
            size += len(one.value or b"")
            if size > _FLUSH_BYTES:
                producer.flush(MINUTES)
                size = 0
        for future in sent:
            future.get(MINUTES)
    return len(sent)


def write_internal(server: str, records: Iterable[Pair]) -> None:
    """Write records into the offsets topic, each into its group's partition. Raises KafkaError."""
    write_records(server, (group_record(None, key, value) for key, value in records))


def group_record(at: int | None, key: bytes, value: bytes | None) -> TimedRecord:
    """Return a record for the offsets topic, in the partition of its group."""
    group = key[4 : 4 + int.from_bytes(key[2:4], "big")]
    return TimedRecord(at, OFFSETS_TOPIC, partition_of(group.decode("utf-8", "replace"), PARTITIONS), key, value)


def raw_key(record_type: int, group_id: bytes) -> bytes:
    """Return a key of any type, of a group whose id may be no text."""
    return record_type.to_bytes(2, "big") + len(group_id).to_bytes(2, "big") + group_id
