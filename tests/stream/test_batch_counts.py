from __future__ import annotations

import pytest

from streaming_app.stream.batch_counts import all_phases


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
