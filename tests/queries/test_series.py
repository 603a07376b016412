"""Time behind and lag over time say of each moment what the rows of `lag_history` do."""

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streaming_app.queries.behind import SAMPLE_LASTS, behind_series, lag_at
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
    common = {"group_id": "payments", "topic": "in", "partition": partition, "offset_status": "OK"}
    return {**common, **offsets, "lag": lag, "observed_at": at, **columns}


def rows_at(samples: list[Row], gone: set[int], at: datetime) -> Iterator[tuple[Row, bool]]:
    """Yield the sample of each partition that the group reads at a time, and whether it still holds."""
    for partition in {one["partition"] for one in samples}:
        own = [one for one in samples if one["partition"] == partition]
        newest = max((one for one in own if one["observed_at"] <= at), key=lambda one: one["observed_at"], default=None)
        if newest is None or newest["offset_status"] == "LEFT_OVER":
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
    return warehouse_until(tmp_path_factory.mktemp("series"), END)


def warehouse_until(path: Path, known_until: datetime) -> Path:
    """Make a warehouse whose inputs are known up to a time."""
    inputs = ({"input": "commits"}, {"input": "log_ends", "broker": 1})
    replace_rows(make_warehouse(path), "inputs", *({**one, "known_until": known_until} for one in inputs))
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
                "offset_status": draw(st.sampled_from(["OK", "WAITS", "WAITS", "LEFT_OVER"])),
            }
            samples.append(sample(round(minutes, 3), partition, lag, **columns))
            minutes += draw(st.sampled_from([0.5, 3, 30, 59, 130]))
    return samples, draw(st.sets(st.integers(0, 3)))


def test_at_an_instant_a_sample_that_is_too_old_is_no_lag(warehouse: Path) -> None:
    samples = [sample(0, 0, 7), sample(0, 1, 5, log_start_offset=None), sample(100, 2, 3)]
    reader, group_id = read(warehouse, samples, set())
    for minutes, expected in ((80, {0: 7, 1: 5}), (120, {0: None, 1: 5, 2: 3})):
        rows = lag_at(reader, "default", group_id, BEGIN + timedelta(minutes=minutes))
        assert {row["partition"]: row["lag"] for row in rows} == expected


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


def check(bins: Mapping[int, Row], samples: list[Row], gone: set[int], instants: list[float]) -> None:
    for place in instants:
        at = BEGIN + (END - BEGIN) * place
        number = min(BINS - 1, int((at - BEGIN) / WIDTH))
        seconds, is_lower = behind_at(samples, gone, at)
        one = bins.get(number)
        if seconds is None and not is_lower:
            continue
        assert one is not None, at
        assert one["is_lower"] or not is_lower
        begin, end = BEGIN + number * WIDTH, BEGIN + (number + 1) * WIDTH
        # A value grows until there is another sample, or the last one no longer holds.
        turns = [time for row in samples for time in (row["observed_at"], row["observed_at"] + SAMPLE_LASTS)]
        times = [at, begin, end - LOOK, *(time - LOOK for time in turns if begin < time < end)]
        known = [found for found, _ in (behind_at(samples, gone, time) for time in times) if found is not None]
        assert one["most"] == pytest.approx(max(known, default=None), abs=0.01), (at, one)
        rows = [row for time in (begin, *turns) if begin <= time < end for row, _ in rows_at(samples, gone, time)]
        of_rows = [0.0 if row["lag"] == 0 else row["lag_seconds"] for row in rows if row["observed_at"] >= begin]
        kept = [0.0 for row in rows if row["lag"] == 0]  # does not grow, so it is measured as long as it holds
        least = [one for one in of_rows if one is not None]
        assert one["measured"] in {None, *least, *kept}
        assert max(least, default=0.0) <= (one["measured"] or 0.0) <= (one["most"] or 0.0) + 0.01


INSTANTS = st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30)


@pytest.mark.slow
@PROPERTY
@given(histories(), INSTANTS)
def test_a_group_was_as_far_behind_as_the_rows_say(
    warehouse: Path, history: tuple[list[Row], set[int]], instants: list[float]
) -> None:
    samples, gone = history
    reader, group_id = read(warehouse, samples, gone)
    found = behind_series(reader, "default", group_id, BEGIN, END, bins=BINS)
    check(found, samples, gone, instants)


def test_a_lag_that_nobody_asked_for_any_more_is_not_known(tmp_path: Path) -> None:
    path = warehouse_until(tmp_path, BEGIN + timedelta(minutes=28))
    reader, group_id = read(path, [sample(0, 0, 7, lag_seconds=1.0)], set())
    found = behind_series(reader, "default", group_id, BEGIN, END, bins=BINS)
    assert [found[n]["is_lower"] for n in range(1, 5)] == [False, False, True, True]
    assert [found[n]["most"] is None for n in range(1, 5)] == [False, False, True, True]
