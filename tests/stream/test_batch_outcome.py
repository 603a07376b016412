from __future__ import annotations

import pytest

from streaming_app.stream.batch_outcome import BatchTimes, all_phases


def test_the_times_of_a_phase_add_up_also_when_it_fails() -> None:
    times = BatchTimes(iter([0.0, 2.0, 10.0, 11.5]).__next__)
    with times.measure("read"):
        pass
    with pytest.raises(ValueError, match="x"), times.measure("read"):
        raise ValueError("x")
    assert times.seconds == {"read": 3.5}


def test_the_phases_add_up_to_how_long_spark_says_that_the_batch_took() -> None:
    spark = {"latestOffset": 100, "getBatch": 20, "queryPlanning": 30, "walCommit": 40, "commitOffsets": 60}
    seconds = all_phases({"read": 0.5, "groups": 0.25}, {**spark, "addBatch": 900, "triggerExecution": 1200}, 1.5)
    assert seconds == pytest.approx(
        {
            "source": 0.15,
            "read": 0.5,
            "stored": 0,
            "fold": 0,
            "history": 0,
            "groups": 0.25,
            "checkpoint": 0.1,
            "other": 0.5,
        }
    )
    assert sum(seconds.values()) == pytest.approx(1.5)


def test_a_clock_of_spark_that_is_behind_gives_no_negative_time() -> None:
    assert all_phases({"read": 2.0}, {}, 1.0)["other"] == 0
