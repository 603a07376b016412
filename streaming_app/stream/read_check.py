"""Whether Spark reads what the brokers have: its Kafka source finds no partition, or no record, without an error.

By default it lists topics without internal ones. A setting prevents that, but a platform may refuse or ignore it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming_app.errors import NothingReadError
from streaming_app.kafka.connection import connection_settings, silence_log
from streaming_app.kafka.properties import SecurityError
from streaming_app.stream.source import source_options
from streaming_app.text import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.kafka.offsets_topic import OffsetsTopic

_FETCH_SECONDS = 20.0
_POLL_MS = 500
_SETTING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


def require_partitions(spark: SparkSession, properties: Mapping[str, str], topic: OffsetsTopic) -> None:
    """Raise NothingReadError if the Kafka source finds no offsets to read in a topic that has some.

    It plans a read of the whole topic, and reads nothing.
    """
    if not topic.offsets:
        return
    records = spark.read.format("kafka").options(**source_options(properties, topic)).load()
    if not records._jdf.queryExecution().toRdd().getNumPartitions():  # noqa: SLF001 - `rdd` would add a stage of Python
        raise NothingReadError(
            f"Spark's Kafka source finds no partition of {topic.name}, which has {count(topic.partitions, 'partition')}"
            f" with {topic.offsets:,} offsets: {_SETTING} must be true, and is {spark.conf.get(_SETTING, 'not set')}"
        )


def require_records(
    properties: Mapping[str, str], topic: OffsetsTopic, starts: Mapping[int, int], ends: Mapping[int, int]
) -> None:
    """Raise NothingReadError if the brokers return a record of the offsets that Spark has read without getting any.

    `starts` and `ends` are by partition; one that is not in `starts` was read from its beginning.
    """
    ranges = {partition: (starts.get(partition, 0), end) for partition, end in ends.items()}
    ranges = {partition: one for partition, one in ranges.items() if one[0] < one[1]}
    found = _find_record(properties, topic.name, ranges) if ranges else None
    if found:
        partition, offset = found
        raise NothingReadError(
            f"Spark's Kafka source returned no record of {topic.name}, but the brokers do: the first is at offset "
            f"{offset} of partition {partition}"
        )


def _find_record(
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
