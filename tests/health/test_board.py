"""The verdicts on all groups: in order, at any pace, after a restart, and of groups that are deleted."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health import board as board_module
from streaming_app.health.board import Board, Change, Known
from streaming_app.health.facts import DEFAULTS, Facts
from streaming_app.health.judge import judge
from streaming_app.health.verdict import DOWN, LOSING, OFF, OK, RESTORING, STALLED, Verdict
from tests.support.health_harness import LONG_AGO, NOW, ago, bad, group, unmoved, waiting, work

GROUP = "payments"
ENDED = group("Empty", ago(minutes=60), first_seen_at=ago(hours=9))


def board(*, of_all_types: bool = False, **stored: Verdict) -> Board:
    return Board(lambda _group_id: DEFAULTS, stored, of_all_types=of_all_types)


def known(one: GroupSnapshot | None, of_work: Any = None) -> Known:
    return Known({GROUP: one} if one else {}, work={GROUP: of_work} if of_work else {})


def brief(changes: list[Change]) -> list[tuple[str, float]]:
    """Return the verdicts with the minutes ago at which they were made."""
    return [(one.verdict.verdict, (NOW - one.verdict.at).total_seconds() / 60) for one in changes]


OFF_BEFORE = Verdict(OFF, ago(minutes=60), ago(minutes=60), "Nothing waits.", facts_at=ago(minutes=1))


def test_a_successor_that_an_earlier_run_has_proven_is_one_until_the_group_has_members_again() -> None:
    proven = replace(OFF_BEFORE, evidence={"successor": "payments-v2"})
    one, waits = board(payments=proven), waiting(ago(minutes=50))
    one.step(known(ENDED), NOW)
    (change,) = one.step(known(ENDED, waits), NOW)
    assert (change.verdict.verdict, change.verdict.evidence["successor"]) == (OFF, "payments-v2")
    assert "payments-v2 reads the same topics" in change.verdict.why
    again = board(payments=proven).step(known(group("Empty", ago(minutes=6), first_seen_at=ago(hours=9)), waits), NOW)
    assert [change.verdict.verdict for change in again] == [DOWN]


def test_what_was_planned_stays_down_and_says_so_until_it_is_worse() -> None:
    one, waits = board(payments=bad(DOWN, ago(minutes=30))), waiting(ago(minutes=50))
    one.step(known(ENDED, waits), ago(minutes=20))
    (change,) = one.end([GROUP], "planned", ago(minutes=10))
    (more,) = one.step(known(ENDED, replace(waits, offsets=90_000)), ago(minutes=5))
    for found in (change.verdict, more.verdict):
        assert (found.verdict, found.severity, found.evidence["planned"]) == (DOWN, None, True)
    lost = replace(waits, lost=unmoved(ago(minutes=5)))
    (worse,) = one.step(known(ENDED, lost), NOW)
    assert (worse.verdict.verdict, worse.verdict.severity) == (LOSING, "critical")
    assert "planned" not in worse.verdict.evidence


def test_a_deleted_group_stays_down_and_one_that_had_nothing_to_do_is_forgotten() -> None:
    for of_work, expected in ((waiting(ago(minutes=60)), DOWN), (work(), None)):
        one = board()
        one.step(known(ENDED, of_work), NOW)
        for minutes in (1, 2, 90):
            one.step(known(None), NOW + timedelta(minutes=minutes))
        assert one.verdicts().get(GROUP, None) == (expected and one.verdicts()[GROUP])
        assert one.knows(GROUP) is (expected is not None)


@pytest.mark.parametrize(("severity", "stays"), [("warning", True), (None, False)])
def test_a_restore_during_which_records_are_lost_is_not_over_because_the_group_is_deleted(
    severity: str | None, *, stays: bool
) -> None:
    restores = replace(bad(RESTORING, ago(minutes=20)), severity=severity)
    one = board(payments=restores)  # it was deleted while the job was away
    assert brief(one.step(known(None), NOW)) == ([] if stays else [(OFF, 0)])
    assert one.knows(GROUP) is stays
    one = board(payments=restores)
    one.step(known(group("Empty", ago(minutes=1), first_seen_at=ago(hours=9))), NOW)
    for minutes in (1, 90):
        one.step(known(None, work()), NOW + timedelta(minutes=minutes))
    assert one.knows(GROUP) is stays


def test_a_pass_that_fails_makes_no_group_of_another_type_deleted() -> None:
    of_consumer, well = {GROUP: work(arrived_at=NOW)}, Verdict(OK, LONG_AGO, LONG_AGO, "Offsets advance.")
    one, restarted = board(of_all_types=True), board(payments=well, of_all_types=True)
    assert brief(one.step(Known({}, work=of_consumer), NOW)) == [(OK, 0)]
    assert restarted.step(Known({}, work=None), NOW) == []
    restarted.step(Known({}, work=of_consumer), NOW + timedelta(seconds=30))
    for each in (one, restarted):
        assert each.step(Known({}, work=None), NOW + timedelta(minutes=1)) == []
        assert each.verdicts()[GROUP].verdict == OK
    (gone,) = one.step(Known({}, work={}), NOW + timedelta(minutes=2))
    assert (gone.verdict.verdict, one.knows(GROUP)) == (OFF, False)


def newcomer(group_id: str, minutes: float) -> GroupSnapshot:
    return replace(group("NotReady", ago(minutes=3), first_seen_at=ago(minutes=minutes)), group_id=group_id)


def test_groups_known_before_a_flood_are_judged_first_and_newcomers_take_so_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps are counted, and a change of one of the flood does not take the turn of those that wait."""
    judged: list[str] = []

    def counting(facts: Facts) -> Verdict:
        judged.append(facts.group.group_id)
        return judge(facts)

    monkeypatch.setattr(board_module, "judge", counting)
    monkeypatch.setattr(board_module, "NEWCOMER_STEPS", 4)
    flood = [newcomer(f"!{number}", 50 - number) for number in range(8)]
    every = [*flood, newcomer("new", 60), replace(group(), group_id="known")]
    one, at = board(), NOW
    groups = {snapshot.group_id: snapshot for snapshot in every}
    one.step(Known(groups), at)
    assert judged == ["known", "new", "!0", "!1", "!2"]
    assert one.put_off == dict.fromkeys(["!3", "!4", "!5", "!6", "!7"], NOW)
    groups = groups | {name: replace(groups[name]) for name in ("!0", "!1", "known")}  # they have changed
    judged.clear()
    one.step(Known(groups), NOW + timedelta(seconds=5))
    assert judged == ["known", "!3", "!4", "!5", "!6"]
    assert one.put_off == {"!7": NOW, "!0": NOW + timedelta(seconds=5), "!1": NOW + timedelta(seconds=5)}
    judged.clear()
    one.step(Known(groups), NOW + timedelta(seconds=10))
    assert (judged, one.put_off) == (["!7", "!0", "!1"], {})


