"""What the tracker knows of a partition from pass to pass, and what it forgets."""

from dataclasses import replace

import pytest

from streaming_app.lag import partition_progress
from streaming_app.lag.ends import LogEnds, Tail
from streaming_app.lag.measure import measure
from streaming_app.lag.model import NO_TASKS, Commit, GroupTasks, LagRow, ReadUntil
from streaming_app.lag.tracker import LagTracker
from tests.support.lag_harness import GROUP, TASKS, TOPIC, TOPIC_ID, MiniCluster, row

NOW = 1_000_000.0
UP_TO_NOW = ReadUntil(NOW, NOW)


def observe(commit: Commit, ends: LogEnds, tasks: GroupTasks = NO_TASKS, read_until: ReadUntil = UP_TO_NOW) -> LagRow:
    """Return the row of a single pass, the first one."""
    (found,) = LagTracker().observe(
        {(GROUP, TOPIC, 0): commit}, {(TOPIC, 0): ends}, {GROUP: tasks}, NOW, {GROUP: read_until}
    )
    return found


@pytest.mark.parametrize("since", [None, 999_000.0])
def test_a_rewind_of_an_earlier_run_lasts_an_hour_from_its_beginning(since: float | None) -> None:
    tracker, start = LagTracker(), 1_000_000.0
    tracker.restore_row(
        row(
            committed_offset=10,
            lag=90,
            offset_status="REWOUND",
            offset_status_since=since,
            rewound_from=80,
            observed_at=start,
        )
    )
    begun = start if since is None else since
    tracker.restore_samples(TOPIC, 0, TOPIC_ID, [(100, begun - 10_000)])

    def status(now: float) -> str:
        ends = {(TOPIC, 0): LogEnds(100, 0, 100, TOPIC_ID)}
        (found,) = tracker.observe({(GROUP, TOPIC, 0): Commit(10, TOPIC_ID, 0, None)}, ends, {}, now)
        return found.offset_status

    assert status(begun + 3600) == "REWOUND"
    assert status(begun + 3601) != "REWOUND"


@pytest.mark.parametrize(
    ("before", "kept"), [(TOPIC_ID, False), (None, True)], ids=["another topic", "it had no id that was known"]
)
def test_what_was_stored_of_a_topic_that_was_created_again_is_not_of_the_new_one(
    before: str | None, *, kept: bool
) -> None:
    tracker, stored = LagTracker(), row(waits_since=NOW - 600, offset_status="WAITS")
    tracker.restore_row(stored)
    tracker.restore_samples(TOPIC, 0, before, [(80, NOW - 900), (90, NOW - 600)])
    cluster = MiniCluster(tracker, tasks=TASKS, end=100, topic_id="another", commit=Commit(90, "another", 0, NOW - 600))
    assert (cluster.step().waits_since == stored.waits_since) is kept
    assert (len(tracker.samples[TOPIC, 0].pairs()) > 1) is kept


def test_whether_what_was_deleted_unseen_at_the_end_were_records_is_not_known_and_a_marker_alone_is_none() -> None:
    cluster = MiniCluster(end=100, start=100)
    cluster.commit_offset(99)
    assert (found := cluster.step()).offset_status == "OK"
    assert (found.lost_offsets, found.lag) == (1, 0)
    cluster.commit_offset(98)
    assert (found := cluster.step()).offset_status == "UNKNOWN"
    assert (found.lost_offsets, found.lag) == (None, 0)
    cluster.end, cluster.start = 200, 100
    cluster.commit_offset(99)
    assert cluster.step().offset_status == "LOST"


@pytest.mark.parametrize(("asked", "status"), [(55.0, "LOST"), (54.0, "WAITS")])
def test_a_loss_is_proven_if_the_commits_are_known_up_to_when_the_start_was(asked: float, status: str) -> None:
    cluster = MiniCluster(tasks=TASKS, end=100, start=50)
    cluster.commit_offset(10)
    cluster.commits_until = cluster.now - 25
    cluster.start_at = cluster.now + 30 - asked
    assert cluster.step().offset_status == status


@pytest.mark.parametrize("offset", [None, 10])
@pytest.mark.parametrize(
    ("asked_at", "answered_at", "commits_until", "observed_at", "known_until"),
    [
        (NOW - 5, NOW - 5, NOW, NOW - 5, NOW - 5),
        (NOW - 5, NOW - 5, NOW - 20, NOW - 5, NOW - 20),
        (None, NOW - 600, NOW, NOW, NOW - 600),
        (None, None, NOW, NOW, None),
        (NOW - 5, NOW - 5, 0.0, NOW - 5, None),
    ],
)
def test_a_row_is_known_until_both_the_commits_and_the_end_of_the_log_are(
    asked_at: float | None,
    answered_at: float | None,
    commits_until: float,
    observed_at: float,
    known_until: float | None,
    offset: int | None,
) -> None:
    ends = LogEnds(100, 0, at=asked_at, answered_at=answered_at)
    found = observe(Commit(offset), ends, read_until=ReadUntil(commits_until, NOW))
    assert (found.observed_at, found.known_until) == (observed_at, known_until)


@pytest.mark.parametrize(
    ("offset", "end", "status"), [(100, 100, "OK"), (101, 100, "RECREATED"), (100, None, "UNKNOWN")]
)
def test_without_ids_only_a_commit_beyond_the_end_is_of_another_topic(
    offset: int, end: int | None, status: str
) -> None:
    assert observe(Commit(offset), LogEnds(end, 0)).offset_status == status


@pytest.mark.parametrize(
    ("tail", "status", "lost"),
    [
        (Tail(100, record_at=85), "LOST", 20),
        (Tail(100, empty_from=80, empty_to=100), "OK", 0),
        (Tail(100, empty_from=80, empty_to=90), "UNKNOWN", None),
        (Tail(100, is_denied=True), "UNKNOWN", None),
    ],
)
def test_what_was_read_before_it_was_deleted_says_whether_records_are_lost(
    tail: Tail, status: str, lost: int | None
) -> None:
    cluster = MiniCluster(end=100, tail=tail)
    cluster.commit_offset(80)
    cluster.step()
    cluster.step()
    cluster.start = 100
    found = cluster.step()
    assert (found.offset_status, found.lost_offsets, found.lag) == (status, lost, 0)


def test_where_nobody_may_read_whether_records_wait_is_not_known_while_the_end_rests() -> None:
    cluster = MiniCluster(end=100, tail=Tail(100, is_denied=True))
    cluster.commit_offset(80)
    cluster.step()
    found = cluster.step()
    assert (found.offset_status, found.lag) == ("UNKNOWN", 20)
    assert (found.lag_seconds, found.lag_seconds_is_lower_bound) == (None, None)


@pytest.mark.parametrize("commit", [Commit(100, TOPIC_ID, 0, NOW), Commit(None)])
def test_a_pass_measures_a_partition_again_only_if_something_has_changed(
    commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = MiniCluster(tasks=replace(TASKS, stable_since=NOW), end=100, commit=commit)
    measured = list[float]()
    monkeypatch.setattr(partition_progress, "measure", lambda *seen: measured.append(cluster.now) or measure(*seen))
    assert [cluster.step().known_until for _ in range(4)][-1] == cluster.now
    cluster.produce(1)
    cluster.step()
    assert measured == [NOW + 30, NOW + 150]
