"""Spells of processing and of not processing, joined to outages; what follows of them is in `test_verdict.py`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.health.history import StateChange
from streaming_app.health.interruptions import Outage, current_outage

START = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
UPTIME, GAP = timedelta(minutes=8), timedelta(minutes=10)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def states(*changes: tuple[float, str], first: str | None = "Stable") -> list[StateChange]:
    olds = [first, *(state for _, state in changes)]
    return [StateChange(at(second), n, olds[n], state) for n, (second, state) in enumerate(changes)]


def outage(changes: list[StateChange], now: float) -> Outage | None:
    return current_outage(changes, at(now), uptime=UPTIME, gap=GAP)


CRASH = ((0, "Empty"), (300, "Assigning"), (303, "Reconciling"), (304, "Stable"), (320, "Empty"), (620, "Assigning"))


def test_short_spells_of_processing_are_part_of_the_outage() -> None:
    found = outage(states(*CRASH), 621)
    assert found is not None
    assert (found.since, found.starts) == (at(0), 2)
    assert (found.lasted, found.processed) == (timedelta(seconds=620), timedelta(seconds=17))
    assert found.down == {"Empty": timedelta(seconds=600)}
    assert round(found.processed_share, 3) == 0.027


@pytest.mark.parametrize(("now", "is_over"), [(304 + 470, False), (303 + 480, True)])
def test_an_outage_is_over_once_the_group_has_processed_for_long_enough(now: float, *, is_over: bool) -> None:
    assert (outage(states(*CRASH[:4]), now) is None) == is_over


def test_a_group_that_is_empty_for_long_is_not_being_started() -> None:
    assert outage(states((0, "Empty")), 600) is not None
    assert outage(states((0, "Empty")), 601) is None
    assert outage(states((0, "Empty"), (900, "Assigning")), 901) is not None  # the next start may fail, too
