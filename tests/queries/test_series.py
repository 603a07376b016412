"""Lag, time behind and rates over time say of each moment what the rows of `lag_history` do."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streaming_app.queries.behind_series import Behind, behind_series
from streaming_app.queries.lag_chart import lag_chart
from streaming_app.queries.lag_series import SAMPLE_LASTS, LagBin, lag_at, lag_series
from streaming_app.queries.rate_series import rate_series
from streaming_app.tables.reader import WarehouseReader
from tests.support.warehouses import append, make_warehouse, replace_rows

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
END = BEGIN + timedelta(hours=4)
BINS = 24
WIDTH = (END - BEGIN) / BINS
LOOK = timedelta(microseconds=1)
Row = dict[str, Any]


def sample(minutes: float, partition: int = 0, lag: int | None = 0, **columns: Any) -> Row:
    at = BEGIN + timedelta(minutes=minutes)
    offsets = {"committed_offset": 0, "log_start_offset": 0, "log_end_offset": 1_000_000}
    common = {"group_id": "payments", "topic": "in", "partition": partition, "status": "OK"}
    return {**common, **offsets, "lag": lag, "observed_at": at, **columns}


def fill(path: Path, samples: Iterable[Row], known_until: datetime = END) -> WarehouseReader:
    """Make a warehouse; `lag` has a row of each partition that has samples."""
    samples = list(samples)
    append(make_warehouse(path), "lag_history", *samples)
    kept = sorted({one["partition"] for one in samples})
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


PROPERTY = settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property, each of which is a group of its own."""
    path = make_warehouse(tmp_path_factory.mktemp("series") / "w")
    inputs = ({"input": "commits"}, {"input": "log_ends", "broker": 1})
    replace_rows(path, "inputs", *({**one, "known_until": END} for one in inputs))
    return path


def read(warehouse: Path, samples: list[Row], gone: set[int]) -> tuple[WarehouseReader, str]:
    """Write the rows of another group, and return its id."""
    group_id = f"group-{next(_numbers)}"
    append(warehouse, "lag_history", *({**one, "group_id": group_id} for one in samples))
    kept = {one["partition"] for one in samples} - gone
    last = {one["partition"]: one for one in sorted(samples, key=lambda one: one["observed_at"])}
    now = [{**last[one], "group_id": group_id, "leader": 1, "task_id": f"0_{one // 2}"} for one in kept]
    if now:
        append(warehouse, "lag", *now)
    return WarehouseReader(warehouse), group_id


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], set[int]]:
    """Draw samples of up to four partitions, whose offsets advance as in Kafka, and the partitions that are gone."""
    samples: list[Row] = []
    for partition in range(draw(st.integers(1, 4))):
        minutes, committed, end = draw(st.floats(-300, 100)), draw(st.integers(0, 100)), 100
        for _ in range(draw(st.integers(1, 12))):
            if minutes >= 250:
                break
            end += draw(st.integers(0, 10_000))
            committed = min(end, committed + draw(st.integers(0, 10_000)))
            lag = draw(st.sampled_from([end - committed, end - committed, None]))
            seconds = draw(st.sampled_from([None, 0.5, 30.0, 5_000.0])) if lag else 0.0
            columns = {
                "committed_offset": committed,
                "log_end_offset": end if lag is not None else None,
                "log_start_offset": draw(st.sampled_from([0, 0, 0, None])),
                "lag_seconds": seconds if lag is not None else None,
                "lag_seconds_is_lower_bound": draw(st.booleans()),
                "status": draw(st.sampled_from(["OK", "BEHIND", "BEHIND", "LEFT_OVER"])),
            }
            samples.append(sample(round(minutes, 3), partition, lag, **columns))
            minutes += draw(st.sampled_from([0.5, 3, 30, 59, 130]))
    return samples, draw(st.sets(st.integers(0, 3)))


def series(reader: WarehouseReader) -> list[LagBin]:
    return lag_series(reader, "default", "payments", BEGIN, END, bins=BINS)


def truth(samples: list[Row], gone: set[int], at: datetime) -> tuple[int | None, int]:
    """Return the sum over the partitions of which the lag was known at a time, and the number of the others."""
    rows = list(rows_at(samples, gone, at))
    known = [row["lag"] for row, is_known in rows if is_known]
    return sum(known) if known else None, len(rows) - len(known)


