"""What the rules see of a group: who keeps it from being Stable, times without a wrong clock, places in a flood."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import (
    GroupSnapshot,
    Versions,
    awaited_members,
    changed,
    describe_obligation,
    group_snapshot,
    ranks,
    select,
)
from tests.groups.records import FIRST_JOIN, GROUP, M1, M2, at, current, fold, log, member
from tests.support.healthy_group import healthy_group

_UNREVOKED, _UNRELEASED = 2, 3
_BEHIND = [(at(5), 19, M2, member()), (at(5), 20, GROUP, {"assignment_epoch": 3, "assignment_timestamp": 0})]


def row_of(*steps: tuple[Any, int, Any, Any]) -> dict[str, Any]:
    """Return the row of a group with two members after a new assignment and `steps`."""
    records = log(*FIRST_JOIN, *_BEHIND, *steps)
    return to_row("c", fold(records).group) | {"state": "Reconciling"}


def test_members_are_named_with_the_tasks_that_others_wait_for() -> None:
    revoking = (at(6), 22, M1, current(3, _UNREVOKED, active=[0], pending=[1]))
    waiting = (at(7), 22, M2, current(3, _UNRELEASED))
    snapshot = group_snapshot(row_of(revoking, waiting))
    assert snapshot.unsettled_count == 2
    assert [(one.member_id, one.state, one.tasks) for one in snapshot.unsettled] == [
        ("m1", "UNREVOKED_TASKS", ("0_1",)),
        ("m2", "UNRELEASED_TASKS", ()),
    ]
    assert [one.member_id for one in awaited_members(snapshot)] == ["m1"]
    assert describe_obligation(snapshot.unsettled[0]) == "has not revoked task 0_1"


def test_members_that_are_waited_for_come_by_what_they_owe_by_time_and_by_id() -> None:
    row = row_of(
        (at(6), 22, M1, current(3, _UNREVOKED, pending=[1])),
        (at(7), 22, M2, current(3, _UNREVOKED, pending=[1])),
        *((None, 22, {**GROUP, "member_id": f"m{n}"}, current(3, _UNREVOKED, pending=[1])) for n in (4, 3)),
        (at(5), 22, {**GROUP, "member_id": "m0"}, current(3, _UNRELEASED)),
    )
    assert [one.member_id for one in group_snapshot(row).unsettled] == ["m3", "m4", "m1", "m2", "m0"]


NOW = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)


def group(group_id: str, *, hours: float) -> GroupSnapshot:
    return replace(healthy_group(NOW - timedelta(hours=hours)), group_id=group_id)


KNOWN = [group(f"payments-{number}", hours=48 + number) for number in range(20)]
FLOOD = [group(f"!{number:04}", hours=1 - number / 10_000) for number in range(1_000)]
NEW = [group(f"new-{number}", hours=0.1) for number in range(3)]


def test_groups_are_taken_by_age_and_those_without_a_time_are_the_oldest() -> None:
    undated = replace(group("z", hours=1), first_seen_at=None)
    old = [group(f"old-{number}", hours=100 - number) for number in range(5)]
    assert [one.group_id for one in select([*old, undated], 3)] == ["z", "old-0", "old-1"]


def test_only_newcomers_have_a_rank_the_oldest_the_first() -> None:
    groups = {one.group_id: one for one in (*NEW, *KNOWN, *FLOOD)}
    found = ranks(groups, groups, NOW)
    assert "payments-0" not in found
    assert [found[one] for one in ("!0000", "!0999", "new-0", "new-2")] == [1, 1_000, 1_001, 1_003]


keys = st.sampled_from("abcdef")


@given(st.lists(st.tuples(st.dictionaries(keys, st.integers()), st.sets(keys)), max_size=30), st.data())
def test_what_changed_between_two_versions_is_what_a_comparison_finds(
    steps: list[tuple[dict[str, int], set[str]]], data: st.DataObject
) -> None:
    found = [Versions[object]({"a": object()})]
    for changes, removed in steps:
        found.append(found[-1].after({key: [value] for key, value in changes.items()}, removed))
    first, last = sorted(data.draw(st.tuples(*(st.integers(0, len(steps)),) * 2)))
    before, now = found[first], found[last]
    assert sorted(changed(before, now)) == sorted(changed(dict(before), dict(now)))
    assert sorted(changed(now, before)) == sorted(changed(dict(now), dict(before)))


class _Unread(Versions[int]):
    def items(self) -> NoReturn:
        raise AssertionError("nobody compares all")


def test_a_version_is_compared_with_recent_ones_without_reading_all_of_it() -> None:
    before = now = _Unread(dict.fromkeys("abc", 0))
    for number in range(10):
        now = now.after({"b": number}, ["c"])
    assert list(changed(before, now)) == ["b", "c"]
    with pytest.raises(AssertionError):
        list(changed(dict(before), now))
    with pytest.raises(TypeError):
        now["a"] = 1
