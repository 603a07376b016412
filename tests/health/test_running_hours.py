"""When an application is meant to run, as declared: outside of it nothing is wrong if nobody runs it."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

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


def test_a_restart_before_its_hours_begin_takes_no_time_from_a_group_of_which_nothing_is_known() -> None:
    settings, restarted = replace(DEFAULTS, running_hours=(OFFICE,)), at("06:50", 1)
    before = Verdict(OFF, at("17:02"), at("17:02"), "It is not meant to run.", facts_at=at("06:49", 1))
    board, found = Board(lambda _group: settings, {"payments": before}), []
    snapshot = group("Empty", at("17:02"), first_seen_at=at("12:00"))
    for minutes in range(30):
        changes = board.step(Known({"payments": snapshot}, work=None), restarted + timedelta(minutes=minutes))
        found += [change.verdict.at for change in changes if change.verdict.verdict == DOWN]
    assert found == [at("07:15", 1)]


def test_a_job_that_starts_after_the_hours_tells_of_a_group_that_did_not_run_in_them() -> None:
    settings, started = replace(DEFAULTS, running_hours=(OFFICE,)), at("17:30", 1)
    board, found = Board(lambda _group: settings, {}), list[Verdict]()
    snapshot = group("Empty", at("17:00"), first_seen_at=at("12:00"))
    for minutes in range(30):
        changes = board.step(Known({"payments": snapshot}, work=None), started + timedelta(minutes=minutes))
        found += [change.verdict for change in changes if change.verdict.verdict == DOWN]
    assert [(one.since, one.at) for one in found] == [(at("07:00", 1), at("17:45", 1))]
