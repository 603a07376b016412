"""When a check is due, and which differences count: every case as a row."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.checks.compare import Difference
from streaming_app.checks.schedule import (
    Schedule,
    Step,
    by_group,
    is_ready,
    lasting,
    with_agreement,
    with_lasting,
)
from streaming_app.job_status import DifferingGroup, JobStatus

NOW = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
HOUR = 3600.0
NEW = Schedule(HOUR)
STATE, EPOCH = Difference("g", "state", "Empty", "Stable"), Difference("g", "group_epoch", 3, 4)
CHECKED = NEW.after_all(1_000.0, start=0, differing={})
DIFFERED = NEW.after_all(1_000.0, start=0, differing={"g": (STATE,)})
FAILED = NEW.after_failure(1_000.0, start=0)


DUE = {
    "not at the end of the topic yet": (NEW, 0.0, 0, False, Step.WAIT),
    "at the end of the topic": (NEW, 0.0, 0, True, Step.COMPARE_ALL),
    "nearly an hour later": (CHECKED, 4_599.0, 0, True, Step.WAIT),
    "an hour later": (CHECKED, 4_600.0, 0, True, Step.COMPARE_ALL),
    "the stream has started again": (CHECKED, 1_001.0, 1, True, Step.COMPARE_ALL),
    "differed, less than a minute ago": (DIFFERED, 1_059.0, 0, True, Step.WAIT),
    "differed a minute ago": (DIFFERED, 1_060.0, 0, True, Step.CONFIRM),
    "differed before a long absence": (DIFFERED, 9_000.0, 1, True, Step.CONFIRM),
    "confirmed": (DIFFERED.after_confirmation(), 1_060.0, 0, True, Step.WAIT),
    "an hour after a confirmed difference": (DIFFERED.after_confirmation(), 4_600.0, 0, True, Step.COMPARE_ALL),
    "failed": (FAILED, 4_599.0, 0, True, Step.WAIT),
    "failed an hour ago": (FAILED, 4_600.0, 0, True, Step.COMPARE_ALL),
}


@pytest.mark.parametrize(("schedule", "now", "start", "ready", "step"), DUE.values(), ids=DUE)
def test_what_is_due(schedule: Schedule, now: float, start: int, ready: bool, step: Step) -> None:
    assert schedule.next_step(now, start=start, is_ready=ready) is step


@pytest.mark.parametrize(
    ("changes", "ready"),
    [
        ({}, True),
        ({"caught_up": False}, False),
        ({"behind": 1}, False),
        ({"failing_since": NOW}, False),
        ({"brokers_away_since": NOW}, False),
    ],
    ids=str,
)
def test_a_check_needs_a_job_that_is_at_the_end_of_the_topic(changes: dict[str, Any], ready: bool) -> None:
    assert is_ready(replace(JobStatus(NOW, caught_up=True), **changes)) is ready


def difference(group_id: str, field: str) -> Difference:
    return Difference(group_id, field, 1, 2)


TWICE = {
    "equal again": (["a state"], [], {}),
    "differs only now": ([], ["a state"], {}),
    "lasts": (["a state"], ["a state"], {"a": ["state"]}),
    "another field": (["a state"], ["a group_epoch"], {}),
    "another group": (["a state"], ["b state"], {}),
    "one of the fields": (
        ["a state", "a members[m]"],
        ["a group_epoch", "a members[m]"],
        {"a": ["group_epoch", "members[m]"]},
    ),
}


@pytest.mark.parametrize(("first", "second", "found"), TWICE.values(), ids=TWICE)
def test_a_difference_lasts_if_the_same_field_differs_twice(
    first: list[str], second: list[str], found: dict[str, list[str]]
) -> None:
    checks = [by_group(difference(*one.split()) for one in check) for check in (first, second)]
    fields = {group: [one.field for one in differences] for group, differences in lasting(*checks).items()}
    assert fields == found


def test_a_group_that_still_differs_keeps_its_time_and_one_that_differs_again_gets_a_new_one() -> None:
    known = with_lasting((), by_group([STATE]), NOW)
    later = NOW + timedelta(hours=1)
    (still,) = with_lasting(known, by_group([EPOCH]), later)
    assert still == DifferingGroup("g", NOW, 1, (("group_epoch", "3 in the tables, 4 on the broker"),))
    (again,) = with_lasting(with_agreement(known, {"g"}, NOW), by_group([EPOCH]), later)
    assert again.since == later
    assert again.agreed_at is None


def test_only_groups_that_were_compared_and_agreed_count_as_agreeing() -> None:
    known = with_lasting((), by_group([STATE, difference("h", "state")]), NOW)
    agreed = with_agreement(known, {"g", "never reported"}, NOW)
    assert {group.group_id: group.agreed_at for group in agreed} == {"g": NOW, "h": None}
    assert with_agreement(agreed, {"g"}, NOW + timedelta(hours=1)) == agreed
