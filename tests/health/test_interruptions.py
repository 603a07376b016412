"""Spells of processing and of not processing, joined to outages; and members that flap."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.health.history import MemberChange, StateChange
from streaming_app.health.interruptions import Outage, current_outage, joins_and_members, short_stays

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


def test_an_earlier_outage_that_is_over_does_not_count() -> None:
    later = [(1000 + second, state) for second, state in CRASH]
    found = outage(states(*CRASH[:4], *later), 1621)
    assert found is not None
    assert (found.since, found.starts) == (at(1000), 2)


def test_a_group_that_is_empty_for_long_is_not_being_started() -> None:
    assert outage(states((0, "Empty")), 600) is not None
    assert outage(states((0, "Empty")), 601) is None
    assert outage(states((0, "Empty"), (900, "Assigning")), 901) is not None  # the next start may fail, too


def test_an_outage_goes_on_when_the_group_is_deleted_and_comes_back() -> None:
    deleted = states((0, "Empty"), (20, "Dead"), (40, "NotReady"), (50, "Empty"), (60, "Dead"), (62, "NotReady"))
    found = outage(deleted, 65)
    assert found is not None
    assert (found.since, found.starts) == (at(0), 2)
    assert found.down == {"Empty": timedelta(seconds=52), "NotReady": timedelta(seconds=10)}
    assert outage(states((0, "Empty"), (300, "Dead")), 601) is None


def test_not_ready_and_empty_in_turn_are_one_outage_with_the_time_in_each() -> None:
    found = outage(states((0, "NotReady"), (10, "Empty"), (30, "NotReady"), (40, "Empty"), (80, "NotReady")), 85)
    assert found is not None
    assert (found.starts, found.processed) == (2, timedelta(0))
    assert found.down == {"Empty": timedelta(seconds=60), "NotReady": timedelta(seconds=20)}


def test_assigning_is_what_the_group_did_before() -> None:
    assert outage(states((0, "Assigning"), (5, "Stable")), 6) is None
    found = outage(states((0, "Assigning"), (3, "Empty"), (20, "Assigning"), first="Empty"), 30)
    assert found is not None
    assert found.processed == timedelta(0)


def test_a_group_that_was_deleted_for_good_has_no_outage() -> None:
    assert outage(states((0, "Empty"), (5, "Dead")), 605) is None
    assert outage([], 6) is None


def members(*stays: tuple[str, str, float, float | None]) -> list[MemberChange]:
    """Return the changes of members (id, place, joined, left)."""
    joins = [(joined, True, member, place) for member, place, joined, _ in stays]
    leaves = [(left, False, member, place) for member, place, _, left in stays if left is not None]
    ordered = sorted((*joins, *leaves), key=lambda one: (one[0], one[1]))
    return [
        MemberChange(at(second), n, member, joined, place) for n, (second, joined, member, place) in enumerate(ordered)
    ]


def counts(changes: list[MemberChange], since: float = 0) -> dict[str, int]:
    return {place: one.number for place, one in short_stays(changes, at(since), timedelta(minutes=15)).items()}


def test_stays_that_follow_one_another_in_one_place_are_counted() -> None:
    assert counts(members(("a", "h", 0, 20), ("b", "h", 30, 50), ("c", "h", 60, 80), ("d", "h", 90, None))) == {"h": 3}


def test_threads_of_one_process_and_instances_of_one_host_that_leave_together_count_once() -> None:
    assert counts(members(*((f"m{n}", "h", n, 300 + n) for n in range(50)))) == {"h": 1}


def test_stays_that_last_or_that_ended_before_the_window_do_not_count() -> None:
    assert counts(members(("a", "h", 0, 900), ("b", "h", 1000, 1100))) == {"h": 1}
    assert counts(members(("a", "h", 0, 20), ("b", "h", 30, 50)), since=40) == {"h": 1}


def test_a_member_that_comes_back_under_its_id_has_a_new_stay() -> None:
    assert counts(members(("a", "h", 0, 60), ("a", "h", 100, 160))) == {"h": 2}


def test_joins_are_compared_with_the_most_members_that_the_group_had() -> None:
    changes = members(*((f"m{n}", f"h{n}", n * 10, n * 10 + 5) for n in range(20)))
    assert joins_and_members(changes, at(0), 0) == (20, 1)
    assert joins_and_members(changes, at(100), 3) == (10, 4)
    assert joins_and_members([], at(0), 0) == (0, 1)
