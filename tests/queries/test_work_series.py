"""How far behind a group was, and what was produced and committed, against the rows of `lag_history`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streaming_app.queries.behind_series import Behind, behind_series
from streaming_app.queries.lag_series import SAMPLE_LASTS
from streaming_app.queries.rate_series import rate_series
from streaming_app.tables.reader import WarehouseReader
from tests.queries.lag_rows import BEGIN, END, Row, fill, rows_at, sample
from tests.support.warehouses import append, make_warehouse, replace_rows

BINS = 24
WIDTH = (END - BEGIN) / BINS
LOOK = timedelta(microseconds=1)
PROPERTY = settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property, each of which is a group of its own."""
    path = make_warehouse(tmp_path_factory.mktemp("series") / "w")
    inputs = ({"input": "commits"}, {"input": "log_ends", "broker": 1})
    replace_rows(path, "inputs", *({**one, "known_until": END} for one in inputs))
    return path


def read(warehouse: Path, samples: list[Row], gone: set[int], number: Iterator[int]) -> tuple[WarehouseReader, str]:
    """Write the rows of another group, and return its id."""
    group_id = f"group-{next(number)}"
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
NUMBERS = iter(range(1_000_000))


@pytest.mark.slow
@PROPERTY
@given(histories(), INSTANTS)
def test_a_group_and_its_tasks_were_as_far_behind_as_the_rows_say(
    warehouse: Path, history: tuple[list[Row], set[int]], instants: list[float]
) -> None:
    samples, gone = history
    reader, group_id = read(warehouse, samples, gone, NUMBERS)
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
    reader, group_id = read(warehouse, samples, gone, NUMBERS)
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


def test_a_partition_that_stands_still_falls_behind_by_the_minute(tmp_path: Path) -> None:
    """It has a sample an hour, as nothing happens to it."""
    reader = fill(tmp_path / "w", [sample(0, 0, 7, lag_seconds=10.0), sample(60, 0, 7, lag_seconds=3_610.0)])
    found = behind_series(reader, "default", "payments", BEGIN, END, bins=BINS)
    assert found is not None
    assert [round(found.group[number].at_end or 0) for number in range(6)] == [610, 1_210, 1_810, 2_410, 3_010, 3_610]
    assert found.group[2].least == pytest.approx(1_210)


def test_three_tasks_in_trouble_are_first_of_a_thousand(tmp_path: Path) -> None:
    in_trouble = {17: 400.0, 503: 300.0, 999: 200.0}
    samples = [
        sample(minutes, number, 5, lag_seconds=in_trouble.get(number, 1.0))
        for number in range(1_000)
        for minutes in (200, 239)
    ]
    path = tmp_path / "w"
    fill(path, samples)
    replace_rows(path, "lag", *(sample(239, number, leader=1, task_id=f"0_{number}") for number in range(1_000)))
    found = behind_series(
        WarehouseReader(path),
        "default",
        "payments",
        BEGIN,
        END,
        bins=BINS,
        tasks=5,
        with_tasks=frozenset({"0_4", "9_9"}),
    )
    assert found is not None
    assert list(found.tasks)[:3] == ["0_17", "0_503", "0_999"]
    assert "0_4" in found.tasks
    assert (len(found.tasks), found.more_tasks) == (5, 995)


def test_a_group_without_samples_has_neither(tmp_path: Path) -> None:
    reader = fill(tmp_path / "w", [sample(0, 0, 7, group_id="other")])
    assert behind_series(reader, "default", "payments", BEGIN, END) is None
    assert rate_series(reader, "default", "other-still", BEGIN, END) == {}
