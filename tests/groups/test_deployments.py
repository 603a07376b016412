"""The event `deployment`: every member replaced in a short time, or another topology, and nothing else."""

from typing import Any

from tests.groups.records import GROUP, TOPOLOGY, at, fold, member
from tests.groups.test_fold_properties import log_of

MINUTE = 60


def _member(second: float, name: str, *, joins: bool = True) -> tuple[float, tuple[int, Any, Any]]:
    return second, (19, {**GROUP, "member_id": name}, member() if joins else None)


def _deployments(*steps: tuple[float, tuple[int, Any, Any]]) -> list[tuple[Any, ...]]:
    events = fold(log_of(sorted(steps, key=lambda one: one[0]))).events
    return [(one.at, one.old, one.new) for one in events if one.kind == "deployment"]


def _roll(members: int, begin: float, every: float, away: float, version: int = 1) -> list[Any]:
    return [
        one
        for n in range(members)
        for one in (
            _member(begin + n * every, f"m{n}-{version - 1}", joins=False),
            _member(begin + n * every + away, f"m{n}-{version}"),
        )
    ]


_THREE = [_member(0, f"m{n}-0") for n in range(3)]


def test_a_rolling_restart_is_one_deployment_once_no_member_of_before_is_left() -> None:
    began, ended = at(3600), at(3600 + 120)
    assert _deployments(*_THREE, *_roll(3, 3600, 60, 20)) == [(ended, began.isoformat(), "processes")]


def test_members_that_join_again_under_their_own_id_are_not_replaced() -> None:
    gone = [_member(3600 + n, f"m{n}-0", joins=False) for n in range(3)]
    back = [_member(3660 - n, f"m{n}-0") for n in range(3)]
    assert _deployments(*_THREE, *gone, *back) == []


def test_a_loop_of_crashes_is_one_at_most() -> None:
    loop = [one for n in range(1, 9) for one in _roll(1, 3600 + n * 90, 0, 30, version=n)]
    assert len(_deployments(_member(0, "m0-0"), *loop)) == 1


def test_what_takes_longer_than_a_quarter_of_an_hour_is_none() -> None:
    assert _deployments(*_THREE, *_roll(3, 3600, 10 * MINUTE, 20)) == []


def test_a_member_that_leaves_and_one_that_joins_are_none_while_others_stay() -> None:
    assert _deployments(*_THREE, *_roll(2, 3600, 60, 20)) == []


def test_another_topology_is_one_also_after_the_group_was_deleted() -> None:
    first, second = ((23, GROUP, {**TOPOLOGY, "subtopologies": parts}) for parts in (TOPOLOGY["subtopologies"], []))
    found = _deployments((0, first), (10, (17, GROUP, None)), (20, second), (30, second))
    assert found == [(at(20), at(20).isoformat(), "topology")]
