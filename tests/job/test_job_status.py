"""Whether the job is live and ready; how long it was away from the end of the topic, and when that is too long."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.job_status import JobStatus, check_liveness, check_readiness, is_gap_too_long, time_away
from streaming_app.stream.job_state import CommittedBatch, JobState

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
ALL_READ = CommittedBatch(seen=1, seconds=0.5, by_type={}, quarantined=0, drifted=0, behind={0: 0})


def status(**fields: datetime | None) -> JobStatus:
    return JobStatus(started_at=NOW, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"caught_up_at": NOW - HOUR}, HOUR),
        ({"read_from_beginning_at": NOW - HOUR}, HOUR),
        ({"caught_up_at": NOW - DAY, "read_from_beginning_at": NOW - HOUR}, HOUR),
        ({"caught_up_at": NOW + timedelta(minutes=1)}, timedelta()),
        ({"caught_up_at": NOW + DAY}, None),
    ],
    ids=["never", "caught up", "began at the beginning", "the later one counts", "clocks differ", "a wrong clock"],
)
def test_the_job_was_away_since_it_was_last_at_the_end_or_began_at_the_beginning(
    fields: dict[str, datetime], expected: timedelta | None
) -> None:
    assert time_away(status(**fields), NOW) == expected


def test_a_running_job_notices_a_gap_but_not_the_time_that_reading_from_the_beginning_took() -> None:
    assert is_gap_too_long(status(caught_up_at=NOW), NOW + DAY + HOUR, DAY)
    assert not is_gap_too_long(status(caught_up_at=NOW), NOW + HOUR, DAY)
    assert not is_gap_too_long(status(caught_up_at=NOW), NOW + timedelta(seconds=5), timedelta(seconds=1))
    assert not is_gap_too_long(status(read_from_beginning_at=NOW), NOW + 2 * DAY, DAY)
    read_again = status(caught_up_at=NOW - DAY, read_from_beginning_at=NOW)
    assert not is_gap_too_long(read_again, NOW + 2 * DAY, DAY)


def test_reaching_the_end_of_the_topic_after_a_gap_that_is_too_long_does_not_hide_the_gap() -> None:
    health = JobState()
    health.restore(status(caught_up_at=NOW))
    health.started_reading(from_beginning=False, tombstone_retention=DAY)
    health.nothing_new(NOW + HOUR)
    assert (health.status.caught_up_at, health.was_away_too_long) == (NOW + HOUR, False)
    health.batch_done(ALL_READ, NOW + HOUR + 2 * DAY)
    health.nothing_new(NOW + HOUR + 2 * DAY + timedelta(seconds=2))
    assert (health.status.caught_up_at, health.was_away_too_long) == (NOW + HOUR, True)


def test_reading_from_the_beginning_ends_the_absence_and_the_job_has_not_caught_up_meanwhile() -> None:
    health = JobState()
    health.started_reading(from_beginning=False, tombstone_retention=DAY)
    health.nothing_new(NOW - 10 * DAY)
    health.nothing_new(NOW)
    assert (health.was_away_too_long, health.status.caught_up) == (True, True)
    health.started_reading(from_beginning=True, tombstone_retention=DAY)
    assert (health.was_away_too_long, health.status.caught_up) == (False, False)
    later = datetime.now(timezone.utc) + timedelta(seconds=1)
    health.batch_done(ALL_READ, later)
    assert (health.status.caught_up_at, health.status.caught_up) == (later, True)


def test_tombstones_may_be_removed_while_a_batch_is_read() -> None:
    now = datetime.now(timezone.utc)
    health = JobState()
    health.restore(status(caught_up_at=now - timedelta(seconds=30)))
    health.started_reading(from_beginning=False, tombstone_retention=timedelta(seconds=20))
    health.batch_done(ALL_READ, began_at=now - timedelta(seconds=15))
    assert health.was_away_too_long


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


RUNNING = {"started_at": ago(hours=1), "last_success_at": ago(seconds=1), "caught_up": True}


@pytest.mark.parametrize(
    ("fields", "is_live", "is_ready", "reason"),
    [
        ({}, True, True, "caught up"),
        ({"caught_up": False, "behind": 1_500_000}, True, False, "not caught up with the topic yet: 1,500,000"),
        ({"behind": 7, "behind_since": ago(seconds=59)}, True, True, "caught up"),
        ({"behind": 1, "behind_since": ago(seconds=61)}, True, False, "1 offset behind since"),
        ({"brokers_away_since": ago(hours=9)}, True, False, "no broker has answered since"),
        ({"failing_since": ago(seconds=1), "failure": "disk full"}, True, False, "disk full"),
        ({"failing_since": ago(hours=9), "failure": "x", "brokers_away_since": ago(hours=8)}, True, False, "no broker"),
        ({"last_success_at": ago(minutes=14)}, True, True, "caught up"),
        ({"last_success_at": ago(minutes=16)}, False, False, "the stream has made no progress since"),
        ({"last_success_at": None, "caught_up": False}, False, False, "the stream has made no progress since"),
        ({"last_success_at": ago(hours=3), "progress_at": ago(minutes=14)}, True, True, "caught up"),
        ({"topic_missing_since": ago(hours=9)}, True, False, "there has been no such topic since"),
        ({"evaluated_at": ago(minutes=14)}, True, True, "caught up"),
        ({"evaluated_at": ago(minutes=16)}, False, False, "no alert has been evaluated since"),
        ({"last_success_at": None, "caught_up": False, "started_at": ago(minutes=2)}, True, False, "not caught up"),
    ],
)
def test_liveness_and_readiness_differ(fields: dict[str, Any], reason: str, *, is_live: bool, is_ready: bool) -> None:
    job = JobStatus(**{**RUNNING, **fields})
    assert check_liveness(job, NOW).ok == is_live
    assert check_readiness(job, NOW).ok == is_ready
    assert reason in check_readiness(job, NOW).reason
