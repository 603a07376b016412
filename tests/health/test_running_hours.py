"""When an application is meant to run, as declared: outside of it nothing is wrong if nobody runs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from streaming_app.health.board import Board, Known
from streaming_app.health.facts import DEFAULTS
from streaming_app.health.time_intervals import TimeInterval, contain
from streaming_app.health.verdict import DOWN, OFF, UNKNOWN, Verdict
from tests.support.health_harness import group, waiting

OFFICE = TimeInterval(times=[(480, 1080)], weekdays=[(1, 5)], location=ZoneInfo("Europe/Berlin"))  # 07:00 to 17:00 UTC
MONDAY = datetime(2026, 11, 23, tzinfo=timezone.utc)


def at(text: str, days: int = 0) -> datetime:
    hour, minute = map(int, text.split(":"))
    return MONDAY + timedelta(days=days, hours=hour, minutes=minute)


def verdicts(empty_since: datetime, step: timedelta, until: datetime) -> list[tuple[str, datetime]]:
    """Return the verdicts on a group that nobody runs any more, for which work waits all the time."""
    settings = replace(DEFAULTS, running_hours=(OFFICE,))
    board, now, found = Board(lambda _group: settings), empty_since, []
    snapshot = group("Empty", empty_since, first_seen_at=empty_since - timedelta(days=30))
    while now <= until:
        work = waiting(empty_since + timedelta(seconds=20), now)
        changes = board.step(Known({"payments": snapshot}, work={"payments": work}), now)
        found += [(change.verdict.verdict, change.verdict.at) for change in changes]
        now += step
    return [one for number, one in enumerate(found) if not number or one[0] != found[number - 1][0]]


@pytest.mark.parametrize("minutes", [1, 2])  # of facts that are older it is not known whether work waits
@pytest.mark.parametrize(
    ("empty_since", "down_at"),
    [
        (at("17:02"), at("07:05", 1)),  # it ended after its time, and does not come back in the morning
        (at("12:00"), at("12:05") + timedelta(seconds=20)),  # it died in its time
        (at("16:58"), at("07:05", 1)),
        (at("17:02", 4), at("07:05", 7)),  # Friday
    ],
)
def test_outside_its_running_hours_a_group_without_members_is_off_and_in_it_down(
    empty_since: datetime, down_at: datetime, minutes: int
) -> None:
    step = timedelta(minutes=minutes)
    found = verdicts(empty_since, step, down_at + 2 * step)
    assert found[-1] == (DOWN, down_at)
    assert {(name, contain((OFFICE,), since)) for name, since in found[:-1]} <= {(OFF, False), (UNKNOWN, True)}


def test_a_restart_before_its_hours_begin_takes_no_time_from_a_group_of_which_nothing_is_known() -> None:
    settings, restarted = replace(DEFAULTS, running_hours=(OFFICE,)), at("06:50", 1)
    before = Verdict(OFF, at("17:02"), at("17:02"), "It is not meant to run.", facts_at=at("06:49", 1))
    board, found = Board(lambda _group: settings, {"payments": before}), []
    snapshot = group("Empty", at("17:02"), first_seen_at=at("12:00"))
    for minutes in range(30):
        changes = board.step(Known({"payments": snapshot}, work=None), restarted + timedelta(minutes=minutes))
        found += [change.verdict.at for change in changes if change.verdict.verdict == DOWN]
    assert found == [at("07:15", 1)]
