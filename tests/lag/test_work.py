"""Whether work waits for a group, and whether it is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streaming_app.lag.model import GroupTasks, LagRow
from streaming_app.lag.work import GroupWork, observe_work, retention_seconds
from tests.lag.lag_harness import GROUP, TOPIC, row

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
) -> dict[str, GroupWork]:
    """Return the work after a pass for each entry, `seconds` apart."""
    known, now = dict(before or {}), T0
    for one in rows:
        those = one if isinstance(one, list) else [one]
        known, now = observe_work(those, tasks or {GROUP: RUNS}, known, now), now + seconds
    return known


def test_an_offset_that_does_not_move_while_records_wait_is_stalled_after_five_minutes() -> None:
    some = [owned(lag=10 + n, log_end_offset=100 + n) for n in range(12)]
    assert passes(some[:10])[GROUP].stalled is None
    stalled = passes(some)[GROUP].stalled
    assert (stalled.since, stalled.count, stalled.offsets) == (T0, 1, 21)


def test_it_is_stalled_also_while_the_group_rebalances_and_its_status_is_held() -> None:
    held = [owned(lag=10 + n, log_end_offset=100 + n, held_since=T0 + 30) for n in range(12)]
    tasks = {GROUP: replace(RUNS, rebalancing_since=T0)}
    assert passes(held, tasks)[GROUP].stalled


def test_a_group_that_commits_rarely_has_five_of_its_intervals() -> None:
    rare = [owned(lag=10 + n, log_end_offset=100 + n, commit_interval_seconds=256.0) for n in range(43)]
    assert passes(rare[:42])[GROUP].stalled is None
    assert passes([*rare, rare[-1]])[GROUP].stalled


def test_a_group_whose_first_commit_took_nine_minutes_has_half_as_long_again_for_the_second() -> None:
    new = owned(committed_offset=None, committed_at=None, lag=None, log_end_offset=100)
    first = owned(committed_offset=200, lag=0, log_end_offset=200, commit_interval_seconds=None)
    behind = first._replace(lag=300, log_end_offset=500)
    begin = [new, *[new._replace(log_end_offset=200)] * 9, first]
    assert passes([*begin, *[behind] * 14], seconds=60.0)[GROUP].stalled is None
    assert passes([*begin, *[behind] * 15], seconds=60.0)[GROUP].stalled


def test_one_that_moves_is_not_stalled_and_an_end_that_rests_one_ahead_is_no_work() -> None:
    moving = [owned(committed_offset=90 + n, log_end_offset=100 + n) for n in range(20)]
    assert passes(moving)[GROUP].stalled is None
    marker = passes([owned(lag=1)] * 20)[GROUP]
    assert (marker.waiting, marker.stalled) == (0, None)


def test_where_nothing_was_ever_committed_what_came_since_a_member_had_it_is_work() -> None:
    none = {"committed_offset": None, "committed_at": None, "lag": None, "lag_seconds": None, "status": "UNKNOWN"}
    rests = passes([owned(**none)] * 30)[GROUP]
    assert (rests.waiting, rests.stalled, rests.has_commits) == (0, None, False)
    comes = passes([owned(**none, log_end_offset=100 + 5 * n) for n in range(30)])[GROUP]
    assert (comes.waiting, comes.offsets, comes.stalled.count) == (1, 145, 1)


def test_a_stateful_task_that_came_to_another_member_may_restore_for_half_an_hour() -> None:
    tasks = {GROUP: replace(RUNS, stateful=frozenset({"0"}))}
    moved = [owned(member_id="m" if n < 4 else "other", lag=10 + n, log_end_offset=100 + n) for n in range(70)]
    assert passes(moved[:20], tasks)[GROUP].restoring.count == 1
    assert passes(moved[:20], tasks)[GROUP].stalled is None
    assert passes(moved, tasks)[GROUP].stalled.count == 1


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
    assert (some_away.stalled.count, some_away.unknown, some_away.known_at) == (1, 1, T0 + 900)


def test_after_a_restart_of_the_job_the_stored_rows_say_since_when() -> None:
    stored = owned(behind_since=T0 - 1000, committed_at=T0 - 900)
    stalled = passes([stored])[GROUP].stalled
    assert stalled.since == T0 - 900


@pytest.mark.parametrize(("seconds", "expected"), [([10.0, 70.0], 70.0), ([10.0, None], None)])
def test_a_group_catches_up_when_its_last_partition_does(seconds: list[float | None], expected: float | None) -> None:
    rows = [owned(partition=number, catch_up_seconds=one) for number, one in enumerate(seconds)]
    assert passes([rows])[GROUP].catch_up_seconds == expected


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


def test_a_group_of_which_one_partition_restores_and_one_is_stalled_has_one_of_each() -> None:
    tasks = {GROUP: GroupTasks({TOPIC: "0", "other": "1"}, stateful=frozenset({"1"}), has_members=True)}
    both = [
        [
            owned(lag=10 + n, log_end_offset=100 + n),
            owned(topic="other", subtopology_id="1", member_id="m" if n < 4 else "n", lag=5 + n, log_end_offset=95 + n),
        ]
        for n in range(20)
    ]
    work = passes(both, tasks)[GROUP]
    assert (work.stalled.count, work.stalled.offsets) == (1, 29)
    assert (work.restoring.count, work.restoring.offsets) == (1, 24)


def test_what_was_lost_is_counted_over_all_partitions() -> None:
    lost = [
        owned(partition=n, status="LOST", status_since=T0 - n, lost_offsets=count) for n, count in enumerate([7, 5])
    ]
    work = passes([[*lost, owned(partition=2, lost_offsets=None)]])[GROUP]
    assert (work.lost, work.lost_since, [one.partition for one in work.lost_rows]) == (12, T0 - 1, [0, 1])


def test_the_longest_time_between_records_is_known_and_slowly_forgotten() -> None:
    ends = [100, 110, 110, 110, 120, 130]
    works = [passes([owned(log_end_offset=end) for end in ends[: n + 1]])[GROUP] for n in range(len(ends))]
    assert [one.arrival_gap for one in works] == pytest.approx([0, 0, 0, 0, 90, 89.1])
    assert works[-1].arrived_at == T0 + 150
    assert works[3].arrived_at == T0 + 30


def test_only_topics_that_delete_by_age_have_a_retention() -> None:
    facts = [
        ("a", "retention.ms", "60000"),
        ("b", "retention.ms", "-1"),
        ("c", "retention.ms", "60000"),
        ("c", "cleanup.policy", "compact"),
        ("d", "retention.ms", "1000"),
        ("d", "cleanup.policy", "compact,delete"),
    ]
    assert retention_seconds(facts) == {"a": 60.0, "d": 1.0}
