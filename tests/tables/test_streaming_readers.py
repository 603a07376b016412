"""Others stream from the tables of history: each row arrives once, whatever the job does to the table meanwhile."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streaming_app.stream.log_positions import Cut
from streaming_app.stream.truncation import void_history
from streaming_app.tables.data_files import encode_file
from streaming_app.tables.definitions import history_tables
from streaming_app.tables.maintenance import maintained_tables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId
from streaming_app.tables.writer import TableWriter

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


def write_batch(writer: TableWriter, number: int) -> None:
    """Write a row into each table, in each of the ways of a job, and again as after a crash."""
    for one in history_tables():
        own, batch = writer.table(one.name), BatchId(["a query"], number).of_table(one.name)
        at = NOW - timedelta(days=40 - number)
        where = {"group_id": "g", str(one.partition_column): 0, "offset": number, str(one.expires_by): at}
        row = own.to_table([where | {"kind": "state", "topic": "topic", "topology_epoch": number}])
        for _ in range(2):
            own.append([encode_file(row)] if number else row, batch)


RETENTION = "delta.logRetentionDuration = 'interval 3 days', delta.deletedFileRetentionDuration = 'interval 3 days'"


def test_each_row_of_a_history_arrives_once_also_after_compaction_retention_and_a_cut_log(
    spark: SparkSession, empty_warehouse: Path
) -> None:
    writer = TableWriter(spark, str(empty_warehouse), "default")
    history = f"delta.`{empty_warehouse}/group_events`"
    spark.sql(f"ALTER TABLE {history} SET TBLPROPERTIES ({RETENTION})")
    seen: Seen = defaultdict(Counter)
    written: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for number in range(3):
        write_batch(writer, number)
        for name in STREAMED:
            written[name] |= stored(empty_warehouse, name)
        if number != 1:  # at the last time, the reader was away while all of this happened
            stream(spark, empty_warehouse, seen)
            continue
        for maintained in maintained_tables(writer, 39.5, 39.5):
            maintained.maintain()
        void_history(writer, [Cut("topic", 0, 1, 2, 0, 1, NOW.isoformat())], dict.fromkeys(STREAMED, "true"))
    assert {name: len(rows) for name, rows in written.items()} == dict.fromkeys(STREAMED, 3)
    assert all(stored(empty_warehouse, name) < written[name] for name in STREAMED)
    assert {name: set(found) for name, found in seen.items()} == written
    (kept,) = spark.sql(f"SHOW TBLPROPERTIES {history} ('delta.logRetentionDuration')").collect()
    assert kept["value"] == "interval 3 days"
    assert {count for found in seen.values() for count in found.values()} == {1}
