from __future__ import annotations

from collections.abc import Callable

import pytest

from streaming_app.checks.brokers import judge_clock, sample_clock
from streaming_app.checks.result import OK, SKIPPED, WARNING


class Time:
    """A clock that only goes on when it is slept by."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def sample(newest: Callable[[float], float | None]) -> tuple[float | None, float, float | None]:
    time = Time()
    return sample_clock(lambda: newest(time.seconds), time.now, time.sleep)


@pytest.mark.parametrize(("offset", "status"), [(0, OK), (4, OK), (-4, OK), (60, WARNING), (-60, WARNING)])
def test_while_records_are_written_both_directions_are_found(offset: float, status: str) -> None:
    result = judge_clock(*sample(lambda now: int(now) + offset))
    assert result.status == status
    assert offset <= 4 or f"{offset - 1} s ahead" in result.text or f"{offset} s ahead" in result.text
    assert offset >= -4 or "behind this machine's" in result.text


def test_without_new_records_only_a_clock_that_is_ahead_is_found() -> None:
    assert judge_clock(*sample(lambda _: 5000.0)).status == WARNING
    quiet = judge_clock(*sample(lambda _: 400.0))
    assert quiet.status == OK
    assert "nothing was written for 602 s" in quiet.text


def test_a_topic_without_records_says_nothing_about_clocks() -> None:
    assert judge_clock(*sample(lambda _: None)).status == SKIPPED
