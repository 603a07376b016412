"""The age of an offset from samples of the end offset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streaming_app.lag.ends import Age, EndSamples


def test_an_end_does_not_move_because_a_clock_was_set_back() -> None:
    samples = EndSamples([(100, 1000.0), (100, 1030.0)])
    assert [samples.add(100, 900.0), samples.add(101, 930.0)] == [False, True]


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    samples = EndSamples([(100, 1000.0), (200, 1030.0)])
    samples.add(300, 1015.0)
    assert samples.pairs() == [(100, 1000.0), (300, 1015.0)]
    assert samples.age(299, 900.0) == Age(0.0, is_lower_bound=False)
    assert samples.age(99, 900.0) == Age(0.0, is_lower_bound=True)


steps = st.lists(st.tuples(st.integers(0, 500), st.floats(1.0, 600.0)), min_size=2, max_size=600)


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
