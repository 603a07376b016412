"""Whether work waits for a group, and whether it is done."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streaming_app.lag.ends import Tail
from streaming_app.lag.model import Commit, GroupTasks, LagRow
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import NO_WORK, GroupWork, group_work, retention_seconds
from tests.support.lag_harness import GROUP, TOPIC, MiniCluster, at_pass, pass_over, row, work_of

T0 = 1_000_000.0
RUNS = GroupTasks(subtopology_of={TOPIC: "0"}, has_members=True)
ENDED = replace(RUNS, has_members=False)


def owned(**fields: Any) -> LagRow:
    return row(**{"member_id": "m", "subtopology_id": "0", "task_id": "0_0", "committed_at": T0, **fields})


def passes(
    rows: Iterable[LagRow | list[LagRow]],
    tasks: Mapping[str, GroupTasks] | None = None,
    tracker: LagTracker | None = None,
    tail: Tail | None = None,
) -> Mapping[str, GroupWork]:
    """Return the work after a pass over what makes each entry, 30 s apart."""
    known, now = tracker or LagTracker(), T0
    for one in rows:
        pass_over(known, one if isinstance(one, list) else [one], tasks or {GROUP: RUNS}, now, tail)
        now += 30.0
    return known.work


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


def test_one_that_moves_is_not_stalled_and_where_no_record_waits_there_is_no_work() -> None:
    moving = [owned(committed_offset=90 + n, log_end_offset=100 + n) for n in range(20)]
    assert passes(moving)[GROUP].stalled is None
    marker = passes([owned(log_end_offset=93)] * 20, tail=Tail(93, empty_from=90, empty_to=93))[GROUP]
    assert (marker.waiting, marker.stalled) == (0, None)
    one_record = passes([owned(log_end_offset=91)] * 20, tail=Tail(91, record_at=90))[GROUP]
    assert (one_record.waiting, one_record.stalled is None) == (1, False)
    unreadable = passes([owned(log_end_offset=93)] * 20, tail=Tail(93, is_denied=True))[GROUP]
    assert (unreadable.stalled, unreadable.is_blind) == (None, True)
    slow = passes([owned(log_end_offset=91 + n, committed_offset=90) for n in range(20)])[GROUP]
    assert (slow.waiting, slow.stalled.count) == (1, 1)


def test_where_nothing_was_ever_committed_what_came_since_a_member_had_it_is_work() -> None:
    none = {"committed_offset": None, "committed_at": None}
    rests = passes([owned(**none)] * 30)[GROUP]
    assert (rests.waiting, rests.stalled, rests.has_commits) == (0, None, False)
    no_member = [owned(**none, log_end_offset=100 + 5 * n, member_id=None if n < 29 else "m") for n in range(30)]
    assert [passes(no_member[:count])[GROUP].waiting for count in (29, 30)] == [0, 0]
    assert passes([*no_member, no_member[-1]._replace(log_end_offset=250)])[GROUP].offsets == 5
    comes = passes([owned(**none, log_end_offset=100 + 5 * n) for n in range(30)])[GROUP]
    assert (comes.waiting, comes.offsets, comes.stalled.count) == (1, 145, 1)


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


@pytest.mark.parametrize(("start", "end", "waiting"), [(None, 0, 0), (None, 1, 1), (0, 1, 1), (1, 1, 0), (99, 100, 1)])
def test_a_topic_that_was_created_again_has_work_if_its_log_has_records(
    start: int | None, end: int, waiting: int
) -> None:
    cluster = MiniCluster(end=end, start=start, topic_id="another", commit=Commit(90, "id", 0, T0))
    found = [cluster.step() for _ in range(11)][-1]
    work = cluster.tracker.work[GROUP]
    assert (found.offset_status, work.waiting, work.offsets) == ("RECREATED", waiting, 0)
    assert (work.stalled is not None) == bool(waiting)


@pytest.mark.parametrize(
    ("fields", "uncertain"),
    [
        ({"log_start_offset": 99}, 1),
        ({"log_start_offset": 100}, 0),
        ({"log_start_offset": None, "log_end_offset": 1}, 1),
        ({"log_start_offset": None, "log_end_offset": 0}, 0),
        ({"log_start_offset": 0, "log_end_offset": None}, 0),
        ({"log_start_offset": 0, "committed_offset": 90, "log_end_offset": 90}, 0),
    ],
    ids=str,
)
def test_whether_a_group_is_to_read_records_without_a_commit_is_uncertain(
    fields: dict[str, Any], uncertain: int
) -> None:
    one = owned(**{"committed_offset": None, "committed_at": None, **fields})
    assert passes([one])[GROUP].uncertain == uncertain
    if uncertain:
        come = passes([one, one._replace(log_end_offset=(one.log_end_offset or 0) + 5)])[GROUP]
        assert (come.waiting, come.uncertain) == (1, 0)


def test_what_waits_is_as_old_as_its_oldest_record_or_where_no_age_is_known_as_the_work() -> None:
    rows = [row(lag_seconds=40.0), row(partition=1, lag_seconds=300.0), row(topic="b", lag_seconds=7.0)]
    work = work_of(rows, T0)[GROUP]
    assert (work.waits_since, work.oldest) == (T0 - 300, {TOPIC: T0 - 300, "b": T0 - 7})
    no_age = group_work(GROUP, [Standing(row(lag_seconds=None), waits_since=T0 - 90)], at_pass(T0), NO_WORK)
    assert (no_age and no_age.waits_since, no_age and no_age.oldest) == (T0 - 90, {})
    assert work_of([row(lag=0)], T0)[GROUP].waits_since is None


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
