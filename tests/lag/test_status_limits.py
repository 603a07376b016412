"""Where one status ends and the next begins, to the pass, the offset and the commit."""

from __future__ import annotations

import pytest

from streaming_app.lag.tracker import LagTracker
from tests.lag.test_status import go_on
from tests.support.lag_harness import TASKS, MiniCluster, fall_behind, keep_up


def test_a_consumer_that_ends_is_ok_for_its_patience_and_stopped_after_as_long_without_a_commit() -> None:
    cluster = MiniCluster(tasks=TASKS)
    keep_up(cluster, 20, seconds=32.0)
    found = go_on(cluster, 4, 32.0)

    assert [one.lag_seconds for one in found] == [64.0, 96.0, 128.0, 160.0]  # three intervals of 32 s are 96 s
    assert [one.status for one in found] == ["OK", "OK", "STOPPED", "STOPPED"]


@pytest.mark.parametrize("seconds", [30.0, 60.0])
def test_the_third_commit_of_an_offset_is_stalled_if_the_first_is_a_minute_old(seconds: float) -> None:
    cluster = MiniCluster(tasks=TASKS)
    offset = fall_behind(cluster).committed_offset or 0
    statuses = []
    for _ in range(2):
        cluster.commit_offset(offset)
        statuses.append(cluster.step(seconds).status)

    assert statuses == ["BEHIND", "STALLED"]


@pytest.mark.parametrize(("late", "behind"), [(0.0, 2), (55.0, 4)])
def test_what_was_allowed_for_long_is_stopped_a_minute_after_it_is_more(late: float, behind: int) -> None:
    cluster = MiniCluster(LagTracker(lambda _group_id: 50), tasks=TASKS)
    cluster.produce(100)
    cluster.commit_offset(100)
    cluster.step()
    cluster.produce(50)
    assert {cluster.step().status for _ in range(40)} == {"OK"}
    cluster.produce(1)

    statuses = []
    for _ in range(behind + 1):
        cluster.commits_until = cluster.now + 30 - late
        statuses.append(cluster.step().status)

    assert statuses == [*["BEHIND"] * behind, "STOPPED"]


def test_a_lag_that_is_at_least_a_minute_old_is_unknown_and_one_of_more_is_judged() -> None:
    cluster = MiniCluster(tasks=TASKS)
    cluster.produce(1000)
    cluster.commit_offset(10)

    found = [cluster.step() for _ in range(4)]

    assert [one.lag_seconds for one in found] == [None, 30.0, 60.0, 90.0]
    assert [one.status for one in found] == ["UNKNOWN", "UNKNOWN", "UNKNOWN", "STOPPED"]
