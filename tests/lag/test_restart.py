"""What the statuses need after a restart of the job: it begins with the rows and samples that the run before stored."""

import pytest

from streaming_app.lag.model import Commit, LagRow
from streaming_app.lag.tracker import LagTracker
from tests.lag.test_status import go_on
from tests.support.lag_harness import GROUP, TASKS, TOPIC, TOPIC_ID, MiniCluster, fall_behind, keep_up


def restart(cluster: MiniCluster, stored: LagRow, topic_id: str | None = TOPIC_ID) -> None:
    samples = cluster.tracker.samples[TOPIC, 0].pairs()
    cluster.tracker = LagTracker()
    cluster.tracker.restore_row(stored)
    cluster.tracker.restore_samples(TOPIC, 0, topic_id, samples)


def test_since_when_records_wait_and_nothing_moves_is_as_before_a_restart_however_often_it_is_committed_again() -> None:
    cluster = MiniCluster(tasks=TASKS)
    before = fall_behind(cluster)
    for _ in range(5):
        restart(cluster, before)
        cluster.commit_offset(before.committed_offset or 0)
        after = cluster.step()
        names = ("waits_since", "unmoved_since", "offset_status_since", "owner_since")
        assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]
        before = after


@pytest.mark.parametrize(
    ("before", "kept"), [(TOPIC_ID, False), (None, True)], ids=["another topic", "it had no id that was known"]
)
def test_what_was_stored_of_a_topic_that_was_created_again_is_not_of_the_new_one(
    before: str | None, *, kept: bool
) -> None:
    cluster = MiniCluster(tasks=TASKS)
    keep_up(cluster, 20)
    stored = go_on(cluster, 6)[-1]
    restart(cluster, stored, before)
    cluster.topic_id = "zzWb5ZLaQh2q0mFYH7Yb2A"
    cluster.produce(100)
    cluster.commit_offset(100, topic_id=cluster.topic_id)
    found = cluster.step()
    assert (found.waits_since == stored.waits_since) is kept
    assert (len(cluster.tracker.samples[TOPIC, 0].pairs()) > 1) is kept


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
