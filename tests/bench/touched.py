"""What a batch that touches 50 groups costs when few and when many are stored: at most twice as much, it should be.

Both warehouses are filled by the job from a topic, so that their files lie as they do in life. Then the same batches,
each a rebalance of 50 groups anywhere, go to both in turns, from the records in hand to the commit of the rows.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from streaming_app.job.pipeline import Pipeline
from streaming_app.job.tables import Warehouse
from tests.bench.scene import FIRST_EPOCH, PARTITIONS, Scene, group_records
from tests.job.frames import Row, batch

FEW, MANY, TOUCHED = 1_000, 100_000, 50
WARM_UP, ROUNDS = 8, 20
_FIRST_OFFSET = 1 << 32  # beyond all that the topic holds
_START = datetime(2026, 11, 1, tzinfo=timezone.utc)


def run(scene: Scene) -> None:
    """Print the median seconds of both, and the ratio."""
    pipelines = {stored: _filled(scene, stored) for stored in (FEW, MANY)}
    seconds: dict[int, list[float]] = {FEW: [], MANY: []}
    chance = random.Random(FEW)  # noqa: S311 - no secret
    for number in range(WARM_UP + ROUNDS):
        for stored, pipeline in pipelines.items():
            rows = list(_rebalances(chance.sample(range(stored), TOUCHED), number))
            frame = batch(scene.spark, rows)
            started = time.monotonic()
            pipeline(frame, number)
            seconds[stored].append(time.monotonic() - started)
    medians = {stored: statistics.median(each[WARM_UP:]) for stored, each in seconds.items()}
    for stored, each in seconds.items():
        worst = max(each[WARM_UP:])
        print(f"a batch of {TOUCHED} groups, {stored:,} stored: median {medians[stored]:.2f} s, most {worst:.2f} s")
    print(
        f"with {MANY // FEW} times the groups a batch costs {medians[MANY] / medians[FEW]:.2f} times as much",
        flush=True,
    )


def _filled(scene: Scene, stored: int) -> Pipeline:
    name = f"touched-{stored}"
    scene.client.create_topic(name, PARTITIONS)
    scene.write_groups(name, stored)
    started = time.monotonic()
    scene.run_once(name, name)
    print(f"first catch-up of {stored:,} groups in a warm session: {time.monotonic() - started:.1f} s", flush=True)
    warehouse = Warehouse(scene.spark, str(scene.directory / name), "default")
    return Pipeline(warehouse, "default", name, lambda *_: None)


def _rebalances(groups: list[int], number: int) -> Iterator[Row]:
    offset = _FIRST_OFFSET + number * 1_000_000
    for group in groups:
        for key, value in group_records(group, FIRST_EPOCH + 1 + number):
            yield offset, _START + timedelta(seconds=number), key, value
            offset += 1
