"""Each status, from what a consumer and a producer do over time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming_app.lag.model import Commit, LagRow
from tests.support.lag_harness import TASKS, MiniCluster, keep_up


def kept_up(passes: int = 10) -> MiniCluster:
    """Return a cluster whose consumer has kept up so far."""
    cluster = MiniCluster(tasks=TASKS)
    keep_up(cluster, passes)
    return cluster


def go_on(cluster: MiniCluster, passes: int, seconds: float = 30.0) -> list[LagRow]:
    """Let records come and no commit; return the rows of these passes."""
    found = []
    for _ in range(passes):
        cluster.produce(100)
        found.append(cluster.step(seconds))
    return found


def test_the_status_of_a_consumer_that_stopped_stays_although_nothing_is_produced() -> None:
    cluster = kept_up()
    cluster.produce(100)

    ages = [cluster.step(600) for _ in range(6)]

    assert [found.status for found in ages[1:]] == ["STOPPED"] * 5
    assert ages[-1].lag_seconds is not None
    assert ages[-1].lag_seconds > 3000
    assert ages[1].status_since == ages[-1].status_since


def test_lag_that_falls_is_catching_up_and_says_how_long_it_takes() -> None:
    cluster = kept_up()
    offset = (cluster.end or 0) - 100
    cluster.produce(100_000)
    found = None
    for _ in range(30):
        offset += 1100
        cluster.commit_offset(offset)
        cluster.produce(100)
        found = cluster.step()

    assert found is not None
    assert found.status == "CATCHING_UP"
    assert found.catch_up_seconds == pytest.approx((found.lag or 0) / 1000 * 30, rel=0.05)


def test_a_commit_that_goes_back_is_rewound_until_it_is_reached_again() -> None:
    cluster = kept_up(20)
    before = cluster.end or 0
    cluster.commit_offset(100)
    found = cluster.step()
    assert (found.status, found.rewound_from) == ("REWOUND", before - 100)

    cluster.commit_offset(1000)
    assert cluster.step().status == "REWOUND"
    cluster.commit_offset(before)
    found = cluster.step()

    assert (found.status, found.rewound_from) == ("OK", None)


def test_a_commit_beyond_the_end_of_the_same_topic_is_ahead_of_the_log_once_the_end_was_asked_for_twice() -> None:
    cluster = MiniCluster()
    cluster.produce(100)
    cluster.commit_offset(101)

    first, second = cluster.step(), cluster.step()

    assert (first.status, first.lag) == ("UNKNOWN", None)
    assert (second.status, second.lag) == ("AHEAD", None)


def test_without_an_owner_the_lag_is_unowned() -> None:
    cluster = kept_up()
    cluster.tasks = replace(TASKS, owners={})
    statuses = [one.status for one in go_on(cluster, 4)]

    assert (statuses[0], statuses[-1]) == ("OK", "UNOWNED")


def test_the_status_is_held_while_the_group_rebalances() -> None:
    cluster = kept_up()
    cluster.tasks = replace(TASKS, owners={}, rebalancing_since=cluster.now)
    found = go_on(cluster, 10)[-1]
    assert (found.status, found.held_since) == ("OK", cluster.now - 30 * 7)

    cluster.tasks = TASKS
    found = cluster.step()

    assert (found.status, found.held_since) == ("STOPPED", None)


def test_a_topic_that_the_topology_does_not_read_is_left_over() -> None:
    cluster = MiniCluster(tasks=replace(TASKS, subtopology_of={"another": "0"}))
    cluster.produce(100)
    cluster.commit_offset(50)

    found = cluster.step()

    assert (found.status, found.lag, found.task_id) == ("LEFT_OVER", 50, None)


def test_while_commits_are_read_late_the_lag_is_not_known_and_the_status_is_held() -> None:
    cluster = kept_up()
    cluster.commits_until = cluster.now

    late = go_on(cluster, 20)
    cluster.commits_until = None
    cluster.commit_offset(cluster.end or 0)
    after = cluster.step()

    assert {found.status for found in late} == {"OK"}
    assert [found.lag is None for found in late] == [False] * 2 + [True] * 18
    assert [found.held_since is None for found in late] == [True] * 2 + [False] * 18
    assert (after.status, after.held_since) == ("OK", None)


def test_a_task_is_not_unowned_because_members_are_read_late() -> None:
    cluster = kept_up()
    cluster.members_until = cluster.now
    cluster.tasks = replace(TASKS, owners={})

    late = go_on(cluster, 20)

    assert {found.status for found in late} == {"OK"}
    assert late[-1].lag is not None


def test_an_offset_that_is_committed_again_after_its_commit_expired_is_a_commit() -> None:
    cluster = kept_up()
    offset = cluster.end or 0
    cluster.commit_offset(offset - 100)
    assert [cluster.step(300.0).status for _ in range(2)][-1] == "STOPPED"
    cluster.commit = Commit(None)
    cluster.step(300.0)

    cluster.commit_offset(offset - 100, at=cluster.now + 290)

    assert cluster.step(300.0).status != "STOPPED"
