"""Which groups are asked for their offsets, and what is believed."""

import pytest

from streaming_app.lag.committed import CommittedOffsets
from streaming_app.lag.model import Commit


def log(**offsets: int) -> dict[tuple[str, str, int], Commit]:
    return {(group_id, "t", 0): Commit(offset, "id", None, 100.0 + offset) for group_id, offset in offsets.items()}


def test_groups_are_asked_for_until_their_commits_rest() -> None:
    committed = CommittedOffsets()
    assert committed.choose(log(plain=1), (), 0.0) == {"plain"}
    committed.merge({"plain": {("t", 0): Commit(1)}}, 0.0)
    assert committed.choose(log(plain=2), (), 30.0) == {"plain"}
    committed.merge({"plain": {("t", 0): Commit(2)}}, 30.0)
    assert committed.choose(log(plain=2), (), 60.0) == set()
    assert committed.choose(log(plain=2), {"none"}, 331.0) == {"plain", "none"}


def test_times_are_those_of_the_log_where_the_coordinator_has_the_same_offset() -> None:
    committed = CommittedOffsets()
    committed.choose(log(app=5), (), 0.0)
    same = committed.merge({"app": {("t", 0): Commit(5, None, 3)}}, 0.0)
    other = committed.merge({"app": {("t", 0): Commit(4, None, 3), ("t", 1): Commit(9)}}, 0.0)
    assert same == {("app", "t", 0): Commit(5, "id", None, 105.0)}
    assert other == {("app", "t", 0): Commit(4, None, 3, None), ("app", "t", 1): Commit(9, None, None, None)}


def test_all_groups_are_asked_for_while_the_log_is_read_late_and_commits_are_known_as_of_the_answer() -> None:
    committed = CommittedOffsets()
    committed.choose(log(app=1, plain=1, denied=1), (), 0.0)
    committed.merge({"app": {}}, 0.0)
    assert committed.choose(log(app=3, plain=3, denied=3), (), 130.0, is_late=True) == {"app", "plain", "denied"}
    committed.merge({"app": {("t", 0): Commit(2)}, "plain": {("t", 0): Commit(9)}}, 130.0)
    assert [committed.known_until(one, 25.0) for one in ("app", "plain", "denied")] == [130.0, 130.0, 25.0]


@pytest.mark.parametrize(("seconds", "again"), [(0.0, False), (299.0, False), (300.0, True), (-1.0, True)])
def test_a_group_at_rest_is_asked_for_again_after_minutes_or_a_clock_set_back(seconds: float, *, again: bool) -> None:
    committed, asked_at = CommittedOffsets(), 1_000_000.0
    step(committed, 5, 5, asked_at)
    assert committed.choose(log(plain=5), (), asked_at + seconds) == ({"plain"} if again else set())


def step(committed: CommittedOffsets, in_log: int, fetched: int | None, now: float) -> Commit:
    """Do a pass over a group; `fetched` is None if its coordinator does not answer."""
    committed.choose(log(plain=in_log), (), now)
    (found,) = committed.merge({} if fetched is None else {"plain": {("t", 0): Commit(fetched)}}, now).values()
    return found


@pytest.mark.parametrize(("in_log", "fetched"), [(5, 10), (5, None), (20, 10), (20, None)])
def test_an_open_or_aborted_transaction_leaves_the_offset_and_its_time(in_log: int, fetched: int | None) -> None:
    committed = CommittedOffsets()
    assert (first := step(committed, 10, 10, 0.0)) == Commit(10, "id", None, 110.0)
    assert [step(committed, in_log, fetched, now) for now in (30.0, 60.0, 400.0)] == [first] * 3


def test_an_answer_that_is_newer_than_the_log_counts_at_a_pass_for_which_the_log_has_not_changed() -> None:
    committed, in_log = CommittedOffsets(), log(plain=7)
    step(committed, 5, 5, 0.0)
    for fetched in (6, 9):
        committed.choose(in_log, (), 30.0)
        assert committed.merge({"plain": {("t", 0): Commit(fetched)}}, 30.0)["plain", "t", 0].offset == fetched


def test_what_a_coordinator_that_does_not_answer_said_before_is_known_of_then() -> None:
    committed = CommittedOffsets()
    step(committed, 10, 10, 0.0)
    step(committed, 20, None, 30.0)
    assert committed.known_until("plain", 29.0) == 0.0
    step(committed, 20, 20, 60.0)
    assert committed.known_until("plain", 59.0) == 60.0


def test_a_commit_that_the_answer_leaves_out_is_unknown_unless_its_topic_may_be_described() -> None:
    """Also after a restart, and while its coordinator does not answer."""
    committed, in_log = CommittedOffsets(), log(app=5) | {("app", "u", 0): Commit(7, "id", None, 107.0)}
    unknown = in_log["app", "u", 0]._replace(is_known=False)
    answer = {"app": {("t", 0): Commit(5)}}
    for fetched, shown, expected in (
        (answer, (), unknown),
        (answer, {"u"}, None),  # it was deleted, or its transaction is open or was aborted
        ({}, {"u"}, unknown),  # the answer is of before
        (answer, {"t"}, unknown),
    ):
        committed.choose(in_log, (), 0.0)
        assert committed.left_out(fetched) == ({"u"} if fetched else set())
        found = committed.merge(fetched, 0.0, shown=shown)
        assert (found.get(("app", "u", 0)), found["app", "t", 0]) == (expected, in_log["app", "t", 0])


def test_a_commit_that_only_the_log_has_is_unknown_where_it_was_aborted_or_is_to_be_proven_and_is_not() -> None:
    committed, commits = CommittedOffsets(), log(a=1, b=2, c=3, d=4)
    a, b, c, d = commits
    assert committed.without_proof(commits, [a, b, c]) == [a, b, c]
    committed.prove(commits, [a, b, c], {a: True, b: False})
    assert [commits[key].is_known for key in (a, b, c, d)] == [True, False, False, True]
    again = log(a=1, b=2, c=3, d=4)
    assert committed.without_proof(again, [a, b, c]) == [c]
    committed.prove(again, [], {})
    assert [again[key].is_known for key in (a, b, c, d)] == [True, False, True, True]
    assert committed.without_proof(log(a=9, b=2), [a, b]) == [a]
