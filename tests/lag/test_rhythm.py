"""What is known of the commits of one partition: when, how far apart, and how their lag moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from streaming_app.lag.ends import EndSamples, LogEnds
from streaming_app.lag.model import Commit, LagRow
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.rhythm import CommitIntervals, LagTrend
from tests.support.lag_harness import at_pass


def usual(times: Iterable[float]) -> float | None:
    intervals = CommitIntervals()
    for one, after in pairwise(times):
        intervals.add(after - one)
    return intervals.usual


def behind(lags: Sequence[int], interval: float) -> float | None:
    """How long it takes to catch up after these lags, 25 s apart, of a group that commits at this interval."""
    trend = LagTrend()
    for number, lag in enumerate(lags):
        trend.add(lag, number * 25.0)
    return trend.catch_up_seconds(interval)


def follow(*passes: tuple[float, int, float | None, int]) -> list[LagRow]:
    """Return the rows of passes: when, what is committed and since when, and the end of the log."""
    standing, samples, found, before = Standing(LagRow("g", "t", 0)), EndSamples(), list[LagRow](), -1
    for now, offset, at, end in passes:
        samples.add(end, now)
        commit, ends = Commit(offset, "id", 0, at), LogEnds(end, 0, end, "id")
        standing.update(commit, ends, samples, at_pass(now), rests=end == before)
        found.append(standing.row)
        before = end
    return found


def test_one_late_commit_among_a_hundred_changes_nothing_and_some_dozens_do() -> None:
    fast = [float(second) for second in range(101)]
    assert usual([*fast, 160.0]) == 1.0
    slow = [100.0 + 60 * minute for minute in range(1, 31)]
    assert usual([*fast, *slow]) == 64.0


def test_a_group_that_commits_less_often_now_is_known_by_it_however_often_it_did_before() -> None:
    fast = [float(second) for second in range(20_000)]
    slow = [20_000.0 + 60 * minute for minute in range(30)]
    assert usual([*fast, *slow]) == 64.0


def test_lag_lasts_since_a_clock_that_was_set_back_says_so() -> None:
    found = follow((1000.0, 0, None, 10), (400.0, 0, None, 5))
    assert [one.behind_since for one in found] == [1000.0, 400.0]


def test_of_frequent_commits_a_fall_within_the_newest_quarter_is_noticed() -> None:
    lags = (1, 1, 10, 10, 10, 10, 5, 4)
    assert behind(lags, 64) == 50.0
    assert behind(lags, 128) is None
    assert behind(lags[1:], 64) is None


def test_ends_of_more_than_two_weeks_ago_are_forgotten() -> None:
    samples, hours = EndSamples(), 40 * 24
    for hour in range(hours):
        samples.add(hour * 1000, hour * 3600.0)
    oldest = samples.pairs()[0][1]
    assert 13 * 86_400.0 < hours * 3600.0 - oldest < 20 * 86_400.0


def test_an_interval_that_an_earlier_run_found_is_not_changed_by_what_goes_wrong_just_after_the_start() -> None:
    intervals = CommitIntervals()
    intervals.restore(30.0)
    for _ in range(4):
        intervals.add(420.0)
    assert intervals.usual == 32.0


@pytest.mark.parametrize(
    ("first", "second", "interval"), [(10.0, 11.0, 1.0), (None, 38.0, 32.0), (10.0, None, 32.0), (10.0, 10.0, None)]
)
def test_two_commits_are_as_far_apart_as_their_times_or_the_pass_that_saw_one_without_a_time(
    first: float | None, second: float | None, interval: float | None
) -> None:
    found = follow((20.0, 5, first, 9), (50.0, 6, second, 9))
    assert found[-1].commit_interval_seconds == interval


@pytest.mark.parametrize(("behind_at", "interval"), [(3570.0, 64.0), (None, 32.0)])
def test_the_time_in_which_there_was_nothing_to_commit_is_no_time_between_commits(
    behind_at: float | None, interval: float
) -> None:
    ends = [(float(now), 5 if behind_at is None or now < behind_at else 15) for now in range(0, 3601, 30)]
    found = follow(*((now, 5, 0.0, end) for now, end in ends), (3630.0, 6, 3630.0, 20))
    assert found[-1].commit_interval_seconds == interval


def test_offsets_that_are_set_back_twice_have_to_come_to_where_they_were_at_first() -> None:
    offsets = (80, 10, 5, 50, 79, 80, 90, 20)
    found = follow(*((1_000_000.0 + number, offset, None, 100) for number, offset in enumerate(offsets)))
    assert [one.rewound_from for one in found] == [None, 80, 80, 80, 80, None, None, 90]