@PROPERTY
@given(histories(), st.lists(st.integers(0, WIDTH // LOOK - 1), min_size=20, max_size=20))
def test_every_bin_says_what_the_rows_say_of_its_moments(
    warehouse: Path, history: tuple[list[Row], set[int]], places: list[int]
) -> None:
    samples, gone = history
    reader, group_id = read(warehouse, samples, gone)
    found = lag_series(reader, "default", group_id, BEGIN, END, bins=BINS)
    assert bool(found) == any(one["observed_at"] < END for one in samples)
    for one in found:
        at_end, _ = truth(samples, gone, one.end - LOOK)
        assert one.lag == at_end, one
        for place in places:
            lag, unknown = truth(samples, gone, one.begin + place * LOOK)
            assert unknown <= one.unknown
            assert lag is None or (one.least is not None and one.most is not None and one.least <= lag <= one.most)


def test_a_lag_that_nobody_asked_for_any_more_is_not_known(tmp_path: Path) -> None:
    known_until = BEGIN + timedelta(minutes=28)
    found = series(fill(tmp_path / "w", [sample(0, 0, 7)], known_until=known_until))
    assert [(one.lag, one.most, one.unknown) for one in found[1:5]] == [
        (7, 7, 0),
        (7, 7, 0),
        (None, None, 1),
        (None, None, 1),
    ]


def test_at_an_instant_a_sample_that_is_too_old_is_no_lag(tmp_path: Path) -> None:
    reader = fill(tmp_path / "w", [sample(0, 0, 7), sample(0, 1, 5, log_start_offset=None), sample(100, 2, 3)])
    for minutes, expected in ((80, {0: 7, 1: 5}), (120, {0: None, 1: 5, 2: 3})):
        rows = lag_at(reader, "default", "payments", BEGIN + timedelta(minutes=minutes))
        assert {row["partition"]: row["lag"] for row in rows} == expected


def bins(*values: tuple[int | None, int | None, int | None, int]) -> list[LagBin]:
    minute = timedelta(minutes=1)
    return [LagBin(BEGIN + n * minute, BEGIN + (n + 1) * minute, *value, value[-1]) for n, value in enumerate(values)]


def test_what_was_not_known_at_the_end_is_not_called_zero() -> None:
    chart = lag_chart(bins((10, 10, 10, 0), (None, 10, 10, 1)))
    assert chart is not None
    assert chart.newest is None
    assert lag_chart(bins((None, None, None, 1))) is None
    assert lag_chart([]) is None


def behind_at(samples: list[Row], gone: set[int], at: datetime) -> tuple[float | None, bool]:
    """Return how far behind the furthest partition was, and whether that is a lower bound."""
    known, is_lower = list[float](), False
    for row, is_known in rows_at(samples, gone, at):
        if is_known and (row["lag"] == 0 or row["lag_seconds"] is not None):
            age = (at - row["observed_at"]).total_seconds() if row["lag"] else 0.0
            known.append((row["lag_seconds"] if row["lag"] else 0.0) + age)
            is_lower = is_lower or row["lag_seconds_is_lower_bound"]
        else:
            is_lower = True
    return max(known, default=None), is_lower


def check(bins: dict[int, Behind], samples: list[Row], gone: set[int], instants: list[float]) -> None:
    for place in instants:
        at = BEGIN + (END - BEGIN) * place
        number = min(BINS - 1, int((at - BEGIN) / WIDTH))
        seconds, is_lower = behind_at(samples, gone, at)
        one = bins.get(number)
        if seconds is None and not is_lower:
            continue
        assert one is not None, at
        assert one.is_lower_bound or not is_lower
        if seconds is not None:
            assert one.most is not None
            assert one.least - 0.01 <= seconds <= one.most + 0.01, (at, one)
        last = BEGIN + (number + 1) * WIDTH - LOOK
        assert one.at_end == pytest.approx(behind_at(samples, gone, last)[0], abs=0.01)


INSTANTS = st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30)


@pytest.mark.slow
@PROPERTY
@given(histories(), INSTANTS)
def test_a_group_and_its_tasks_were_as_far_behind_as_the_rows_say(
    warehouse: Path, history: tuple[list[Row], set[int]], instants: list[float]
) -> None:
    samples, gone = history
    reader, group_id = read(warehouse, samples, gone)
    found = behind_series(reader, "default", group_id, BEGIN, END, bins=BINS)
    check(dict(found.group) if found else {}, samples, gone, instants)
    of_task = {one["partition"]: f"0_{one['partition'] // 2}" for one in samples if one["partition"] not in gone}
    for task_id, bins in (found.tasks if found else {}).items():
        own = [one for one in samples if of_task.get(one["partition"]) == task_id]
        check(dict(bins), own, gone, instants)


@PROPERTY
@given(histories())
def test_the_rates_are_those_of_the_offsets_in_the_rows(warehouse: Path, history: tuple[list[Row], set[int]]) -> None:
    samples, gone = history
    reader, group_id = read(warehouse, samples, gone)
    found = rate_series(reader, "default", group_id, BEGIN, END, bins=BINS)
    for number in range(BINS):
        begin = BEGIN + number * WIDTH
        produced, committed, is_known, is_partial = 0.0, 0.0, False, False
        for partition in {one["partition"] for one in samples}:
            own = sorted((one for one in samples if one["partition"] == partition), key=lambda one: one["observed_at"])
            if partition not in gone:
                own.append({**own[-1], "observed_at": END})
            own.sort(key=lambda one: one["observed_at"])
            length, new, done = timedelta(), 0.0, 0.0
            for before, after in zip(own, own[1:]):  # noqa: B905, RUF007 - pairs
                first, last = max(before["observed_at"], begin), min(after["observed_at"], begin + WIDTH)
                if first >= last or before["status"] == "LEFT_OVER":
                    continue
                ends = before["log_end_offset"], after["log_end_offset"]
                pair = after["observed_at"] - before["observed_at"]
                if None in ends or pair > SAMPLE_LASTS:
                    is_partial = True
                    continue
                share = (last - first) / pair
                length += last - first
                new += share * (ends[1] - ends[0])
                done += share * max(0, after["committed_offset"] - before["committed_offset"])
            if length:
                is_known = True
                produced += new / length.total_seconds()
                committed += done / length.total_seconds()
        assert (number in found) == is_known
        if is_known:
            assert found[number].produced == pytest.approx(produced, rel=1e-6, abs=1e-6)
            assert found[number].committed == pytest.approx(committed, rel=1e-6, abs=1e-6)
            assert found[number].is_partial == is_partial
