"""A fetch of records without Spark: whether the brokers return any in a range of offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming_app.kafka.connection import connection_settings, silence_log
from streaming_app.kafka.properties import SecurityError

_FETCH_SECONDS = 20.0
_POLL_MS = 500


def find_record(
    properties: Mapping[str, str], topic: str, ranges: Mapping[int, tuple[int, int]]
) -> tuple[int, int] | None:
    """Return partition and offset of a record in `ranges`, of offsets by partition; None if there is none.

    Also None where that is not known: no broker answers, or kafka-python does not support the properties.
    """
    try:
        silence_log()
        settings = connection_settings(properties)
        consumer = KafkaConsumer(
            **settings, client_id="streams-groups", enable_auto_commit=False, isolation_level="read_uncommitted"
        )
    except (KafkaError, SecurityError):
        return None
    try:
        return _find(consumer, {TopicPartition(topic, partition): one for partition, one in ranges.items()})
    except KafkaError:
        return None
    finally:
        consumer.close()


def _find(consumer: Any, ranges: Mapping[Any, tuple[int, int]]) -> tuple[int, int] | None:  # noqa: ANN401 - untyped
    consumer.assign(list(ranges))
    starts = consumer.beginning_offsets(list(ranges))
    for partition, (start, _) in ranges.items():
        consumer.seek(partition, max(start, starts[partition]))
    deadline = time.monotonic() + _FETCH_SECONDS
    while time.monotonic() < deadline:
        for partition, records in consumer.poll(timeout_ms=_POLL_MS).items():
            if records and records[0].offset < ranges[partition][1]:
                return partition.partition, records[0].offset
        if all(consumer.position(partition) >= end for partition, (_, end) in ranges.items()):
            return None
    return None
