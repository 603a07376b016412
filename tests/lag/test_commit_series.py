"""What is known of the commits of one partition: when, how far apart, and how their lag moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

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


@pytest.mark.parametrize(
    ("committed_at", "seen_at"), [(100.0, 100.0), (None, 1000.0), (1200.0, 1000.0)], ids=["old", "unknown", "ahead"]
)
def test_the_first_commit_is_as_old_as_its_time_but_never_newer_than_the_pass(
    committed_at: float | None, seen_at: float
) -> None:
    series = CommitSeries()
    series.observe_commit(5, committed_at, 1000.0)
    assert (series.seen_at, series.offset_since, series.commits_at_offset) == (seen_at, seen_at, 1)


def test_a_time_that_is_known_later_is_of_the_same_commit() -> None:
    series = CommitSeries()
    series.observe_commit(5, None, 10.0)
    series.observe_commit(5, 8.0, 40.0)
    series.observe_commit(5, None, 70.0)
    assert (series.committed_at, series.seen_at, series.commits_at_offset) == (8.0, 10.0, 1)
    assert series.commit_interval is None


def test_commits_without_times_are_as_far_apart_as_the_passes_that_saw_them() -> None:
    series = CommitSeries()
    series.observe_commit(5, None, 10.0)
    series.observe_commit(6, None, 40.0)
    assert series.commit_interval == 32.0


def test_one_late_commit_among_a_hundred_changes_nothing_and_some_dozens_do() -> None:
    fast = [float(second) for second in range(101)]
    assert committed([*fast, 160.0]).commit_interval == 1.0
    slow = [100.0 + 60 * minute for minute in range(1, 31)]
    assert committed([*fast, *slow]).commit_interval == 64.0


def test_a_group_that_commits_less_often_now_is_known_by_it_however_often_it_did_before() -> None:
    fast = [float(second) for second in range(20_000)]
    slow = [20_000.0 + 60 * minute for minute in range(30)]
    assert committed([*fast, *slow]).commit_interval == 64.0


def test_a_year_between_two_commits_counts_as_half_a_year() -> None:
    assert committed([0.0, 365 * 86_400.0]).commit_interval == float(1 << 23)


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


def test_two_passes_show_that_a_lag_falls_and_one_shows_nothing() -> None:
    assert behind((10, 5), 128) == Trend(falls=True, catch_up_seconds=25.0)
    assert behind((10,), 128) == Trend(falls=False, catch_up_seconds=None)


def test_a_fall_that_ended_ten_minutes_ago_says_nothing_of_now() -> None:
    assert behind([1000] * 26 + [500] * 26, 128) == Trend(falls=False, catch_up_seconds=None)
    assert behind([1000] * 25 + [500] * 10, 128).falls


def test_a_sample_says_whether_the_end_has_moved() -> None:
    samples = EndSamples()
    assert [samples.add(end, time) for time, end in enumerate((100, 100, 100, 200))] == [True, False, False, True]


def test_what_is_thinned_out_keeps_bursts_pauses_and_the_newest_end_within_a_sixteenth() -> None:
    every: list[tuple[int, float]] = []
    samples, end = EndSamples(), 0
    for step in range(400):
        end += 10_000 if step % 100 < 5 else 0 if step % 100 < 40 else 10
        every.append((end, step * 60.0))
        samples.add(end, step * 60.0)
        assert samples.pairs()[-1] == every[-1]
    now = 399 * 60.0
    assert len(samples) < 130
    for (low, before), (high, after) in pairwise(every):
        if low == high:
            continue
        age = samples.age(low, now)
        assert age is not None
        assert not age.is_lower_bound
        error = 7 * (1.0 + (now - before) / 16)  # once for each time that it was thinned out
        assert now - after - error <= age.seconds <= now - before + 60.0 + error


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


def test_lag_that_was_gone_for_a_pass_lasts_since_it_came_back() -> None:
    series = CommitSeries()
    since = []
    for now, lag in ((100.0, 11), (130.0, 10), (160.0, 11), (190.0, 12)):
        series.observe_lag(lag, now, allowed=10)
        since.append(series.behind_since)
    assert since == [100.0, None, 160.0, 160.0]


def test_of_passes_within_25_seconds_the_lowest_lag_counts() -> None:
    series = CommitSeries()
    for seconds, lag in ((0, 100), (10, 40), (20, 90), (25, 30)):
        series.observe_lag(lag, 1_000_000.0 + seconds, allowed=0)
    assert series.trend() == Trend(falls=True, catch_up_seconds=75.0)


def test_offsets_that_are_set_back_twice_have_to_come_to_where_they_were_at_first() -> None:
    series = CommitSeries()
    since = []
    for number, offset in enumerate((80, 10, 5, 50, 79, 80, 90, 20)):
        series.observe_commit(offset, None, 1_000_000.0 + number)
        since.append(series.rewound_from)
    assert since == [None, 80, 80, 80, 80, None, None, 90]
