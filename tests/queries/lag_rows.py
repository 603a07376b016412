"""Rows of `lag_history` of a group, made up, and what they say of a moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from streaming_app.queries.lag_series import SAMPLE_LASTS
from streaming_app.tables.reader import WarehouseReader
from tests.support.warehouses import append, make_warehouse, replace_rows

BEGIN = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
END = BEGIN + timedelta(hours=4)
Row = dict[str, Any]


def sample(minutes: float, partition: int = 0, lag: int | None = 0, **columns: Any) -> Row:
    at = BEGIN + timedelta(minutes=minutes)
    offsets = {"committed_offset": 0, "log_start_offset": 0, "log_end_offset": 1_000_000}
    common = {"group_id": "payments", "topic": "in", "partition": partition, "status": "OK"}
    return {**common, **offsets, "lag": lag, "observed_at": at, **columns}


def fill(path: Path, samples: Iterable[Row], gone: Iterable[int] = (), known_until: datetime = END) -> WarehouseReader:
    """Make a warehouse; `lag` has a row of each partition that has samples, but for those that are `gone`."""
    samples = list(samples)
    append(make_warehouse(path), "lag_history", *samples)
    kept = sorted({one["partition"] for one in samples} - set(gone))
    replace_rows(path, "lag", *(sample(0, number, leader=1) for number in kept))
    inputs = ({"input": "commits"}, {"input": "log_ends", "broker": 1})
    replace_rows(path, "inputs", *({**one, "known_until": known_until} for one in inputs))
    return WarehouseReader(path)


def rows_at(samples: list[Row], gone: set[int], at: datetime) -> Iterator[tuple[Row, bool]]:
    """Yield the sample of each partition that the group reads at a time, and whether it still holds."""
    for partition in {one["partition"] for one in samples}:
        own = [one for one in samples if one["partition"] == partition]
        newest = max((one for one in own if one["observed_at"] <= at), key=lambda one: one["observed_at"], default=None)
        if newest is None or newest["status"] == "LEFT_OVER":
            continue
        is_old = newest["log_start_offset"] is None and newest["lag"] is not None
        is_last = not any(one["observed_at"] > newest["observed_at"] for one in own)
        is_over = newest["observed_at"] + SAMPLE_LASTS <= at
        if not (is_last and partition in gone and is_over):
            yield newest, newest["lag"] is not None and (is_old or not is_over)


def random_samples(random: Random) -> list[Row]:
    samples: list[Row] = []
    for partition in range(random.randint(1, 5)):
        minutes = random.uniform(-300, 60)
        while minutes < 250 and random.random() < 0.98:
            samples.append(
                sample(
                    round(minutes, 3),
                    partition,
                    random.choice([None, random.randrange(1_000)]),
                    status=random.choice(["OK", "OK", "BEHIND", "LEFT_OVER"]),
                    log_start_offset=random.choice([0, 0, 0, None]),
                )
            )
            minutes += random.choice([0.5, 3, 30, 59, 130])
    return samples
