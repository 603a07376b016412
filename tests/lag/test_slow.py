"""Partitions that do not catch up; what the alert about offsets that went back shows is in `tests/alerts`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming_app.lag.model import LagRow
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.work import NO_WORK, GroupWork, group_work
from tests.support.lag_harness import GROUP, TOPIC, at_pass, row, work_of

HOUR, NOW = 3600.0, 1_000_000.0


def follow(*passes: LagRow) -> list[GroupWork]:
    """Return what is known of the group after each of these passes, 30 s apart from `NOW` on."""
    found: list[GroupWork] = []
    standing, before = Standing(row()), row()
    for number, one in enumerate(passes):
        now = NOW + number * 30.0
        since = standing.row.status_since if one.status == before.status else (one.status_since or now)
        standing, before = replace(standing, row=one._replace(status_since=since)), one
        standing._take_speed(now)
        work = group_work(GROUP, [standing], at_pass(now), found[-1] if found else NO_WORK)
        assert work
        found.append(work)
    return found


@pytest.mark.parametrize(("catch_up", "catches_up"), [(6 * HOUR, True), (6 * HOUR + 1, False)])
def test_a_lag_that_takes_more_than_six_hours_is_not_caught_up(catch_up: float, *, catches_up: bool) -> None:
    (found,) = follow(row(status="CATCHING_UP", status_since=NOW - HOUR, catch_up_seconds=catch_up))
    assert found.slow is not None
    assert found.slow.count == 1
    assert found.catches_up is catches_up


@pytest.mark.parametrize(
    ("status", "committed", "is_unknown"), [("UNKNOWN", 90, True), ("UNKNOWN", None, False), ("OK", 90, False)]
)
def test_a_partition_with_a_commit_whose_status_is_not_known_is_remembered(
    status: str, committed: int | None, *, is_unknown: bool
) -> None:
    found = work_of([row(status=status, committed_offset=committed)], NOW)[GROUP]
    assert found.without_status == ({(TOPIC, 0)} if is_unknown else set())
    assert found.may_be_slow is is_unknown


@pytest.mark.parametrize(("seconds", "is_slow"), [(119, False), (120, True)])
@pytest.mark.parametrize("status", ["BEHIND", "CATCHING_UP"])
def test_a_partition_is_slow_after_two_minutes(status: str, seconds: float, *, is_slow: bool) -> None:
    (found,) = follow(row(status=status, status_since=NOW - seconds, catch_up_seconds=None))
    assert (found.slow and found.slow.since) == (NOW - seconds if is_slow else None)
    assert found.may_be_slow is (status == "BEHIND")


def test_a_partition_is_slow_until_it_has_caught_up_for_three_minutes_in_a_row() -> None:
    behind = row(status="BEHIND", status_since=NOW - HOUR)
    falls = behind._replace(status="CATCHING_UP", catch_up_seconds=60.0)
    lags = follow(behind, falls, falls, behind, *[falls] * 7)

    assert [one.catches_up for one in lags] == [False, True, True, False, *[True] * 7]
    assert [one.slow is not None for one in lags] == [True] * 10 + [False]
    assert lags[9].slow is not None
    assert lags[9].slow.since == NOW - HOUR
    again = follow(behind, *[falls] * 7, *[behind] * 5)
    assert [one.slow is not None for one in again] == [True] * 7 + [False] * 4 + [True] * 2


def test_a_lag_whose_fall_is_held_in_a_rebalance_catches_up() -> None:
    held = row(status="CATCHING_UP", status_since=NOW - HOUR, catch_up_seconds=None, held_since=NOW - 30)
    (found,) = follow(held)
    assert (found.catches_up, found.is_held) == (True, True)
