"""What the statuses need after a restart of the job: it begins with the rows and samples that the run before stored."""

from __future__ import annotations

import pytest

from streaming_app.lag.model import Commit, LagRow
from streaming_app.lag.tracker import LagTracker
from tests.lag.test_status import go_on
from tests.support.lag_harness import GROUP, TASKS, TOPIC, TOPIC_ID, MiniCluster, fall_behind, keep_up


def restart(cluster: MiniCluster, stored: LagRow, topic_id: str | None = TOPIC_ID) -> None:
    samples = cluster.tracker.samples()[TOPIC, 0].pairs()
    cluster.tracker = LagTracker()
    cluster.tracker.restore_row(stored)
    cluster.tracker.restore_samples(TOPIC, 0, topic_id, samples)


def stop(cluster: MiniCluster) -> LagRow:
    """Let records come, and no commit, until that is STOPPED."""
    keep_up(cluster, 20)
    found = go_on(cluster, 6)[-1]
    assert found.status == "STOPPED"
    return found


def test_a_commit_that_went_back_while_the_job_did_not_run_is_rewound() -> None:
    cluster = MiniCluster(tasks=TASKS)
    keep_up(cluster, 20)
    before = cluster.step()
    restart(cluster, before)
    cluster.commit_offset(100)

    found = cluster.step()

    assert (found.status, found.rewound_from) == ("REWOUND", before.committed_offset)


@pytest.mark.parametrize("status", ["STALLED", "BEHIND"])
def test_one_more_commit_of_the_same_offset_is_stalled_only_where_it_was_before(status: str) -> None:
    cluster = MiniCluster(tasks=TASKS)
    before = fall_behind(cluster)
    while before.status != status:
        cluster.commit_offset(before.committed_offset or 0)
        before = cluster.step()
    restart(cluster, before)
    cluster.commit_offset(before.committed_offset or 0)

    found = cluster.step(10)

    assert (found.status, found.status_since) == (status, before.status_since)


def test_a_group_that_commits_every_ten_minutes_is_ok_in_between_also_after_a_restart() -> None:
    cluster = MiniCluster(tasks=TASKS)
    for number in range(100):
        if number % 20 == 0:
            cluster.commit_offset(cluster.end or 0)
        cluster.produce(100)
        before = cluster.step()
    restart(cluster, before)

    after = go_on(cluster, 15)

    assert {found.status for found in after} == {"OK"}
    assert {found.commit_interval_seconds for found in after} == {before.commit_interval_seconds}


@pytest.mark.parametrize(
    ("before", "kept"), [(TOPIC_ID, False), (None, True)], ids=["another topic", "it had no id that was known"]
)
def test_what_was_stored_of_a_topic_that_was_created_again_is_not_of_the_new_one(
    before: str | None, *, kept: bool
) -> None:
    cluster = MiniCluster(tasks=TASKS)
    stored = stop(cluster)
    restart(cluster, stored, before)
    cluster.topic_id = "zzWb5ZLaQh2q0mFYH7Yb2A"
    cluster.produce(100)
    cluster.commit_offset(100, topic_id=cluster.topic_id)

    found = cluster.step()

    assert (found.behind_since == stored.behind_since) is kept
    assert (len(cluster.tracker.samples()[TOPIC, 0]) > 1) is kept


@pytest.mark.parametrize(("is_first", "is_timed"), [(True, True), (False, True), (True, False), (False, False)])
def test_since_is_not_the_start_of_the_job_where_its_first_pass_knows_no_end_or_no_time_of_the_commit(
    *, is_first: bool, is_timed: bool
) -> None:
    """The leader is away then, or the offsets topic is not read up to the commit."""
    cluster = MiniCluster(tasks=TASKS, end=300)
    now = cluster.now
    samples = [(0, now - 7_200), (50, now - 3_600), (100, now - 1_800), (200, now - 1_500), (300, now - 60)]
    cluster.tracker.restore_samples(TOPIC, 0, TOPIC_ID, samples)
    for number in range(3):
        cluster.end = 300 + number if number or is_first else None
        cluster.commit = Commit(100, TOPIC_ID, 0, now - 1_800 if number or is_timed else None)
        cluster.step()

    stalled = cluster.tracker.work[GROUP].stalled

    assert stalled is not None
    assert stalled.since == now - 1_500


def test_a_time_that_comes_after_the_commit_of_a_group_that_moves_changes_nothing() -> None:
    """The clock of its broker is an hour late."""
    cluster = MiniCluster(tasks=TASKS)
    keep_up(cluster, 20)
    for at in (None, cluster.now - 3_600):
        cluster.commit = Commit(cluster.end, TOPIC_ID, 0, at)
        cluster.produce(100)
        cluster.step()
    assert cluster.tracker.work[GROUP].stalled is None
