"""Whether work waits for a group, and whether it is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streaming_app.lag.model import Commit, GroupTasks, LagRow, LogEnds, Owner
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import STALLED_SECONDS, GroupWork, observe_work, retention_seconds
from tests.support.lag_harness import GROUP, TOPIC, row

T0 = 1_000_000.0
RUNS = GroupTasks(subtopology_of={TOPIC: "0"}, has_members=True)
ENDED = replace(RUNS, has_members=False)


def owned(**fields: Any) -> LagRow:
    return row(**{"member_id": "m", "subtopology_id": "0", "task_id": "0_0", "committed_at": T0, **fields})


def passes(
    rows: Iterable[LagRow | list[LagRow]],
    tasks: Mapping[str, GroupTasks] | None = None,
    before: Mapping[str, GroupWork] | None = None,
    seconds: float = 30.0,
    patience: float = STALLED_SECONDS,
) -> dict[str, GroupWork]:
    """Return the work after a pass for each entry, `seconds` apart."""
    known, now = dict(before or {}), T0
    for one in rows:
        those = one if isinstance(one, list) else [one]
        known = observe_work(those, tasks or {GROUP: RUNS}, known, now, patience=lambda _group_id: patience)
        now += seconds
    return known


def test_an_offset_that_does_not_move_while_records_wait_is_stalled_after_five_minutes() -> None:
    some = [owned(lag=10 + n, log_end_offset=100 + n) for n in range(11)]
    assert passes(some[:10])[GROUP].stalled is None
    stalled = passes(some)[GROUP].stalled
    assert (stalled.since, stalled.count, stalled.offsets, stalled.unowned) == (T0, 1, 20, 0)


def test_the_first_stalled_partitions_are_named_by_topic_and_partition() -> None:
    rows = [
        owned(topic=topic, partition=partition, task_id=f"0_{partition}", member_id="m" if partition else None)
        for partition in range(12)
        for topic in ("b", "a")
    ]
    stalled = passes([rows] * 11)[GROUP].stalled
    assert stalled.count == 24
    assert [(one.topic, one.partition) for one in stalled.named] == [
        *(("a", n) for n in range(12)),
        *(("b", n) for n in range(8)),
    ]
    assert (stalled.unowned, len(stalled.tasks)) == (2, 12)


def test_it_is_stalled_also_while_the_group_rebalances_and_its_status_is_held() -> None:
    held = [owned(lag=10 + n, log_end_offset=100 + n, held_since=T0 + 30) for n in range(12)]
    tasks = {GROUP: replace(RUNS, rebalancing_since=T0)}
    assert passes(held, tasks)[GROUP].stalled


def test_the_patience_of_a_group_counts_whether_it_ever_committed() -> None:
    none = {"committed_offset": None, "committed_at": None, "lag": None, "lag_seconds": None, "status": "UNKNOWN"}
    comes = [owned(**none, log_end_offset=100 + 5 * n) for n in range(42)]
    rare = [owned(lag=10 + n, log_end_offset=100 + n, commit_interval_seconds=256.0) for n in range(42)]
    for rows, first in ((comes, 1), (rare, 0)):
        for patience in (300.0, 1_200.0):
            count = first + round(patience / 30)
            assert passes(rows[:count], patience=patience)[GROUP].stalled is None
            assert passes(rows[: count + 1], patience=patience)[GROUP].stalled


def test_one_that_moves_is_not_stalled_and_an_end_that_rests_one_ahead_is_no_work() -> None:
    moving = [owned(committed_offset=90 + n, log_end_offset=100 + n) for n in range(20)]
    assert passes(moving)[GROUP].stalled is None
    marker = passes([owned(lag=3, lag_seconds=0.0)] * 20)[GROUP]
    assert (marker.waiting, marker.stalled) == (0, None)
    one_record = passes([owned(lag=1)] * 20)[GROUP]
    assert (one_record.waiting, one_record.stalled is None) == (1, False)
    unreadable = passes([owned(lag=3, lag_seconds=None, lag_seconds_is_lower_bound=None, log_end_offset=100)] * 20)
    assert unreadable[GROUP].stalled is None
    slow = passes([owned(lag=1, log_end_offset=100 + n) for n in range(20)])[GROUP]
    assert (slow.waiting, slow.stalled.count) == (1, 1)


def test_where_nothing_was_ever_committed_what_came_since_a_member_had_it_is_work() -> None:
    none = {"committed_offset": None, "committed_at": None, "lag": None, "lag_seconds": None, "status": "UNKNOWN"}
    rests = passes([owned(**none)] * 30)[GROUP]
    assert (rests.waiting, rests.stalled, rests.has_commits) == (0, None, False)
    no_member = [owned(**none, log_end_offset=100 + 5 * n, member_id=None if n < 29 else "m") for n in range(30)]
    assert [passes(no_member[:count])[GROUP].waiting for count in (29, 30)] == [0, 0]
    assert passes([*no_member, no_member[-1]._replace(log_end_offset=250)])[GROUP].offsets == 5
    comes = passes([owned(**none, log_end_offset=100 + 5 * n) for n in range(30)])[GROUP]
    assert (comes.waiting, comes.offsets, comes.stalled.count) == (1, 145, 1)


def test_a_stateful_task_that_came_to_another_member_may_restore_for_half_an_hour() -> None:
    tasks = {GROUP: replace(RUNS, stateful=frozenset({"0"}))}
    moved = [owned(member_id="m" if n < 4 else "other", lag=10 + n, log_end_offset=100 + n) for n in range(70)]
    assert passes(moved[:10], tasks)[GROUP].restoring is None  # not stalled yet
    for some in (moved[:20], moved[:64]):  # the other came at 120 s, and the last of these is at 1890 s
        assert passes(some, tasks)[GROUP].restoring.count == 1
        assert passes(some, tasks)[GROUP].stalled is None
    assert passes(moved[:65], tasks)[GROUP].stalled.count == 1


@pytest.mark.parametrize(
    ("owners", "restores"),
    [
        ({0: "a", 10: "b"}, True),
        ({0: "a", 10: None}, False),
        ({0: "a", 10: None, 12: "a"}, False),
        ({0: None, 10: "b"}, True),
        ({0: "a", 10: "b", 50: "c", 69: "d"}, False),
        ({0: "a", 60: "b"}, True),
    ],
)
def test_a_task_restores_half_an_hour_from_the_first_member_that_it_came_to_since_it_moved(
    owners: dict[int, str | None], *, restores: bool
) -> None:
    tasks = {GROUP: replace(RUNS, stateful=frozenset({"0"}))}
    rows = [
        owned(member_id=owners[max(came for came in owners if came <= n)], committed_offset=min(90, 88 + n))
        for n in range(max(*owners, 30) + 10)
    ]
    work = passes(rows, tasks)[GROUP]
    assert (work.restoring is not None, work.stalled is not None) == (restores, not restores)


@pytest.mark.parametrize("state", ["stable_since", "rebalancing_since"])
@pytest.mark.parametrize(("seconds", "restores"), [(1799, True), (1800, False)])
def test_a_run_that_begins_knows_by_the_state_of_the_group_when_its_tasks_came(
    state: str, seconds: float, *, restores: bool
) -> None:
    stored = owned(behind_since=T0 - 5000, committed_at=T0 - 5000)
    tasks = replace(RUNS, stateful=frozenset({"0"}), **{state: T0 - seconds})
    work = passes([stored], {GROUP: tasks})[GROUP]
    assert (work.restoring is not None, work.stalled is not None) == (restores, not restores)


def test_a_pass_that_knows_nothing_leaves_what_was_known_as_it_was() -> None:
    some = [owned(lag=10 + n, log_end_offset=100 + n) for n in range(12)]
    known = passes(some)
    away = owned(lag=None, log_end_offset=None, status="UNKNOWN")
    after = observe_work([away], {GROUP: RUNS}, known, T0 + 900)
    assert after == {GROUP: replace(known[GROUP], is_blind=True)}
    assert observe_work([away], {GROUP: RUNS}, after, T0 + 930) == after
    assert observe_work(some[-1:], {GROUP: RUNS}, after, T0 + 960)[GROUP].seen_again_at == T0 + 960
    assert known[GROUP].seen_again_at is None
    some_away = observe_work([away, owned(partition=1, lag=0)], {GROUP: RUNS}, known, T0 + 900)[GROUP]
    assert some_away.offsets == 0
    assert (some_away.stalled.count, some_away.unknown, some_away.known_at) == (1, 1, T0 + 900)


@pytest.mark.parametrize(
    ("status", "since", "stalled_since"),
    [("STALLED", T0 - 900, T0 - 900), ("STALLED", None, None), ("BEHIND", T0 - 900, None)],
)
def test_after_a_restart_an_offset_that_is_committed_again_and_again_has_not_moved(
    status: str, since: float | None, stalled_since: float | None
) -> None:
    stored = owned(status=status, status_since=since, behind_since=T0 - 1000, committed_at=T0 - 10)
    stalled = passes([stored])[GROUP].stalled
    assert (stalled and stalled.since) == stalled_since


def test_a_topic_that_was_created_again_has_work_if_its_log_has_records() -> None:
    again = owned(status="RECREATED", lag=None, lag_seconds=None)
    work = passes([again] * 11)[GROUP]
    assert (work.waiting, work.stalled.count, work.offsets) == (1, 1, 0)
    for start, end, waiting in ((None, 0, 0), (None, 1, 1), (0, 1, 1), (1, 1, 0), (99, 100, 1)):
        assert passes([again._replace(log_start_offset=start, log_end_offset=end)])[GROUP].waiting == waiting


@pytest.mark.parametrize(
    ("fields", "uncertain"),
    [
        ({"log_start_offset": 99}, 1),
        ({"log_start_offset": 100}, 0),
        ({"log_start_offset": None, "log_end_offset": 1}, 1),
        ({"log_start_offset": None, "log_end_offset": 0}, 0),
        ({"log_start_offset": 0, "log_end_offset": None}, 0),
        ({"log_start_offset": 0, "committed_offset": 90, "lag": 0}, 0),
    ],
    ids=str,
)
def test_whether_a_group_is_to_read_records_without_a_commit_is_uncertain(
    fields: dict[str, Any], uncertain: int
) -> None:
    without = {"committed_offset": None, "committed_at": None, "lag": None, "lag_seconds": None}
    one = owned(status="UNKNOWN", **{**without, **fields})
    assert passes([one])[GROUP].uncertain == uncertain
    if uncertain:
        come = passes([one, one._replace(log_end_offset=(one.log_end_offset or 0) + 5)])[GROUP]
        assert (come.waiting, come.uncertain) == (1, 0)


def test_what_waits_is_as_old_as_its_oldest_record_or_where_no_age_is_known_as_the_work() -> None:
    moves = [
        [owned(committed_offset=90 + n, lag_seconds=40.0), owned(partition=1, committed_offset=n, lag_seconds=300.0)]
        for n in range(5)
    ]
    work = passes(moves)[GROUP]
    assert work.waits_since == T0 + 4 * 30 - 300
    assert work.oldest == {TOPIC: T0 + 4 * 30 - 300}
    unknown = [[one._replace(lag_seconds=None) for one in rows] for rows in moves]
    assert passes(unknown)[GROUP].waits_since == T0
    assert passes([owned(lag=0)])[GROUP].waits_since is None


def test_what_was_lost_is_counted_over_all_partitions() -> None:
    lost = [
        owned(partition=n, status="LOST", status_since=T0 - n, lost_offsets=count) for n, count in enumerate([7, 5])
    ]
    held = owned(partition=2, status="LOST", status_since=T0, lag=None, lost_offsets=None)
    work = passes([[*lost, held, owned(partition=3, lost_offsets=None)]])[GROUP]
    assert (work.lost, work.lost_since, [one.partition for one in work.lost_rows]) == (12, T0 - 1, [0, 1, 2])


def test_only_topics_that_delete_by_age_have_a_retention() -> None:
    facts = [
        ("a", "retention.ms", "60000"),
        ("b", "retention.ms", "-1"),
        ("c", "retention.ms", "60000"),
        ("c", "cleanup.policy", "compact"),
        ("d", "retention.ms", "1000"),
        ("d", "cleanup.policy", "compact,delete"),
        ("e", "retention.ms", None),
        ("f", "retention.ms", "0"),
        ("g", "retention.ms", "1"),
        ("g", "retention.bytes", "1000"),
    ]
    assert retention_seconds(facts) == {"a": 60.0, "d": 1.0, "g": 0.001}


def test_a_group_that_commits_while_old_records_wait_is_not_stalled_when_a_run_begins() -> None:
    busy = {"committed_at": T0 - 20, "lag": 1_000_000, "lag_seconds": 90_000.0, "status": "BEHIND"}
    assert passes([owned(**busy)])[GROUP].stalled is None


@pytest.mark.parametrize(
    ("committed", "samples", "since"),
    [
        (T0 - 1800, [(5, T0 - 3600), (20, T0 - 2400), (90, T0 - 60)], T0 - 1800),
        (T0 - 3600, [(10, T0 - 3000), (20, T0 - 900), (90, T0 - 60)], T0 - 900),
        (T0 - 259_200, [(10, T0 - 3600), (10, T0 - 300), (11, T0 - 60)], None),
    ],
    ids=["the commit is later", "the record arrived later", "idle for three days, and a record came a minute ago"],
)
def test_a_run_that_begins_in_the_middle_counts_from_the_last_commit_or_the_arrival_of_what_waits(
    committed: float, samples: list[tuple[int, float]], since: float | None
) -> None:
    tracker = LagTracker()
    tracker.restore_samples(TOPIC, 0, "id", samples)
    ends = {(TOPIC, 0): LogEnds(100, 0, 100, "id", T0, T0, 1, T0)}
    tasks = {GROUP: replace(RUNS, owners={("0", 0): Owner("m", "p", "10.0.0.1")})}
    rows = tracker.observe({(GROUP, TOPIC, 0): Commit(10, "id", 0, committed)}, ends, tasks, T0)
    stalled = observe_work(rows, tasks, {}, T0)[GROUP].stalled
    assert (stalled and stalled.since) == since
