"""The age of an offset from samples of the end offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streaming_app.lag.series import Age, EndSamples


def test_an_age_is_interpolated_between_two_samples() -> None:
    samples = EndSamples([(0, 0.0), (100, 100.0), (300, 200.0)])

    assert samples.age(50, 200.0) == Age(150.0, is_lower_bound=False)
    assert samples.age(200, 260.0) == Age(110.0, is_lower_bound=False)


def test_the_age_grows_while_nothing_is_produced() -> None:
    samples = EndSamples([(0, 0.0), (100, 100.0)])
    for time in (200.0, 300.0, 400.0):
        samples.add(100, time)

    assert samples.age(50, 400.0) == Age(350.0, is_lower_bound=False)
    assert samples.age(100, 400.0) == Age(0.0, is_lower_bound=False)


def test_what_follows_a_pause_was_written_after_the_pause() -> None:
    samples = EndSamples([(100, 0.0), (100, 30.0), (100, 3600.0), (160, 3660.0)])

    assert len(samples) == 3  # the end of the pause replaces the sample within it
    assert samples.age(100, 3660.0) == Age(60.0, is_lower_bound=False)


def test_nothing_is_said_of_offsets_before_the_first_sample() -> None:
    samples = EndSamples([(100, 50.0), (200, 80.0)])

    assert samples.age(99, 90.0) == Age(40.0, is_lower_bound=True)
    assert EndSamples().age(0, 90.0) is None


def test_an_end_that_goes_back_removes_the_samples_above_it() -> None:
    samples = EndSamples([(100, 0.0), (200, 10.0), (300, 20.0)])

    samples.add(150, 30.0)

    assert samples.pairs() == [(100, 0.0), (150, 30.0)]


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    samples = EndSamples([(100, 1000.0), (200, 1030.0)])

    samples.add(300, 1015.0)

    assert samples.pairs() == [(100, 1000.0), (300, 1015.0)]
    assert samples.age(299, 900.0) == Age(0.0, is_lower_bound=False)
    assert samples.age(99, 900.0) == Age(0.0, is_lower_bound=True)


def test_a_steady_rate_for_weeks_keeps_few_samples() -> None:
    samples = EndSamples()
    for minute in range(30 * 24 * 60):
        samples.add(minute * 1000, minute * 60.0)

    assert len(samples) < 130
    now = 30 * 86_400.0
    age = samples.age(30 * 24 * 60 * 1000 - 60_000 * 24, now)
    assert age is not None
    assert abs(age.seconds - 86_400.0) < 60


steps = st.lists(st.tuples(st.integers(0, 500), st.floats(1.0, 600.0)), min_size=2, max_size=600)


@given(steps=steps, share=st.floats(0, 1))
def test_thinning_out_moves_an_age_by_a_sixteenth_at_each_end_of_the_segment(
    steps: list[tuple[int, float]], share: float
) -> None:
    every: list[tuple[int, float]] = []
    samples, offset, now = EndSamples(), 0, 0.0
    for grown, seconds in steps:
        offset, now = offset + grown, now + seconds
        every.append((offset, now))
        samples.add(offset, now)
    first, last = samples.pairs()[0][0], offset
    asked = first + int((last - first) * share)

    age = samples.age(asked, now)

    assert age is not None
    assert not age.is_lower_bound
    if asked == last:
        assert age.seconds == 0
        return
    before = max(time for end, time in every if end <= asked)
    after = min(time for end, time in every if end > asked)
    error = 1.0 + (now - before) / 16
    # once for each time that it was thinned out
    times = len(steps) // 64 + 1
    assert now - after - times * error <= age.seconds <= now - before + times * error


@given(steps=steps)
def test_samples_never_decrease_and_stay_few(steps: list[tuple[int, float]]) -> None:
    samples, now = EndSamples(), 0.0
    for end, seconds in steps:
        now += seconds
        samples.add(end, now)
        pairs = samples.pairs()
        assert len(pairs) <= 64 + 61
        assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(pairs))
        assert pairs[-1] == (end, now)


@given(steps=steps)
def test_restored_samples_give_the_same_ages(steps: list[tuple[int, float]]) -> None:
    samples, end, now = EndSamples(), 0, 0.0
    for grown, seconds in steps:
        end, now = end + grown, now + seconds
        samples.add(end, now)

    restored = EndSamples(samples.pairs())

    for offset in range(0, end + 1, max(1, end // 50)):
        assert restored.age(offset, now) == samples.age(offset, now)


@given(
    first=st.integers(0, 1_000),
    steps=st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 10, 11, 5_000]), st.sampled_from([1.0, 30.0, 31.0, 3600.0])),
        min_size=64,
        max_size=64,
    ),
)
def test_thinning_out_once_keeps_every_pause_and_moves_no_time_by_more_than_a_sixteenth(
    first: int, steps: list[tuple[int, float]]
) -> None:
    offset, now = 61 * first, 1_000_000.0
    times, samples = {offset: now}, EndSamples([(offset, now)])
    for grown, seconds in [(0, 600.0), *steps]:  # it begins with a pause
        offset, now = offset + grown, now + seconds
        samples.add(offset, now)
        times[offset] = now
    for end, time in times.items():
        age = samples.age(end, now)
        assert age is not None
        if not age.is_lower_bound:
            expected = 0.0 if end == offset else now - time
            assert abs(age.seconds - expected) <= max(1.0, expected / 16) + 1e-6
