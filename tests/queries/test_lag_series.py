"""The lag over time against what the rows of `lag_history` say of each moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming_app.queries.lag_chart import lag_chart
from streaming_app.queries.lag_series import SAMPLE_LASTS, LagBin, lag_at, lag_series
from streaming_app.tables.reader import WarehouseReader
from tests.warehouses import append, make_warehouse, replace_rows

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


def series(reader: WarehouseReader, bins: int = 24) -> list[LagBin]:
    return lag_series(reader, "default", "payments", BEGIN, END, bins=bins)


def truth(samples: list[Row], gone: set[int], at: datetime) -> tuple[int | None, int]:
    """Return the sum over the partitions of which the lag was known at a time, and the number of the others."""
    known, unknown = list[int](), 0
    for partition in {one["partition"] for one in samples}:
        newest = max(
            (one for one in samples if one["partition"] == partition and one["observed_at"] <= at),
            key=lambda one: one["observed_at"],
            default=None,
        )
        if newest is None or newest["status"] == "LEFT_OVER":
            continue
        is_old = newest["log_start_offset"] is None and newest["lag"] is not None
        is_last = not any(
            one["partition"] == partition and one["observed_at"] > newest["observed_at"] for one in samples
        )
        expired = newest["observed_at"] + SAMPLE_LASTS <= at and not is_old
        if is_last and partition in gone and newest["observed_at"] + SAMPLE_LASTS <= at:
            continue
        if newest["lag"] is None or expired:
            unknown += 1
        else:
            known.append(newest["lag"])
    return sum(known) if known else None, unknown


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


@pytest.mark.parametrize("seed", range(12))
def test_every_bin_says_what_the_rows_say_of_its_moments(tmp_path: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    samples = random_samples(random)
    gone = {one["partition"] for one in samples if random.random() < 0.3}
    found = series(fill(tmp_path / "w", samples, gone))
    assert bool(found) == any(one["observed_at"] < END for one in samples)
    for one in found:
        at_end, _ = truth(samples, gone, one.end - timedelta(microseconds=1))
        assert one.lag == at_end, one
        for _ in range(40):
            at = one.begin + timedelta(
                microseconds=random.randrange((one.end - one.begin) // timedelta(microseconds=1))
            )
            lag, unknown = truth(samples, gone, at)
            assert unknown <= one.unknown
            assert lag is None or (one.least is not None and one.most is not None and one.least <= lag <= one.most)


def test_a_partition_at_rest_counts_from_its_sample_before_the_window(tmp_path: Path) -> None:
    at_rest = [sample(minutes, 1, 40) for minutes in (-30, 30, 90, 150, 210)]
    found = series(fill(tmp_path / "w", [*at_rest, sample(60, 0, 2)]))
    assert [one.lag for one in found[:7]] == [40] * 6 + [42]
    assert not any(one.unknown for one in found[:6])


def test_a_moment_that_no_partition_saw_is_not_drawn(tmp_path: Path) -> None:
    """The largest lag of each partition in a bin is at another moment: their sum never was."""
    moving = [sample(minutes, minutes % 2, 100 if minutes % 4 < 2 else 0) for minutes in range(240)]
    assert max(one.most or 0 for one in series(fill(tmp_path / "w", moving))) < 201
    turns = [sample(minutes, part, 100 * (minutes % 2 == part)) for minutes in range(240) for part in (0, 1)]
    assert {(one.least, one.most) for one in series(fill(tmp_path / "turns", turns))} == {(100, 100)}


def test_where_the_job_was_away_the_lag_is_not_known(tmp_path: Path) -> None:
    found = series(fill(tmp_path / "w", [sample(0, 0, 7), sample(200, 0, 9)]))
    assert [(one.lag, one.unknown) for one in (found[8], found[10], found[19], found[20])] == [
        (7, 0),
        (None, 1),
        (None, 1),
        (9, 0),
    ]


def test_a_lag_that_nobody_asked_for_any_more_is_not_known(tmp_path: Path) -> None:
    known_until = BEGIN + timedelta(minutes=28)
    found = series(fill(tmp_path / "w", [sample(0, 0, 7)], known_until=known_until))
    assert [(one.lag, one.most, one.unknown) for one in found[1:5]] == [
        (7, 7, 0),
        (7, 7, 0),
        (None, None, 1),
        (None, None, 1),
    ]


def test_a_large_history_is_cut_nowhere(tmp_path: Path) -> None:
    many = [sample(minutes, partition, partition) for minutes in range(240) for partition in range(250)]
    found = series(fill(tmp_path / "w", many))
    assert {one.lag for one in found} == {sum(range(250))}


def test_at_an_instant_a_sample_that_is_too_old_is_no_lag(tmp_path: Path) -> None:
    reader = fill(tmp_path / "w", [sample(0, 0, 7), sample(0, 1, 5, log_start_offset=None), sample(100, 2, 3)])
    for minutes, expected in ((80, {0: 7, 1: 5}), (120, {0: None, 1: 5, 2: 3})):
        rows = lag_at(reader, "default", "payments", BEGIN + timedelta(minutes=minutes))
        assert {row["partition"]: row["lag"] for row in rows} == expected


def test_a_group_without_samples_has_no_series(tmp_path: Path) -> None:
    assert series(fill(tmp_path / "w", [sample(0, 0, 7, group_id="other")])) == []


def bins(*values: tuple[int | None, int | None, int | None, int]) -> list[LagBin]:
    minute = timedelta(minutes=1)
    return [LagBin(BEGIN + n * minute, BEGIN + (n + 1) * minute, *value, value[-1]) for n, value in enumerate(values)]


def test_a_chart_has_a_line_and_a_band_for_each_time_of_which_the_lag_was_known() -> None:
    chart = lag_chart(bins((10, 10, 10, 0), (10, 5, 20, 1), (None, None, None, 2), (0, 0, 0, 0)))
    assert chart is not None
    assert chart.lines == ["0,500 500,500", "750,1000 1000,1000"]
    assert chart.bands[0] == "0,500 250,500 250,0 500,0 500,750 250,750 250,500 0,500"
    assert chart.unknown == [(250.0, 500.0)]
    assert (chart.most, chart.most_at, chart.newest) == (20, BEGIN + timedelta(minutes=1), 0)


def test_what_was_not_known_at_the_end_is_not_called_zero() -> None:
    chart = lag_chart(bins((10, 10, 10, 0), (None, 10, 10, 1)))
    assert chart is not None
    assert chart.newest is None
    assert lag_chart(bins((None, None, None, 1))) is None
    assert lag_chart([]) is None
