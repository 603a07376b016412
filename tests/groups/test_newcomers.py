"""A flood of new groups takes nothing from groups that were there before."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from streaming_app.groups.snapshot import GroupSnapshot, ranks, select
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


def group(group_id: str, *, hours: float) -> GroupSnapshot:
    return replace(healthy_group(NOW - timedelta(hours=hours)), group_id=group_id)


KNOWN = [group(f"payments-{number}", hours=48 + number) for number in range(20)]
FLOOD = [group(f"!{number:04}", hours=1 - number / 10_000) for number in range(1_000)]
NEW = [group(f"new-{number}", hours=0.1) for number in range(3)]


def test_where_there_is_room_all_are_taken() -> None:
    assert select([*KNOWN, *NEW], 23) == [*KNOWN, *NEW]


def test_groups_known_before_a_flood_keep_their_places_whatever_their_ids_are() -> None:
    chosen = [one.group_id for one in select([*FLOOD, *NEW, *KNOWN], 30)]
    assert set(chosen[:20]) == {one.group_id for one in KNOWN}
    assert chosen[20:] == [f"!{number:04}" for number in range(10)]


def test_groups_are_taken_by_age_and_those_without_a_time_are_the_oldest() -> None:
    undated = replace(group("z", hours=1), first_seen_at=None)
    old = [group(f"old-{number}", hours=100 - number) for number in range(5)]
    assert [one.group_id for one in select([*old, undated], 3)] == ["z", "old-0", "old-1"]


def test_only_newcomers_have_a_rank_the_oldest_the_first() -> None:
    groups = {one.group_id: one for one in (*NEW, *KNOWN, *FLOOD)}
    found = ranks(groups, groups, NOW)
    assert "payments-0" not in found
    assert [found[one] for one in ("!0000", "!0999", "new-0", "new-2")] == [1, 1_000, 1_001, 1_003]
