"""Verdicts on Kafka Streams with the classic protocol, from the records of type 2 that its coordinator writes."""

from collections.abc import Iterator
from typing import Any

import pytest

from streaming_app.groups.group import Group
from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import group_snapshot
from streaming_app.health.board import Board, Known
from streaming_app.health.facts import DEFAULTS, Facts
from streaming_app.health.group_history import COLUMNS, GroupHistories
from streaming_app.health.verdict import DOWN, IDLE, OFF, OK, PROTOCOL, STALLED, UNKNOWN, UNSTABLE, Verdict
from streaming_app.lag.work import GroupWork
from tests.groups.classic_records import AT_ONCE, P1, P2, assignment, generation, records, subscription, thread
from tests.groups.records import FIRST_JOIN, at, fold, log
from tests.support.health_harness import facts, unmoved, verdict, waiting, work

M1 = thread("m1", subscription(P1), assignment([(0, 0), (0, 1)]))
M2 = thread("m2", subscription(P2), assignment([(1, 0), (1, 1)]))
Generation = tuple[float, dict[str, Any] | None]
"""When it was written, in seconds, and its value."""
STARTED: Generation = (0, generation(1, M1, M2, entered=at(0)))


def stopped(seconds: float, number: int = 2) -> Generation:
    return seconds, generation(number, entered=at(seconds))


def refused(seconds: float, code: int, number: int = 2) -> Generation:
    members = [thread(name, subscription(), assignment(error=code)) for name in ("m1", "m2")]
    return seconds, generation(number, *members, entered=at(seconds))


def played(*generations: Generation, seconds: float, of_work: GroupWork | None = None) -> Facts:
    """Return the facts at a time, after these generations."""
    group: Group | None = None
    histories, now = GroupHistories(), at(seconds)
    for number, (when, value) in enumerate(generations):
        result = fold(records(value, first=number, seconds=when - number), group)
        group = result.group
        for event in result.events:
            histories.add("g", {name: getattr(event, name) for name in COLUMNS}, now)
    assert group
    return facts(group_snapshot(to_row("c", group)), of_work, histories.groups().get("g"), at=now)


def judged(*generations: Generation, seconds: float, of_work: GroupWork | None = None) -> Verdict:
    return verdict(played(*generations, seconds=seconds, of_work=of_work), at=at(seconds))


def works(seconds: float, **fields: Any) -> GroupWork:
    return work(at(seconds), **fields)


def waits(seconds: float, since: float, **fields: Any) -> GroupWork:
    return waiting(at(since), at(seconds), **fields)


@pytest.mark.parametrize("code", [1, 3, 4])
def test_members_that_have_an_error_instead_of_tasks_are_down_and_the_error_is_named(code: int) -> None:
    text = {1: "INCOMPLETE_SOURCE_TOPIC_METADATA", 3: "ASSIGNMENT_ERROR", 4: "SHUTDOWN_REQUESTED"}[code]
    found = judged(STARTED, refused(300, code), seconds=600, of_work=waits(600, 300))
    assert (found.verdict, found.since, found.severity) == (DOWN, at(300), "critical")
    assert text in found.why
    assert "since the last rebalance, 2026-01-01 00:05:00Z, its members have no tasks" in found.why
    before = judged(STARTED, refused(300, code), seconds=599, of_work=waits(599, 300))
    assert (before.verdict, before.recheck_at) == (UNKNOWN, at(600))
    assert judged(STARTED, refused(300, code), seconds=600, of_work=works(600)).severity == "warning"


def test_an_error_that_does_not_end_by_itself_is_down_though_nothing_waits_and_a_shutdown_is_not() -> None:
    for code, expected in ((1, DOWN), (3, DOWN), (4, OFF)):
        found = judged(STARTED, refused(300, code), stopped(345, 3), seconds=700, of_work=works(700))
        assert found.verdict == expected
    found = judged(STARTED, refused(300, 4), stopped(345, 3), seconds=700, of_work=waits(700, 300))
    assert (found.verdict, "SHUTDOWN_REQUESTED" in found.why) == (DOWN, True)


