"""The loop that tells lag from difference, with a cluster, tables and a clock made up here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from streaming_app.core.partition import partition_of
from streaming_app.serve.position import Position
from streaming_app.verify import agreement
from streaming_app.verify.agreement import Report, VerifyError, verify

TOPIC, PARTITIONS, G = "__consumer_offsets", 3, "g"
HOME = partition_of(G, PARTITIONS)


def row(epoch: int = 2, state: str = "Stable", *, told: bool = True) -> dict[str, Any]:
    empty: list[Any] = []
    return {
        "group_id": G,
        "state": state,
        "readiness_recorded": told,
        "group_epoch": epoch,
        "assignment_epoch": 2,
        "assigned_at": None,
        "topology_epoch": None,
        "members": empty,
        "assignments": empty,
        "subtopologies": empty,
    }


def told(epoch: int = 2, state: str = "Stable", error: int = 0) -> dict[str, Any]:
    known = {"error_code": error, "error_message": "", "group_id": G, "group_state": state, "group_epoch": epoch}
    return {**known, "assignment_epoch": 2, "topology": None, "members": []}


GONE = told(error=69)


class World:
    """A cluster with one group, and tables; each question of a kind takes the next answer, the last one stays."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {"listed": [[G]], "ends": [10], "passed": [10], **answers}
        self.seconds = 0.0
        self.news: list[str] = []

    def _next(self, kind: str) -> Any:
        answers = self.answers[kind]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def list_groups(self) -> Iterable[str]:
        return self._next("listed")

    def describe(self, group_ids: Iterable[str]) -> list[Any]:
        return [self._next("told") for _ in group_ids]

    def end_offsets(self, topic: str) -> dict[int, int]:
        assert topic == TOPIC
        return {**dict.fromkeys(range(PARTITIONS), 1000), HOME: self._next("ends")}

    def position(self) -> Position | None:
        passed = self._next("passed")
        return None if passed is None else Position(TOPIC, 0, {HOME: passed})

    def alive(self) -> list[str]:
        one = self._next("rows")
        return [] if one is None or one["state"] == "Dead" else [G]

    def rows(self, first: str, last: str) -> dict[str, Any]:
        assert first <= G <= last
        one = self._next("rows")
        return {} if one is None else {G: one}

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def verify(self, timeout: float = 30) -> Report:
        return verify(self, self, self, timeout, self.news.append)


def lines(report: Report) -> list[str]:
    return [
        *map(str, report.differences),
        *(f"{one.group_id} not compared: {one.reason}" for one in report.not_compared),
    ]


def test_equal_sides_agree_at_once_though_the_job_is_behind_elsewhere() -> None:
    world = World(rows=[row()], told=[told()])
    report = world.verify()
    assert report == Report(agreeing=1)
    assert report.agrees
    assert world.seconds == 0


def test_a_lasting_difference_is_told_after_a_second_look() -> None:
    world = World(rows=[row(3)], told=[told(4)])
    report = world.verify()
    assert lines(report) == ["g group_epoch: tables say 3, broker says 4"]
    assert not report.agrees
    assert 0 < world.seconds < 5


def test_lag_is_waited_for_and_no_difference() -> None:
    world = World(passed=[4, 4, 4, 7, 10], rows=[row(3), row(4)], told=[told(4)])
    assert world.verify().agrees
    assert "waiting for the job, which is 6 offsets behind" in world.news


def test_what_the_brokers_take_to_answer_is_not_taken_from_the_wait_for_the_job() -> None:
    class Slow(World):
        def describe(self, group_ids: Iterable[str]) -> list[Any]:
            self.seconds += 40
            return super().describe(group_ids)

    assert Slow(passed=[4, 4, 4, 7, 10], rows=[row(3), row(4)], told=[told(4)]).verify(timeout=30).agrees


def test_what_differs_while_the_job_is_behind_is_not_compared() -> None:
    report = World(passed=[4], rows=[row(3)], told=[told(4)]).verify(timeout=5)
    assert lines(report) == ["g not compared: the job is 6 offsets behind"]
    assert not report.agrees


