"""Times of a broker whose clock is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.groups.clock import WrittenBetween, correct_snapshot
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
BOUNDS = WrittenBetween(NOW - timedelta(seconds=5), NOW)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("written", "corrected"),
    [
        (NOW - HOUR, NOW - timedelta(seconds=5)),
        (NOW + HOUR, NOW),
        (NOW - timedelta(seconds=3), NOW - timedelta(seconds=3)),
        (NOW - timedelta(seconds=100), NOW - timedelta(seconds=100)),  # a slow batch, not a wrong clock
        (NOW + timedelta(seconds=100), NOW + timedelta(seconds=100)),
    ],
)
def test_a_time_at_which_nothing_can_have_been_written_is_moved_to_the_nearest_one(
    written: datetime, corrected: datetime
) -> None:
    assert BOUNDS.correct(written) == corrected


def test_without_an_earliest_time_only_times_ahead_are_corrected() -> None:
    unbounded = WrittenBetween(None, NOW)
    assert unbounded.correct(NOW - 999 * HOUR) == NOW - 999 * HOUR
    assert unbounded.correct(NOW + HOUR) == NOW


def test_a_time_keeps_its_correction_until_the_broker_writes_another_one() -> None:
    before = healthy_group(NOW - 30 * HOUR)
    emptied = replace(before, state="Empty", state_since=NOW - HOUR, updated_at=NOW - HOUR)
    first = correct_snapshot(emptied, before, BOUNDS)
    assert first.state_since == NOW - timedelta(seconds=5)
    assert first.description_since == NOW - 30 * HOUR  # not written now, so not corrected
    later = WrittenBetween(NOW + HOUR, NOW + HOUR)
    again = correct_snapshot(replace(emptied, updated_at=NOW), first, later)
    assert (again.state_since, again.updated_at) == (NOW - timedelta(seconds=5), NOW + HOUR)
