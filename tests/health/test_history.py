"""What is kept of the events of a group, for how long, and what happens to events that come twice or are retracted."""

from datetime import timedelta
from typing import Any

import pytest

from streaming_app.health.group_history import REASONS_KEPT_FOR, WINDOW, GroupHistories, GroupHistory
from tests.support.health_harness import NOW


def event(
    kind: str, minutes: float, offset: int, old: str | None = None, new: str | None = None, **more: Any
) -> dict[str, Any]:
    nulls = dict.fromkeys(("member_id", "cause", "client_host", "instance_id"))
    at = NOW + timedelta(minutes=minutes)
    return nulls | {"at": at, "kind": kind, "offset": offset, "old": old, "new": new} | more


def histories(*events: dict[str, Any]) -> GroupHistories:
    kept = GroupHistories()
    for one in events:
        kept.add("g", one, NOW)
    return kept


def history(*events: dict[str, Any]) -> GroupHistory:
    return histories(*events).groups().get("g", GroupHistory())


def test_an_event_that_comes_twice_is_kept_once_and_those_of_one_operation_are_kept_apart() -> None:
    left = [event("member_left", -1, 7, "client", None, member_id=name) for name in "ab"]
    kept = histories(*left, *left)
    assert [one.member_id for one in kept.groups()["g"].members] == ["a", "b"]
    assert not kept.add("g", left[0], NOW)
    assert kept.add("g", left[0] | {"offset": 8}, NOW)


def test_a_clock_that_goes_back_gives_no_spell_of_negative_length() -> None:
    changes = [
        event("state", -120, 1, "A", "B"),
        event("state", -3, 2, "Stable", "Empty"),
        event("state", -50, 3, "C", "D"),
    ]
    assert [one.at for one in history(*changes).states] == [
        NOW - WINDOW,
        NOW - timedelta(minutes=3),
        NOW - timedelta(minutes=3),
    ]


def test_an_event_that_is_retracted_is_removed_and_one_that_was_never_added_is_ignored() -> None:
    kept = histories(event("state", -3, 1, "Stable", "Empty"))
    kept.retract("g", event("state", -3, 2))
    kept.retract("other", event("state", -3, 1))
    kept.retract("g", event("topology", -3, 1))
    assert len(kept.groups()["g"].states) == 1
    kept.retract("g", event("state", -3, 1))
    assert not any(kept.groups()["g"])


@pytest.mark.parametrize(
    ("one", "is_kept"),
    [
        (event("state", -121, 1, "Stable", "Empty"), False),
        (event("assignment_epoch", -119, 1, "1", "2"), True),
        (event("member_left", -119, 1, "client"), True),
        (event("not_ready_reason", -121, 1, None, "why"), True),
    ],
    ids=lambda one: one if isinstance(one, bool) else f"{one['kind']} {one['at']:%H:%M}",
)
def test_an_event_is_added_if_it_would_be_kept(one: dict[str, Any], is_kept: bool) -> None:
    assert any(history(one)) == is_kept


def test_why_a_group_was_not_ready_is_kept_for_days() -> None:
    kept = histories(event("state", 0, 1, "NotReady", "Empty"), event("not_ready_reason", 0, 2, None, "why"))
    kept.prune({"g"}, NOW + REASONS_KEPT_FOR)
    assert kept.groups()["g"].states == ()
    assert [one.new for one in kept.groups()["g"].reasons] == ["why"]
    kept.prune({"g"}, NOW + REASONS_KEPT_FOR + WINDOW)
    assert not kept.groups()


def test_of_a_group_of_thousands_that_is_deleted_the_newest_events_are_kept() -> None:
    kept = GroupHistories()
    left = [event("member_left", -1, 7, "client", None, member_id=f"m{n:05}") for n in range(10_500)]
    assert all(kept.add("g", one, NOW) for one in left)
    newest = [one["member_id"] for one in left[-600:]]
    assert [one.member_id for one in kept.groups()["g"].members] == newest
    assert not any(kept.add("g", one, NOW) for one in left)  # those of which there is no trace are not new, either
