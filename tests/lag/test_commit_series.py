"""What is known of the commits of one partition: when, how far apart, and how their lag moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from streaming_app.lag.series import CommitSeries, EndSamples, Trend


def committed(times: Iterable[float]) -> CommitSeries:
    """Commits of growing offsets at these times."""
    series = CommitSeries()
    for offset, time in enumerate(times):
        series.observe_commit(offset, time, time)
    return series


def behind(lags: Sequence[int], interval: float, seconds: float = 25.0) -> Trend:
    """The trend of these lags, so many seconds apart, of a group that commits at this interval."""
    series = CommitSeries()
    series.restore_interval(interval)
    for number, lag in enumerate(lags):
        series.observe_lag(lag, number * seconds, allowed=0)
    return series.trend()


def test_one_late_commit_among_a_hundred_changes_nothing_and_some_dozens_do() -> None:
    fast = [float(second) for second in range(101)]
    assert committed([*fast, 160.0]).commit_interval == 1.0
    slow = [100.0 + 60 * minute for minute in range(1, 31)]
    assert committed([*fast, *slow]).commit_interval == 64.0


def test_a_group_that_commits_less_often_now_is_known_by_it_however_often_it_did_before() -> None:
    fast = [float(second) for second in range(20_000)]
    slow = [20_000.0 + 60 * minute for minute in range(30)]
    assert committed([*fast, *slow]).commit_interval == 64.0


def test_lag_lasts_since_a_clock_that_was_set_back_says_so() -> None:
    series = CommitSeries()
    series.observe_lag(10, 1000.0, allowed=0)
    series.observe_lag(5, 400.0, allowed=0)
    assert series.behind_since == 400.0
    assert series.trend() == Trend(falls=False, catch_up_seconds=None)


def test_of_frequent_commits_a_fall_within_the_newest_quarter_is_noticed() -> None:
    lags = (1, 1, 10, 10, 10, 10, 5, 4)
    assert behind(lags, 64) == Trend(falls=True, catch_up_seconds=50.0)
    assert behind(lags, 128) == Trend(falls=False, catch_up_seconds=None)
    assert behind(lags[1:], 64) == Trend(falls=False, catch_up_seconds=None)


def test_ends_of_more_than_two_weeks_ago_are_forgotten() -> None:
    samples, hours = EndSamples(), 40 * 24
    for hour in range(hours):
        samples.add(hour * 1000, hour * 3600.0)
    oldest = samples.pairs()[0][1]
    assert 13 * 86_400.0 < hours * 3600.0 - oldest < 20 * 86_400.0


def test_an_interval_that_an_earlier_run_found_is_not_changed_by_what_goes_wrong_just_after_the_start() -> None:
    series = CommitSeries()
    series.restore_interval(30.0)
    at = 0.0
    for number, gap in enumerate((0.0, *[420.0] * 4)):
        at += gap
        series.observe_commit(number, at, at)
    assert series.commit_interval == 32.0


@pytest.mark.parametrize(
    ("first", "second", "interval"), [(10.0, 11.0, 1.0), (None, 38.0, 32.0), (10.0, None, 64.0), (10.0, 10.0, None)]
)
def test_two_commits_are_as_far_apart_as_their_times_or_the_pass_that_saw_one_without_a_time(
    first: float | None, second: float | None, interval: float | None
) -> None:
    series = CommitSeries()
    series.observe_commit(5, first, 20.0)
    series.observe_commit(6, second, 50.0)
    assert series.commit_interval == interval


@pytest.mark.parametrize(("behind_at", "interval"), [(3570.0, 64.0), (None, 32.0)])
def test_the_time_in_which_there_was_nothing_to_commit_is_no_time_between_commits(
    behind_at: float | None, interval: float
) -> None:
    series = CommitSeries()
    series.observe_commit(5, 0.0, 0.0)
    for now in range(30, 3601, 30):
        series.observe_lag(0 if behind_at is None or now < behind_at else 10, float(now), allowed=0)
    series.observe_commit(6, 3630.0, 3630.0)
    assert series.commit_interval == interval


def test_offsets_that_are_set_back_twice_have_to_come_to_where_they_were_at_first() -> None:
    series = CommitSeries()
    since = []
    for number, offset in enumerate((80, 10, 5, 50, 79, 80, 90, 20)):
        series.observe_commit(offset, None, 1_000_000.0 + number)
        since.append(series.rewound_from)
    assert since == [None, 80, 80, 80, 80, None, None, 90]
