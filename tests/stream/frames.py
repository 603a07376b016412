"""Batches as Spark's Kafka source passes them to the micro-batch."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"

Pair = tuple[bytes, bytes | None]
"""Key and value, as `encode` gives them."""
Row = tuple[int, datetime, bytes | None, bytes | None]
"""Offset, time, key, value: all are of partition 0 of topic `topic`."""


def batch(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return these records as a batch."""
    return spark.createDataFrame([(key, value, "topic", 0, offset, at, 0) for offset, at, key, value in rows], _KAFKA)


def write_offset_log(checkpoint: Path, ends: Iterable[int]) -> None:
    """Write what Spark writes of each batch before it begins: then the job knows how many records it has at most."""
    (checkpoint / "offsets").mkdir(parents=True)
    for batch_id, end in enumerate(ends):
        (checkpoint / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"topic":{{"0":{end}}}}}\n', "utf-8")