def test_a_step_looks_at_no_more_of_a_flood_than_it_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million groups that wait, some of them with a verdict of an earlier run, are not looked at in each step."""
    monkeypatch.setattr(board_module, "NEWCOMER_STEPS", 4)
    flood = Known({f"!{number}": newcomer(f"!{number}", 50) for number in range(40)})
    stored = Verdict(OK, ago(minutes=40), ago(minutes=40), "Offsets advance.", recheck_at=ago(minutes=1))
    one, looked_at = board(**{f"!{number}": stored for number in range(20, 40)}), list[str]()
    one.step(flood, NOW)
    see = one._see
    monkeypatch.setattr(one, "_see", lambda group_id, at: looked_at.append(group_id) or see(group_id, at))
    for step in range(1, 10):
        looked_at.clear()
        one.step(flood, NOW + timedelta(seconds=step))
        assert len(looked_at) == 4
    assert not one.put_off


def test_a_bad_verdict_whose_records_are_kept_for_longer_now_is_given_again_without_a_change() -> None:
    one, since = board(), ago(minutes=30)
    stuck = waiting(since, stalled=unmoved(since), oldest={"orders": since.timestamp()})
    short, long = (replace(known(group(), stuck), retention={"orders": 3_600.0 * hours}) for hours in (1, 24))
    assert brief(one.step(short, NOW))[-1][0] == STALLED
    assert (one.step(short, NOW + timedelta(seconds=30)), one.moved) == ([], set())
    again = replace(long, work={GROUP: replace(stuck, known_at=NOW.timestamp() + 60)})
    assert (one.step(again, NOW + timedelta(seconds=60)), one.moved) == ([], {GROUP})
    assert one.verdicts()[GROUP].losing_at == since + timedelta(hours=24)


def times_of(changes: list[Change]) -> list[tuple[str, str, Any]]:
    return [(one.group_id, one.verdict.verdict, one.at) for one in changes]


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_step_that_memory_ends_sets_no_group_aside_and_the_next_one_returns_what_it_found(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of three groups, one of which is deleted: memory is short at the given verdict."""
    begun = {name: replace(group(), group_id=name) for name in "abc"}
    works = {name: replace(waiting(ago(minutes=20)), group_id=name) for name in begun}
    first = Known(begun, work=works)
    ended = replace(ENDED, state_since=ago(minutes=20))
    second = Known({name: replace(ended, group_id=name) for name in "ab"}, work=works)
    whole, one, calls = board(), board(), 0
    expected = [times_of(whole.step(*both)) for both in ((first, ago(minutes=21)), (second, NOW))]

    def short(facts: Facts) -> Verdict:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise MemoryError
        return judge(facts)

    monkeypatch.setattr(board_module, "judge", short)
    for (both, at), changes in zip(((first, ago(minutes=21)), (second, NOW)), expected, strict=True):
        before = calls
        try:
            found = one.step(both, at)
        except MemoryError:
            assert before < failing == calls
            found = one.step(both, at)
        assert times_of(found) == changes
    assert calls > failing
    assert (one.verdicts(), one.failed) == (whole.verdicts(), {})
