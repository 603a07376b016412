"""The lag over time against what the rows of `lag_history` say of each moment."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from streaming_app.queries.lag_chart import lag_chart
from streaming_app.queries.lag_series import LagBin, lag_at, lag_series
from streaming_app.tables.reader import WarehouseReader
from tests.queries.lag_rows import BEGIN, END, Row, fill, random_samples, rows_at, sample


def series(reader: WarehouseReader, bins: int = 24) -> list[LagBin]:
    return lag_series(reader, "default", "payments", BEGIN, END, bins=bins)


def truth(samples: list[Row], gone: set[int], at: datetime) -> tuple[int | None, int]:
    """Return the sum over the partitions of which the lag was known at a time, and the number of the others."""
    rows = list(rows_at(samples, gone, at))
    known = [row["lag"] for row, is_known in rows if is_known]
    return sum(known) if known else None, len(rows) - len(known)


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
