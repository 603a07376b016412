"""Who catches up: what waits, or the age of its oldest record, falls so fast that nothing is left within six hours."""

from collections.abc import Callable

import pytest

from streaming_app.lag.model import LagRow
from tests.support.lag_harness import TASKS, MiniCluster, keep_up


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
