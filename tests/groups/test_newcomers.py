"""A flood of new groups takes nothing from groups that were known before, and little from new ones of other hosts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.groups.newcomers import common_prefix, in_turns, ranks, select, survey_newcomers
from streaming_app.groups.snapshot import GroupSnapshot
from tests.alerts.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


def group(group_id: str, *, hours: float, host: str | None = "/10.0.0.1") -> GroupSnapshot:
    seen = NOW - timedelta(hours=hours)
    return replace(healthy_group(seen), group_id=group_id, client_host=host)


KNOWN = [group(f"payments-{number}", hours=48 + number) for number in range(20)]
FLOOD = [group(f"!{number:04}", hours=1 - number / 10_000, host="/10.6.6.6") for number in range(1_000)]
NEW = [group(f"new-{number}", hours=0.1) for number in range(3)]


def test_where_there_is_room_all_are_taken() -> None:
    assert select([*KNOWN, *NEW], 23, NOW) == [*KNOWN, *NEW]


def test_groups_known_before_a_flood_keep_their_places_whatever_their_ids_are() -> None:
    chosen = {one.group_id for one in select([*FLOOD, *KNOWN, *NEW], 30, NOW)}
    assert {one.group_id for one in KNOWN} <= chosen
    assert {one.group_id for one in NEW} <= chosen
    assert len(chosen) == 30


def test_newcomers_have_a_tenth_even_where_old_groups_would_fill_all() -> None:
    old = [group(f"old-{number}", hours=48) for number in range(100)]
    chosen = select([*old, *NEW], 50, NOW)
    assert [one.group_id for one in chosen if one in NEW] == [one.group_id for one in NEW]
    assert len(chosen) == 50


def test_old_groups_are_taken_by_age_and_those_without_a_time_are_the_oldest() -> None:
    undated = replace(group("z", hours=1), first_seen_at=None)
    old = [group(f"old-{number}", hours=100 - number) for number in range(5)]
    assert [one.group_id for one in select([*old, undated], 3, NOW)] == ["z", "old-0", "old-1"]


def test_newcomers_are_taken_in_turns_from_each_host() -> None:
    ordered = [one.group_id for one in in_turns([*FLOOD[:4], *NEW])]
    assert ordered[:6] == ["!0000", "new-0", "!0001", "new-1", "!0002", "new-2"]


def test_of_each_host_the_oldest_come_first_in_every_turn() -> None:
    first, second = ([group(f"{host}{n}", hours=9 - n, host=host) for n in range(4)] for host in "ab")
    ordered = [one.group_id for one in in_turns([*second, *reversed(first)])]
    assert ordered == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]


def test_only_newcomers_have_a_rank() -> None:
    groups = {one.group_id: one for one in (*KNOWN, *FLOOD, *NEW)}
    found = ranks(groups, groups, NOW)
    assert "payments-0" not in found
    assert found["new-0"] == 2
    assert found["!0999"] == 1_003


@pytest.mark.parametrize(
    ("ids", "prefix"),
    [
        ([f"!{number:04}" for number in range(1_000)], "!0"),
        ([f"flood-{number}" for number in range(1, 30)], "flood-"),
        (["a", "b"], ""),
        (["flood-1", "flood-2"], "flood-"),
        (["same"] * 5, "same"),
        ([*["evil-1"] * 8, "honest", "other"], "evil-1"),
        (["x" * 30_000] * 3, "x" * 100),
        ([], ""),
    ],
)
def test_the_prefix_that_most_have_in_common(ids: list[str], prefix: str) -> None:
    assert common_prefix(ids) == prefix


def test_a_survey_names_when_it_began_the_prefix_and_the_hosts() -> None:
    found = survey_newcomers([*KNOWN, *FLOOD, *NEW], NOW, 7)
    assert found is not None
    assert (found.count, found.prefix, found.without_alerts) == (1_003, "!0", 7)
    assert found.hosts == {"10.6.6.6": 1_000, "10.0.0.1": 3}
    assert found.since == FLOOD[0].first_seen_at
    assert survey_newcomers(KNOWN, NOW) is None
