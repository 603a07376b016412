"""Batches in the form in which the two queries of the job pass them to their writers."""

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_app.stream import newest_records, source
from streaming_app.tables.driver_limits import GROUPS, MOST

_KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
START = datetime(2026, 11, 1, tzinfo=timezone.utc)

Pair = tuple[bytes, bytes | None]
"""Key and value, as `encode` returns them."""
Row = tuple[int, datetime, bytes | None, bytes | None]
"""Offset, time, key, value; all records are in partition 0 of topic `topic`."""


def rows_of(pairs: Iterable[tuple[bytes | None, bytes | None]], first: int = 0) -> list[Row]:
    """Return records a millisecond apart."""
    return [(first + n, START + timedelta(milliseconds=first + n), *pair) for n, pair in enumerate(pairs)]


def batch(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return a batch of the streams groups."""
    return source.wanted_records(kafka_records(spark, rows))


def offsets_batch(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return a batch of the committed offsets."""
    return newest_records.wanted_records(kafka_records(spark, rows))


def kafka_records(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return records in the form of Spark's Kafka source."""
    return spark.createDataFrame([(key, value, "topic", 0, offset, at, 0) for offset, at, key, value in rows], _KAFKA)


def write_offset_log(checkpoint: Path, ends: Iterable[int]) -> None:
    """Write Spark's files for the start of each batch: from these the job knows the maximum number of records."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    for batch_id, end in enumerate(ends):
        (checkpoint / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"topic":{{"0":{end}}}}}\n', "utf-8")


def limit_driver(monkeypatch: pytest.MonkeyPatch, kind: str = GROUPS, **most: int) -> None:
    """Let the driver write less than usual, and Spark the rest; with `records=0` Spark writes everything."""
    monkeypatch.setitem(MOST, kind, MOST[kind]._replace(**most))
