"""Batches as Spark's Kafka source passes them to the micro-batch."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.tables.which_writer import GROUPS, MOST

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import DataFrame, SparkSession

_KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"

_MOST_RECORDS = 1_000

Pair = tuple[bytes, bytes | None]
"""Key and value, as `encode` gives them."""
Row = tuple[int, datetime, bytes | None, bytes | None]
"""Offset, time, key, value: all are of partition 0 of topic `topic`."""


def batch(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return these records as a batch."""
    return spark.createDataFrame([(key, value, "topic", 0, offset, at, 0) for offset, at, key, value in rows], _KAFKA)


def write_offset_log(checkpoint: Path, ends: Iterable[int], first_batch: int = 0) -> None:
    """Write what Spark writes of each batch before it begins: then the job knows how many records it has at most."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    for batch_id, end in enumerate(ends, first_batch):
        (checkpoint / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"topic":{{"0":{end}}}}}\n', "utf-8")


def expect_few_records(warehouse: Path, batches: int = 100) -> None:
    """Let the job know, as in production, that batches of cluster `default` have few records: the driver writes them.

    Without it Spark writes them, as it does those of a catch-up.
    """
    write_offset_log(
        warehouse / "_checkpoints" / "default", range(_MOST_RECORDS, batches * _MOST_RECORDS, _MOST_RECORDS)
    )


def limit_delta_rs(monkeypatch: pytest.MonkeyPatch, kind: str = GROUPS, **most: int) -> None:
    """Let delta-rs write less than usual, and Spark the rest; with `records=0` Spark writes all."""
    monkeypatch.setitem(MOST, kind, MOST[kind]._replace(**most))