def rebalances(number: int, **rebalance: Any) -> Iterator[Generation]:
    """Yield generations of the same members, one every 30 seconds."""
    for n in range(2, number + 2):
        members = [
            thread("m1", subscription(P1), assignment([(0, 0)], **rebalance)),
            thread("m2", subscription(P2), assignment([(1, 0)])),
        ]
        yield n * 30, generation(n, *members, entered=at(n * 30))


@pytest.mark.parametrize(
    ("rebalance", "expected"),
    [({"next_rebalance": round(at(600).timestamp() * 1000)}, OK), ({"next_rebalance": AT_ONCE}, OK), ({}, UNSTABLE)],
    ids=["probing for warm-ups", "tasks change hands", "nothing announced them"],
)
def test_many_rebalances_are_unstable_unless_the_one_before_announced_them(
    rebalance: dict[str, Any], expected: str
) -> None:
    found = judged(
        STARTED,
        *rebalances(14, **rebalance),
        seconds=480,
        of_work=works(480, arrived_at=at(480), progressed_at=at(470)),
    )
    assert found.verdict == expected
    if expected == UNSTABLE:
        assert "new assignments in 10 minutes that no member caused: unknown" in found.why


def test_an_application_that_restarts_again_and_again_is_down_and_says_why_if_its_record_did() -> None:
    steps: list[Generation] = [STARTED]
    for n in range(4):
        begin = 600 + n * 150
        steps += [stopped(begin, 2 + 3 * n), refused(begin + 60, 1, 3 + 3 * n)]
    found = judged(*steps, seconds=1200, of_work=waits(1200, 600, progressed_at=at(590)))
    assert (found.verdict, found.since) == (DOWN, at(600))
    assert (
        "it was started 4 times and had members for 4m30s of 8m30s; in between it was Empty 4m (INCOMPLETE" in found.why
    )


def test_a_group_that_migrates_to_the_streams_protocol_keeps_its_verdict_until_it_is_judged_anew() -> None:
    board, before = Board(lambda _group_id: DEFAULTS), played(STARTED, stopped(300), seconds=700)
    board.step(Known({"g": before.group}, {"g": before.history}, work={"g": waits(700, 300)}), at(700))
    assert board.verdicts()["g"].verdict == DOWN
    streams = group_snapshot(to_row("c", fold(log(*FIRST_JOIN)).group))
    (change,) = board.step(Known({"g": streams}, work={"g": works(760, progressed_at=at(750))}), at(760))
    assert (change.verdict.verdict in {OK, IDLE}, PROTOCOL in change.verdict.evidence) == (True, False)


def test_of_members_that_nobody_saw_join_each_further_rebalance_does_not_begin_the_patience_again() -> None:
    """A job that starts in the middle: the first record that it reads is of a later generation, with members."""
    seen = [(n * 200, generation(n + 7, M1, M2, entered=at(n * 200))) for n in range(5)]
    found = judged(*seen, seconds=900, of_work=waits(900, 100, progressed_at=at(100), stalled=unmoved(at(100))))
    assert (found.verdict, found.since) == (STALLED, at(100))


def test_a_session_time_out_after_no_progress_is_the_same_outage() -> None:
    """All instances are killed at 300 s; with a session of ten minutes the record comes at 900 s."""
    board = Board(lambda _group_id: DEFAULTS)
    found: list[Verdict] = []
    for seconds, steps, of_work in (
        (290, [STARTED], works(290, arrived_at=at(290), progressed_at=at(290))),
        (620, [STARTED], waits(620, 300, progressed_at=at(300), stalled=unmoved(at(300)))),
        (1300, [STARTED, stopped(900)], waits(1300, 300, progressed_at=at(300))),
    ):
        facts = played(*steps, seconds=seconds)
        board.step(Known({"g": facts.group}, {"g": facts.history}, work={"g": of_work}), at(seconds))
        found.append(board.verdicts()["g"])
    assert [one.verdict for one in found] == [OK, STALLED, DOWN]
    assert [one.since for one in found[1:]] == [at(300), at(300)]
