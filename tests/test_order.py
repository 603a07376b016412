"""The order of the tests: see `tests/order.py`."""

from __future__ import annotations

import pytest

from tests.order import merge

SESSION, SLOW, FAST = ["a", "b"], ["k", "l", "m"], list("12345678")


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_the_second_process_begins_with_slow_tests_that_need_no_spark_session(processes: int) -> None:
    ordered = merge(SESSION, SLOW, FAST, processes)
    assert sorted(ordered) == sorted([*SESSION, *SLOW, *FAST])
    assert ordered[:2] == SESSION
    assert ordered[len(ordered) // processes :][:3] == SLOW


def test_one_process_runs_the_slow_tests_first() -> None:
    assert merge(SESSION, SLOW, FAST, 1) == [*SESSION, *SLOW, *FAST]


def test_more_session_tests_than_a_half_stay_together() -> None:
    assert merge(list("abcdefgh"), ["k"], ["1"], 2) == [*"abcdefgh", "k", "1"]
