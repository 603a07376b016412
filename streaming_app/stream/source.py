"""The Kafka source, and the SQL that decides in the JVM which records leave it, and by which group.

Spark's workers load this module, so nothing here may load kafka-python.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from offsets_decoder.definitions import records
from streaming_app.errors import NothingReadError
from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.text import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming_app.kafka.offsets_topic import OffsetsTopic


_FETCHING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


def type_condition(types: Iterable[int]) -> str:
    """Return the SQL condition for the records of these types, with one comparison per range of types.

    Spark compares keys as unsigned bytes, and a key begins with its type as int16.
    """
    runs = ([number for _, number in run] for _, run in groupby(enumerate(sorted(types)), lambda p: p[1] - p[0]))
    return " OR ".join(f"(key >= X'{run[0]:04X}' AND key < X'{run[-1] + 1:04X}')" for run in runs)


KNOWN_TYPES = frozenset(one.type for one in records().values() if not one.planned)
"""The record types that this release can decode."""
_SKIPPED = KNOWN_TYPES - RECORD_TYPES - {CLASSIC_GROUP}
WANTED_RECORDS = f"key IS NULL OR NOT ({type_condition(_SKIPPED)})"
"""SQL condition for the records that leave the JVM: the records that the fold reads, and all of unknown types.

Offset commits and the records of other groups are most of the topic, and never reach Python. Records without a key, or
with a key too short to hold a type, do: Python puts them into quarantine.
"""

# The key of every group record begins with its type and the group id, whose length is an int16. The id stays bytes:
# it may be invalid UTF-8.
RECORD_TYPE = "coalesce(cast(conv(hex(substring(key, 1, 2)), 16, 10) AS int), -1)"  # -1: there is no key
GROUP_BYTES = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) AS int))"


def read_stream(
    spark: SparkSession,
    properties: Mapping[str, str],
    topic: OffsetsTopic,
    max_offsets: int,
    starting: Mapping[int, int] | None = None,
) -> DataFrame:
    """Return the stream of every record of every partition, from the checkpoint, else from `starting` or the beginning.

    It reads uncommitted, since only offset commits are transactional. Partitions are assigned: with a subscription,
    Spark's driver would join a consumer group, which writes into this very topic.
    """
    options = source_options(properties, topic)
    if starting:
        options["startingOffsets"] = json.dumps({topic.name: {str(one): offset for one, offset in starting.items()}})
    return spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=max_offsets).load()


def source_options(properties: Mapping[str, str], topic: OffsetsTopic) -> dict[str, str]:
    """Return the options of Spark's Kafka source, for a stream and for a single read alike."""
    fetching = {
        "max.poll.records": "5000",
        "max.partition.fetch.bytes": str(1 << 20),
        "fetch.max.bytes": str(4 << 20),
        "isolation.level": "read_uncommitted",
        # Spark asks for offsets after every poll, and a broker answers the requests of a connection in order. A fetch
        # that waits for data (500 ms by default) would delay the answer. Spark only fetches records that exist.
        "fetch.max.wait.ms": "1",
    }
    return {
        **{f"kafka.{name}": value for name, value in {**fetching, **properties}.items()},
        "assign": json.dumps({topic.name: list(range(topic.partitions))}),
        "startingOffsets": "earliest",
        "kafka.group.id": topic.group_id,
        "includeHeaders": "false",
    }


def require_partitions(spark: SparkSession, properties: Mapping[str, str], topic: OffsetsTopic) -> None:
    """Raise NothingReadError if the Kafka source finds no offsets in a topic that has some.

    By default the source lists no internal topics, without an error. A setting changes that, but a platform may refuse
    or ignore the setting. The function only plans a read of the whole topic.
    """
    if not topic.offsets:
        return
    records = spark.read.format("kafka").options(**source_options(properties, topic)).load()
    if not records._jdf.queryExecution().toRdd().getNumPartitions():  # noqa: SLF001 - `rdd` would add a stage of Python
        raise NothingReadError(
            f"Spark's Kafka source finds no partition of {topic.name}, which has {count(topic.partitions, 'partition')}"
            f" with {topic.offsets:,} offsets: {_FETCHING} must be true, and is {spark.conf.get(_FETCHING, 'not set')}"
        )


EARLIEST = -2
"""Spark's notation for the first offset of a partition."""

SIZE = "coalesce(length(key), 0) + coalesce(length(value), 0)"
"""The bytes of a record, in SQL."""
RAW = ("group_bytes", "offset", "partition", "timestamp", "key", "value")
"""The columns of a record that the fold gets."""
MEASURES = ("partition", "offset", "type", "size", "hash")
"""The position, type and size of a record, and the hash of its group: a batch is divided by these."""


def wanted_records(batch: DataFrame) -> DataFrame:
    """Return the records of the Kafka source that leave the JVM: `RAW`, with their `MEASURES`."""
    raw = batch.where(WANTED_RECORDS).selectExpr(f"{GROUP_BYTES} AS group_bytes", *RAW[1:])
    return raw.selectExpr(*RAW, f"{RECORD_TYPE} AS type", f"{SIZE} AS size", "xxhash64(group_bytes) AS hash")
