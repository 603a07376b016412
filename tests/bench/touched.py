"""The cost of a batch of a few groups with few and with many groups stored; 1.2 times as much is the goal.

Both warehouses are filled by the job from a topic, so that their files are as in production. Then the same batches,
each a rebalance of 3, 8 or 50 groups at random, are written to both in turns, as the few records that they are, and
timed from the records in memory to the commit of the rows.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import count, islice

from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.tables.spark_writer import SparkWriter
from tests.bench.bench_harness import PARTITIONS, Harness, group_id
from tests.groups.encoded import FIRST_EPOCH, group_records
from tests.stream.frames import Row, batch, write_offset_log

FEW, MANY = 1_000, 100_000
TOUCHED = (3, 8, 50)
WARM_UP, ROUNDS = 8, 20
_FIRST_OFFSET, _FIRST_BATCH = 1 << 32, 1_000  # beyond the end of the topic, and the batches of the catch-up
_OFFSETS = 20 * max(TOUCHED)  # of a batch: more than it has records
_START = datetime(2026, 11, 1, tzinfo=timezone.utc)


def run(harness: Harness) -> None:
    """Print the median seconds of both, and the ratio."""
    writers = {stored: _fill(harness, stored) for stored in (FEW, MANY)}
    chance = random.Random(FEW)  # noqa: S311 - no secret
    numbers = count()
    for touched in TOUCHED:
        seconds: dict[int, list[float]] = {FEW: [], MANY: []}
        for number in islice(numbers, WARM_UP + ROUNDS):
            for stored, writer in writers.items():
                rows = list(_rebalances(chance.sample(range(stored), touched), number))
                frame = batch(harness.spark, rows)
                started = time.monotonic()
                writer(frame, _FIRST_BATCH + number)
                seconds[stored].append(time.monotonic() - started)
        medians = {stored: statistics.median(each[WARM_UP:]) for stored, each in seconds.items()}
        for stored, each in seconds.items():
            worst = max(each[WARM_UP:])
            print(f"a batch of {touched} groups, {stored:,} stored: median {medians[stored]:.2f} s, most {worst:.2f} s")
        ratio = medians[MANY] / medians[FEW]
        print(f"with {MANY // FEW} times the groups it costs {ratio:.2f} times as much", flush=True)


def _fill(harness: Harness, stored: int) -> GroupsBatchWriter:
    name = f"touched-{stored}"
    harness.client.create_topic(name, PARTITIONS)
    harness.write_groups(name, stored)
    started = time.monotonic()
    harness.run_once(name, name)
    print(f"first catch-up of {stored:,} groups in a warm session: {time.monotonic() - started:.1f} s", flush=True)
    ends = [_FIRST_OFFSET + number * _OFFSETS for number in range(len(TOUCHED) * (WARM_UP + ROUNDS) + 1)]
    write_offset_log(harness.directory / name / "_checkpoints" / "default", ends, _FIRST_BATCH - 1)
    warehouse = SparkWriter(harness.spark, str(harness.directory / name), "default")
    return GroupsBatchWriter(warehouse, "default", name, lambda *_: None)


def _rebalances(groups: list[int], number: int) -> Iterator[Row]:
    offset = _FIRST_OFFSET + number * _OFFSETS
    for group in groups:
        for key, value in group_records(group_id(group), FIRST_EPOCH + 1 + number):
            yield offset, _START + timedelta(seconds=number), key, value
            offset += 1
