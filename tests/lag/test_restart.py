"""What the statuses need after a restart of the job: it begins with the rows and samples that the run before stored."""

import pytest

from streaming_app.lag.model import LagRow
from streaming_app.lag.tracker import LagTracker
from tests.lag.test_status import go_on
from tests.support.lag_harness import TASKS, TOPIC, TOPIC_ID, MiniCluster, keep_up


def restart(cluster: MiniCluster, stored: LagRow, topic_id: str | None = TOPIC_ID) -> None:
    samples = cluster.tracker.samples[TOPIC, 0].pairs()
    cluster.tracker = LagTracker()
    cluster.tracker.restore_row(stored)
    cluster.tracker.restore_samples(TOPIC, 0, topic_id, samples)


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