def test_what_agrees_while_the_job_is_behind_agrees() -> None:
    assert World(passed=[4], rows=[row()], told=[told()]).verify(timeout=5).agrees


def test_a_group_that_never_holds_still_is_not_compared() -> None:
    report = World(rows=[row(1)], told=[told(epoch) for epoch in range(2, 200)]).verify(timeout=5)
    assert lines(report) == ["g not compared: it changed whenever it was compared"]


def test_a_group_that_went_and_came_back_meanwhile_is_looked_at_again() -> None:
    report = World(rows=[row(), row(state="Reconciling"), row()], told=[told()]).verify()
    assert report.agrees


def test_a_difference_seen_in_the_last_moment_is_told() -> None:
    assert lines(World(rows=[row(3)], told=[told(4)]).verify(timeout=0)) == [
        "g group_epoch: tables say 3, broker says 4"
    ]


@pytest.mark.parametrize("ours", [None, row(state="Dead")], ids=["no row", "Dead"])
def test_a_group_that_only_the_broker_knows_is_a_difference(ours: Any) -> None:
    report = World(rows=[ours], told=[told()]).verify()
    assert lines(report) == ["g group: tables say absent, broker says Stable"]


def test_a_group_that_only_the_tables_know_is_a_difference() -> None:
    report = World(listed=[[]], rows=[row()], told=[GONE]).verify()
    assert lines(report) == ["g group: tables say Stable, broker says absent"]


@pytest.mark.parametrize("ours", [None, row(state="Dead")], ids=["no row", "Dead"])
def test_a_group_that_neither_side_knows_agrees(ours: Any) -> None:
    assert World(rows=[ours], told=[GONE]).verify().agrees


def test_a_dead_group_is_not_asked_for() -> None:
    assert World(listed=[[]], rows=[row(state="Dead")], told=[]).verify() == Report()


def test_a_state_that_a_log_of_4_1_does_not_tell_is_counted_and_no_difference() -> None:
    report = World(rows=[row(state="Unknown", told=False)], told=[told(state="NotReady")]).verify()
    assert report == Report(agreeing=1, stateless=1)
    wrong = World(rows=[row(3, state="Unknown", told=False)], told=[told(state="NotReady")]).verify()
    assert lines(wrong) == ["g group_epoch: tables say 3, broker says 2"]


def test_a_difference_seen_once_is_not_told_of_a_job_that_fell_behind() -> None:
    report = World(ends=[10, 10, 20], rows=[row(3)], told=[told(4)]).verify(timeout=5)
    assert lines(report) == ["g not compared: the job is 10 offsets behind"]


def test_many_groups_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_AT_ONCE", 2)
    ids = ["f", G, "h"]

    class Many(World):
        def describe(self, group_ids: Iterable[str]) -> list[Any]:
            return [told(3 if group_id == "h" else 2) | {"group_id": group_id} for group_id in group_ids]

        def rows(self, first: str, last: str) -> dict[str, Any]:
            return {group_id: row() for group_id in ids if first <= group_id <= last}

        def position(self) -> Position:
            return Position(TOPIC, 0, dict.fromkeys(range(PARTITIONS), 1000) | {HOME: 10})

    world = Many(listed=[ids], rows=[row()])
    report = world.verify()
    assert report.agreeing == 2
    assert lines(report) == ["h group_epoch: tables say 2, broker says 3"]
    assert world.news == ["2 of 3 groups looked at", "1 of 3 groups left to compare"]


def test_another_error_of_the_broker_is_told() -> None:
    report = World(rows=[row()], told=[told(error=30)]).verify(timeout=1)
    assert lines(report) == ["g not compared: the broker answered error 30: no reason given"]


@pytest.mark.parametrize(
    ("answers", "words"), [({"passed": [None]}, "not finished a batch"), ({"passed": [11]}, "of another cluster")]
)
def test_tables_that_cannot_be_of_this_cluster_are_refused(answers: dict[str, Any], words: str) -> None:
    world = World(rows=[row()], told=[told()], **answers)
    with pytest.raises(VerifyError, match=words):
        world.verify()
