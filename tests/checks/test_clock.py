from __future__ import annotations

from collections.abc import Callable

import pytest

from streaming_app.checks.brokers import judge_clock, sample_clock
from streaming_app.checks.result import OK, SKIPPED, WARNING, Result


def judged(newest: Callable[[float], float | None]) -> Result:
    """Judge a clock that only goes on when it is slept by."""
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return judge_clock(*sample_clock(lambda: newest(now[0]), lambda: now[0], sleep))


@pytest.mark.parametrize(
    ("newest", "status", "text"),
    [
        (lambda now: int(now) + 4, OK, ""),
        (lambda now: int(now) - 4, OK, ""),
        (lambda now: int(now) + 60, WARNING, " s ahead"),
        (lambda now: int(now) - 60, WARNING, "behind this machine's"),
        (lambda _: 5000.0, WARNING, ""),
        (lambda _: 400.0, OK, "nothing was written for 602 s"),
        (lambda _: None, SKIPPED, ""),
    ],
    ids=["a little ahead", "a little behind", "ahead", "behind", "quiet and ahead", "quiet and behind", "no records"],
)
def test_a_clock_is_judged_by_the_newest_record(
    newest: Callable[[float], float | None], status: str, text: str
) -> None:
    result = judged(newest)
    assert result.status == status
    assert text in result.text
