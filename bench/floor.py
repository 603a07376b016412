"""From an append to a queryable row: the job against the engine's lower bound (the floor), in turns in one session.

The floor is a stream of the same topic with the same options and the same trigger, whose batch appends one row to one
Delta table: no filter, no fold, no second table. For both, a row counts as visible when the file of its commit exists.
"""

import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from bench.bench_harness import PARTITIONS, Harness, await_commit, group_id, print_table
from streaming_app.errors import WarehouseError
from streaming_app.job.stream_query import StreamQuery
from streaming_app.kafka.properties import client_properties
from streaming_app.stream.source import read_stream
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.encoded import group_records
from tests.support.offsets_topic import describe_offsets_topic

ROUNDS, WARM_UP, APPENDS = 5, 5, 15
LONGEST_PAUSE_SECONDS = 3.0
FLOOR, JOB = "the floor", "the job"


def run(harness: Harness, groups: int, rounds: int = ROUNDS) -> None:
    """Print p50 and p95 of the floor and of the job with `groups` groups, and the ratios."""
    topic = f"floor-{groups}"
    harness.client.create_topic(topic, PARTITIONS)
    harness.write_groups(topic, groups)
    seconds: dict[str, list[float]] = {FLOOR: [], JOB: []}
    epoch = iter(range(3, 1 << 30))
    for number in range(rounds):
        for label, each in seconds.items():
            each.extend(_round(harness, topic, groups, label, epoch))
            print(f"round {number + 1} of {rounds}, {label}: p50 {statistics.median(each):.2f} s", flush=True)
    floor, rows = _quantiles(seconds[FLOOR]), []
    for label, each in seconds.items():
        p50, p95 = _quantiles(each)
        rows.append((label, f"{p50:.2f}", f"{p95:.2f}", f"{p50 / floor[0]:.2f}", f"{p95 / floor[1]:.2f}"))
    title = f"append to queryable row, {groups:,} groups, {rounds} rounds of {APPENDS} appends in turns"
    print_table(title, ("p50, s", "p95, s", "p50 / floor", "p95 / floor"), rows)


def _quantiles(seconds: list[float]) -> tuple[float, float]:
    return statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]


def _round(harness: Harness, topic: str, groups: int, label: str, epochs: Iterator[int]) -> list[float]:
    warehouse = harness.directory / topic
    chance = random.Random(groups)  # noqa: S311 - no secret
    measured = []
    if label == FLOOR:
        table, running = warehouse / "floor", _floor(harness, topic, warehouse / "floor")
    else:
        table, running = warehouse / "groups", harness.running(topic)
    with running:
        if label == FLOOR:
            while not _has_all(harness, topic, table):
                time.sleep(0.2)
        else:
            _await_groups(warehouse, groups)
        for _ in range(WARM_UP + APPENDS):
            time.sleep(chance.uniform(0, LONGEST_PAUSE_SECONDS))
            number = chance.randrange(groups)
            offset, appended = _append(harness, topic, number, next(epochs))
            is_there = partial(_has_all, harness, topic, table)
            if label != FLOOR:
                is_there = partial(_is_visible, warehouse, number, offset)
            measured.append(await_commit(table, appended, is_there))
    return measured[WARM_UP:]


def _append(harness: Harness, topic: str, number: int, epoch: int) -> tuple[int, float]:
    """Append the records of a rebalance of a group; return the last offset and the time of the acknowledgement."""
    sent = [
        harness.producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
        for key, value in group_records(group_id(number), epoch)
    ]
    harness.producer.flush()
    return sent[-1].get(30).offset, time.time()


def _is_visible(warehouse: Path, number: int, offset: int) -> bool:
    """Return whether the row of a group contains the record at `offset`."""
    query = f"SELECT last_offset FROM groups WHERE group_id = {quote(group_id(number))}"
    return bool(WarehouseReader(warehouse).rows(query)[0]["last_offset"] >= offset)


def _await_groups(warehouse: Path, groups: int) -> None:
    """Wait until the table has so many groups."""
    while True:
        with suppress(WarehouseError):  # the job may still be creating the tables
            counted = WarehouseReader(warehouse).rows("SELECT count(*) AS n FROM groups")
            if counted[0]["n"] == groups:
                return
        time.sleep(0.5)


def _has_all(harness: Harness, topic: str, table: Path) -> bool:
    """Return whether the floor's batches have counted every record of the topic."""
    if not DeltaTable.is_deltatable(str(table)):
        return False
    counted = DeltaTable(table).to_pyarrow_table()["records"].to_pylist()
    return sum(counted) == sum(harness.client.end_offsets(topic).values())


@contextmanager
def _floor(harness: Harness, topic: str, table: Path) -> Iterator[None]:
    """Run the stream of the floor."""
    config = harness.config(topic)
    properties = client_properties(config.bootstrap_server, None)
    described = describe_offsets_topic(harness.spark, properties, topic)
    stop = threading.Event()

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.selectExpr("count(*) AS records").coalesce(1).write.format("delta").mode("append").save(str(table))

    records = read_stream(harness.spark, properties, described, config.max_offsets_per_trigger)
    query = StreamQuery(Location.of(f"{table}-checkpoint"), stop).start(records, write, config.trigger)
    try:
        yield
    finally:
        time.sleep(2)  # until the checkpoint has the last batch: if that were repeated, its records would count twice
        stop.set()
        query.stop()
