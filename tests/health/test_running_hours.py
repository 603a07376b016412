"""When an application is meant to run, as declared: outside of it nothing is wrong if nobody runs it."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from streaming_app.health.board import Board, Known
from streaming_app.health.facts import DEFAULTS
from streaming_app.health.time_intervals import TimeInterval
from streaming_app.health.verdict import DOWN, OFF, Verdict
from tests.support.health_harness import group

OFFICE = TimeInterval(times=[(480, 1080)], weekdays=[(1, 5)], location=ZoneInfo("Europe/Berlin"))  # 07:00 to 17:00 UTC
MONDAY = datetime(2026, 11, 23, tzinfo=timezone.utc)


def at(text: str, days: int = 0) -> datetime:
    hour, minute = map(int, text.split(":"))
    return MONDAY + timedelta(days=days, hours=hour, minutes=minute)


BEFORE = Verdict(OFF, at("17:02"), at("17:02"), "It is not meant to run.", facts_at=at("06:49", 1))


@pytest.mark.parametrize(
    ("stored", "ended", "started", "down"),
    [
        pytest.param({"payments": BEFORE}, "17:02", "06:50", "07:15", id="restarted before its hours"),
        pytest.param({}, "17:00", "17:30", "17:45", id="started after hours in which it did not run"),
    ],
)
def test_a_start_of_the_job_takes_no_time_from_a_group_of_which_nothing_is_known(
    stored: dict[str, Verdict], ended: str, started: str, down: str
) -> None:
    settings, found = replace(DEFAULTS, running_hours=(OFFICE,)), list[Verdict]()
    board, snapshot = Board(lambda _group: settings, stored), group("Empty", at(ended), first_seen_at=at("12:00"))
    for minutes in range(30):
        changes = board.step(Known({"payments": snapshot}, work=None), at(started, 1) + timedelta(minutes=minutes))
        found += [change.verdict for change in changes if change.verdict.verdict == DOWN]
    assert [(one.since, one.at) for one in found] == [(at("07:00", 1), at(down, 1))]
