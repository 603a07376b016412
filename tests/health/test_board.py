"""The verdicts on all groups: in order, at any pace, after a restart, and of groups that are deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.board import Board, Change, Known
from streaming_app.health.verdict import DEFAULTS, DOWN, IDLE, OFF, OK, STALLED, Verdict
from tests.health.health_harness import NOW, ago, bad, group, unmoved, waiting, work

GROUP = "payments"
ENDED = group("Empty", ago(minutes=60), first_seen_at=ago(hours=9))


def board(**stored: Verdict) -> Board:
    return Board(lambda _group_id: DEFAULTS, stored)


def known(one: GroupSnapshot | None, of_work: Any = None) -> Known:
    return Known({GROUP: one} if one else {}, work={GROUP: of_work} if of_work else {})


def brief(changes: list[Change]) -> list[tuple[str, float]]:
    """Return the verdicts with the minutes ago at which they were made."""
    return [(one.verdict.verdict, (NOW - one.verdict.at).total_seconds() / 60) for one in changes]


@pytest.mark.parametrize("minutes", [0.1, 1, 7, 60])
def test_verdicts_and_times_do_not_depend_on_the_pace(minutes: float) -> None:
    """Nothing happens for an hour, but a group is without members, and then deleted."""
    one, found, at = board(), [], ago(minutes=60)
    of_work = waiting(ago(minutes=60), ago(minutes=-1))
    found += one.step(known(ENDED, of_work), at)
    while at < NOW:
        at = min(NOW, at + timedelta(minutes=minutes))
        found += one.step(known(ENDED if at < NOW else None, of_work), at)
    assert brief(found) == [(OFF, 60), (DOWN, 55)]


def test_a_group_to_which_nothing_happens_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one, of_work = board(), work(at=ago(minutes=-30))
    now = known(group(), of_work)
    one.step(now, NOW)
    monkeypatch.setattr("streaming_app.health.board.judge", None)
    assert one.step(now, NOW + timedelta(seconds=5)) == []


def test_a_deadline_that_passed_before_the_facts_changed_counts() -> None:
    one, of_work = board(), waiting(ago(minutes=60), NOW)
    one.step(known(ENDED, of_work), ago(minutes=58))
    back = group("Stable", ago(minutes=1))
    assert brief(one.step(known(back, replace(of_work, progressed_at=NOW.timestamp())), NOW)) == [(DOWN, 55), (OK, 0)]


def test_a_deleted_group_stays_down_and_one_that_had_nothing_to_do_is_forgotten() -> None:
    for of_work, expected in ((waiting(ago(minutes=60)), DOWN), (work(), None)):
        one = board()
        one.step(known(ENDED, of_work), NOW)
        for minutes in (1, 2, 90):
            one.step(known(None), NOW + timedelta(minutes=minutes))
        assert one.verdicts().get(GROUP, None) == (expected and one.verdicts()[GROUP])
        assert one.knows(GROUP) is (expected is not None)


def test_a_group_that_died_and_is_deleted_before_its_time_is_down_all_the_same() -> None:
    died = replace(ENDED, state_since=ago(minutes=2))
    one, of_work = board(), waiting(ago(minutes=2))
    one.step(known(died, of_work), NOW)
    assert brief(one.step(known(None), NOW + timedelta(minutes=1))) == [(OFF, 0)]
    assert brief(one.step(known(None), NOW + timedelta(minutes=9))) == [(DOWN, -3)]


def test_after_a_restart_what_was_bad_is_bad_until_it_is_proven_otherwise() -> None:
    stored = {GROUP: bad(STALLED, ago(hours=2)), "gone": bad(DOWN, ago(hours=2)), "retired": bad(OFF, ago(hours=2))}
    one = board(**stored)
    changes = one.step(known(group(), waiting(ago(hours=2), stalled=unmoved(ago(hours=2)))), NOW)
    assert [(change.group_id, change.verdict.verdict, change.verdict.at) for change in changes] == [
        (GROUP, STALLED, ago(hours=2)),
        ("retired", OFF, NOW),
    ]
    assert one.verdicts()["gone"].verdict == DOWN


def test_while_the_lag_is_not_known_verdicts_stay_as_they_are() -> None:
    one = board()
    one.step(known(group(), work()), NOW)
    later = NOW + timedelta(minutes=30)
    assert one.step(Known({GROUP: group()}, work=None), later) == []
    assert one.verdicts()[GROUP].verdict == IDLE


def test_an_id_that_a_group_of_another_type_took_over_is_off() -> None:
    one = board()
    one.step(known(ENDED, waiting(ago(minutes=60))), NOW)
    changes = one.step(known(replace(ENDED, group_type="classic")), NOW + timedelta(seconds=5))
    assert [change.verdict.verdict for change in changes] == [OFF]
    assert not one.knows(GROUP)


def test_groups_of_other_types_are_judged_by_their_lag() -> None:
    one, of_work = board(), waiting(ago(minutes=30), stalled=unmoved(ago(minutes=30)))
    changes = one.step(known(None, of_work), NOW, others={GROUP: of_work})
    assert [change.verdict.verdict for change in changes] == [STALLED]
