"""Who catches up: what waits, or the age of its oldest record, falls so fast that nothing is left within six hours."""

from collections.abc import Callable

import pytest

from streaming_app.lag.model import LagRow
from streaming_app.lag.tracker import LagTracker
from tests.support.lag_harness import GROUP, TASKS, TOPIC, TOPIC_ID, MiniCluster, keep_up


def lag_for(
    minutes: float, records: Callable[[int], int], commits: Callable[[int], int], cluster: MiniCluster | None = None
) -> tuple[MiniCluster, list[LagRow]]:
    """Let so many records come and be committed in each pass; return the cluster and the rows of the passes."""
    if cluster is None:
        cluster = MiniCluster(tasks=TASKS)
        keep_up(cluster)
    offset, found = (cluster.commit and cluster.commit.offset) or 0, []
    for n in range(round(2 * minutes)):
        cluster.produce(records(n))
        offset = min(cluster.end or 0, offset + commits(n))
        cluster.commit_offset(offset)
        found.append(cluster.step())
    return cluster, found


def test_a_record_is_late_from_ten_minutes_on_until_none_so_old_waits() -> None:
    cluster, found = lag_for(25, lambda _: 100, lambda _: 50)
    first = next(n for n, one in enumerate(found) if one.late_since is not None)
    assert (found[first].lag_seconds or 0) >= 600 > (found[first - 1].lag_seconds or 0)
    since = found[first].late_since
    assert since is not None
    assert found[first - 1].observed_at < since <= found[first].observed_at
    assert {one.late_since for one in found[first:]} == {since}
    _, found = lag_for(2, lambda _: 0, lambda _: 100_000, cluster)
    assert (found[-1].late_since, found[-1].slow_since, found[-1].catch_up_seconds) == (None, None, None)


@pytest.mark.parametrize(
    ("records", "commits", "catches_up"),
    [(100, 50, False), (100, 100, False), (100, 101, False), (100, 150, True), (0, 50, True)],
    ids=["it falls back", "it stays", "in more than six hours", "it catches up", "nothing comes any more"],
)
def test_who_catches_up_within_six_hours_is_not_slow(records: int, commits: int, *, catches_up: bool) -> None:
    cluster, _ = lag_for(40, lambda _: 200, lambda _: 50)
    _, found = lag_for(15, lambda _: records, lambda _: commits, cluster)
    last = found[-1]
    assert last.slow_since is not None
    assert (last.slow_since == cluster.now) is catches_up
    assert (last.catch_up_seconds is not None and last.catch_up_seconds <= 6 * 3600) is catches_up


def test_slow_counts_from_when_offsets_move_again_and_goes_on_over_a_restart() -> None:
    cluster, _ = lag_for(30, lambda _: 100, lambda _: 0)
    moves_at = cluster.now
    _, found = lag_for(10, lambda _: 100, lambda _: 100, cluster)
    assert found[-1].slow_since == moves_at
    assert cluster.tracker.work[GROUP].progress[TOPIC, 0].is_late
    tracker = LagTracker()
    tracker.restore_row(found[-1])
    tracker.restore_samples(TOPIC, 0, TOPIC_ID, cluster.tracker.samples[TOPIC, 0].pairs())
    cluster.tracker = tracker
    _, after = lag_for(3, lambda _: 100, lambda _: 100, cluster)
    names = ("late_since", "slow_since")
    assert [getattr(after[-1], name) for name in names] == [getattr(found[-1], name) for name in names]
