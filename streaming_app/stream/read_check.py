"""Checks that Spark reads what the brokers have: its Kafka source may find no partition or no record, without an error.

By default the source lists no internal topics. A setting changes that, but a platform may refuse or ignore the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka.errors import KafkaError

from streaming_app.errors import NothingReadError
from streaming_app.kafka.log_reader import LogReader
from streaming_app.kafka.properties import SecurityError
from streaming_app.stream.source import source_options
from streaming_app.text import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.kafka.offsets_topic import OffsetsTopic

_SETTING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


def require_partitions(spark: SparkSession, properties: Mapping[str, str], topic: OffsetsTopic) -> None:
    """Raise NothingReadError if the Kafka source finds no offsets in a topic that has some.

    The function only plans a read of the whole topic.
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
    """Raise NothingReadError if the brokers have a record in the offsets for which Spark returned none.

    `starts` and `ends` are by partition; a partition that is not in `starts` was read from its beginning.
    """
    begins = topic.start_offsets
    ranges = {one: (max(starts.get(one, 0), begins.get(one, 0)), end) for one, end in ends.items()}
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
    """Return partition and offset of a record in `ranges`, which are by partition; None if there is none.

    Also None if it cannot be known: no broker answers, or kafka-python does not support the properties.
    """
    try:
        with LogReader(properties, topic) as log:
            return next(((one.partition, one.offset) for one in log.read(ranges)), None)
    except (KafkaError, SecurityError):
        return None
