"""Others stream from the tables of history: each row arrives once, whatever the job does to the table meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offsets_decoder import encode
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.stream.log_positions import Cut
from streaming_app.stream.truncation import void_history
from streaming_app.tables.definitions import history_tables
from streaming_app.tables.maintenance import maintained_tables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.frames import Pair, batch, expect_few_records, limit_driver
from tests.support.offsets_topic import UNDECODABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime.now(timezone.utc)
STREAMED = tuple(one.name for one in history_tables())
Seen = dict[str, Counter[tuple[object, ...]]]
"""By table, how often each row arrived."""


def keys(name: str, rows: Iterable[dict[str, object]]) -> list[tuple[object, ...]]:
    columns = next(one.key for one in history_tables() if one.name == name)
    return [tuple(row[column] for column in columns) for row in rows]


def stored(warehouse: Path, name: str) -> set[tuple[object, ...]]:
    return set(keys(name, WarehouseReader(warehouse).rows(f"SELECT * FROM {name}")))


def stream(spark: SparkSession, warehouse: Path, seen: Seen) -> None:
    """Read on from where the last call ended, as `docs/tables.md` shows."""
    for name in STREAMED:

        def receive(rows: DataFrame, _: int, name: str = name) -> None:
            seen[name].update(keys(name, (row.asDict() for row in rows.collect())))

        changes = spark.readStream.format("delta").option("skipChangeCommits", "true").load(str(warehouse / name))
        writer = changes.writeStream.foreachBatch(receive).trigger(availableNow=True)
        writer.option("checkpointLocation", str(warehouse.parent / f"reader-{name}")).start().awaitTermination()


def records(epoch: int) -> list[Pair]:
    group, member = {"group_id": "g"}, {"group_id": "g", "member_id": f"m{epoch}"}
    subtopologies = [{"subtopology_id": "0", "source_topics": [f"in-{epoch}"]}]
    return [
        encode(23, group, {"epoch": epoch, "subtopologies": subtopologies}),
        encode(17, group, {"epoch": epoch, "validated_topology_epoch": epoch}),
        encode(19, member, {"client_id": "c"}),
        UNDECODABLE,
    ]


RETENTION = "delta.logRetentionDuration = 'interval 3 days', delta.deletedFileRetentionDuration = 'interval 3 days'"


def test_each_row_of_a_history_arrives_once_also_after_compaction_retention_and_a_cut_log(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_few_records(empty_warehouse)
    writer = TableWriter(spark, str(empty_warehouse), "default")
    write_batch = GroupsBatchWriter(writer, FoldOptions("default", "topic"), lambda *_: None)
    history = f"delta.`{empty_warehouse}/group_events`"
    spark.sql(f"ALTER TABLE {history} SET TBLPROPERTIES ({RETENTION})")
    seen: Seen = defaultdict(Counter)
    written: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for number in range(3):
        pairs = records(number + 1)
        at = NOW - timedelta(days=40 - number)
        rows = [(number * len(pairs) + offset, at, key, value) for offset, (key, value) in enumerate(pairs)]
        write_batch(batch(spark, rows), number)
        write_batch(batch(spark, rows), number)  # as after a crash
        for one in history_tables():
            written[one.name] |= stored(empty_warehouse, one.name)
        if number != 1:  # at the last time, the reader was away while all of this happened
            stream(spark, empty_warehouse, seen)
            limit_driver(monkeypatch, records=0)  # Spark writes what follows
            continue
        for maintained in maintained_tables(writer, 39.5, 39.5):
            maintained.maintain()
        cut = Cut("topic", 0, 6, 8, 0, 1, NOW.isoformat())
        void_history(writer, [cut], dict.fromkeys(STREAMED, "true"))
    assert all(written[name] for name in STREAMED)
    assert any(stored(empty_warehouse, name) < written[name] for name in STREAMED)
    assert {name: set(found) for name, found in seen.items()} == written
    (kept,) = spark.sql(f"SHOW TBLPROPERTIES {history} ('delta.logRetentionDuration')").collect()
    assert kept["value"] == "interval 3 days"
    assert {count for found in seen.values() for count in found.values()} == {1}
