"""Which groups are asked for their offsets, and what is believed."""

from __future__ import annotations

import pytest

from streaming_app.lag.committed import CommittedOffsets
from streaming_app.lag.model import Commit


def log(**offsets: int) -> dict[tuple[str, str, int], Commit]:
    return {(group_id, "t", 0): Commit(offset, "id", None, 100.0 + offset) for group_id, offset in offsets.items()}


def test_streams_groups_are_asked_for_at_every_pass_and_others_when_the_log_has_another_commit_of_them() -> None:
    committed = CommittedOffsets()
    assert committed.choose(log(app=1, plain=1), {"app"}, 0.0) == {"app", "plain"}
    committed.merge({"app": {}, "plain": {("t", 0): (1, None)}}, 0.0)

    assert committed.choose(log(app=2, plain=2), {"app"}, 60.0) == {"app", "plain"}
    committed.merge({"plain": {("t", 0): (2, None)}}, 60.0)
    assert committed.choose(log(app=2, plain=2), {"app"}, 90.0) == {"app"}
    assert committed.choose(log(app=2, plain=2), {"app"}, 361.0) == {"app", "plain"}


def test_a_commit_that_goes_back_is_asked_about_before_it_is_believed() -> None:
    committed = CommittedOffsets()
    committed.choose(log(plain=10), set(), 0.0)
    committed.choose(log(plain=20), set(), 30.0)

    assert committed.choose(log(plain=15), set(), 60.0) == {"plain"}


def test_times_are_those_of_the_log_where_the_coordinator_has_the_same_offset() -> None:
    committed = CommittedOffsets()
    committed.choose(log(app=5), {"app"}, 0.0)

    same = committed.merge({"app": {("t", 0): (5, 3)}}, 0.0)
    other = committed.merge({"app": {("t", 0): (4, 3), ("t", 1): (9, None)}}, 0.0)

    assert same == {("app", "t", 0): Commit(5, "id", None, 105.0)}
    assert other == {("app", "t", 0): Commit(4, None, 3, None), ("app", "t", 1): Commit(9, None, None, None)}


def test_what_the_coordinator_does_not_have_is_not_committed() -> None:
    committed = CommittedOffsets()
    committed.choose(log(app=5), {"app"}, 0.0)

    assert committed.merge({"app": {}}, 0.0) == {}


def test_without_an_answer_the_log_is_believed() -> None:
    committed = CommittedOffsets()
    committed.choose(log(app=5), {"app"}, 0.0)

    assert committed.merge({}, 0.0) == log(app=5)


def test_a_group_that_is_deleted_is_forgotten() -> None:
    committed = CommittedOffsets()
    committed.choose(log(plain=5), {"app"}, 0.0)
    committed.merge({"plain": {("t", 0): (5, None)}, "app": {("t", 0): (1, None)}}, 0.0)

    committed.choose({}, set(), 30.0)

    assert committed.merge({}, 30.0) == {}


def test_all_groups_are_asked_for_while_the_log_is_read_late_and_commits_are_known_as_of_the_answer() -> None:
    committed = CommittedOffsets()
    committed.choose(log(app=1, plain=1, denied=1), {"app"}, 0.0)
    committed.merge({"app": {}}, 0.0)
    newer = log(app=3, plain=3, denied=3)
    assert committed.choose(newer, {"app"}, 130.0, is_late=True) == {"app", "plain", "denied"}
    committed.merge({"app": {("t", 0): (2, None)}, "plain": {("t", 0): (9, None)}}, 130.0)

    assert [committed.known_until(one, 25.0) for one in ("app", "plain", "denied")] == [130.0, 130.0, 25.0]


@pytest.mark.parametrize(("seconds", "again"), [(0.0, False), (299.0, False), (300.0, True), (-1.0, True)])
def test_a_group_at_rest_is_asked_for_again_after_five_minutes_or_when_the_clock_was_set_back(
    seconds: float, *, again: bool
) -> None:
    committed, asked_at = CommittedOffsets(), 1_000_000.0
    committed.choose(log(plain=5), set(), asked_at)
    committed.merge({"plain": {("t", 0): (5, None)}}, asked_at)

    assert committed.choose(log(plain=5), set(), asked_at + seconds) == ({"plain"} if again else set())


def test_a_commit_after_the_answer_of_the_coordinator_replaces_it() -> None:
    committed = CommittedOffsets()
    committed.choose(log(plain=1), set(), 0.0)
    committed.merge({"plain": {("t", 0): (1, None)}}, 0.0)
    committed.choose(log(plain=2), set(), 30.0)

    assert committed.merge({}, 30.0) == log(plain=2)
