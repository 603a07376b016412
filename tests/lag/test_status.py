"""Each status, from what a consumer and a producer do over time: only what offsets prove."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from streaming_app.lag.model import NO_TASKS, Commit, LagRow
from streaming_app.lag.statuses import STATUSES
from tests.support.lag_harness import TASKS, TOPIC_ID, MiniCluster, keep_up

NOBODY = replace(TASKS, owners={})


def kept_up() -> MiniCluster:
    """Return a cluster whose consumer has kept up so far."""
    cluster = MiniCluster(tasks=TASKS)
    keep_up(cluster)
    return cluster


def go_on(cluster: MiniCluster, passes: int) -> list[LagRow]:
    """Let records come and no commit; return the rows of these passes."""
    found = []
    for _ in range(passes):
        cluster.produce(100)
        found.append(cluster.step())
    return found


def is_late(cluster: MiniCluster, commits: float = 0.0, members: float = 0.0) -> None:
    cluster.commits_until, cluster.members_until = cluster.now - commits, cluster.now - members


CHANGES: dict[str, list[Callable[[MiniCluster], object]]] = {
    "LEFT_OVER": [
        lambda it: setattr(it, "tasks", replace(TASKS, subtopology_of={"another": "0"})),
        lambda it: (setattr(it, "tasks", replace(TASKS, subtopology_of={"another": "0"})), setattr(it, "end", None)),
    ],
    "RECREATED": [lambda it: setattr(it, "topic_id", "zzWb5ZLaQh2q0mFYH7Yb2A")],
    "AHEAD": [lambda it: (it.commit_offset((it.end or 0) + 9), it.step())],
    "UNKNOWN": [
        lambda it: setattr(it, "end", None),
        lambda it: setattr(it, "commit", Commit(None)),
        lambda it: is_late(it, commits=61),
    ],
    "LOST": [lambda it: setattr(it, "start", (it.end or 0) - 5)],
    "OK": [lambda it: it.commit_offset(it.end or 0)],
    "REWOUND": [
        lambda it: it.commit_offset(10),
        lambda it: (it.commit_offset(10), setattr(it, "tasks", NOBODY)),
        lambda it: (it.commit_offset(10), it.step(), it.commit_offset(500)),
    ],
    "UNOWNED": [
        lambda it: setattr(it, "tasks", NOBODY),
        lambda it: setattr(it, "tasks", replace(NO_TASKS, has_members=False)),
    ],
    "WAITS": [
        lambda it: go_on(it, 100),
        lambda it: setattr(it, "tasks", NO_TASKS),
        lambda it: (setattr(it, "tasks", NOBODY), is_late(it, members=61)),
        lambda it: (it.commit_offset(10), it.step(3500), it.step(200)),
        lambda it: (it.commit_offset(10), it.step(), it.commit_offset((it.end or 0) - 100)),
    ],
}


@pytest.mark.parametrize(("status", "change"), [(one, it) for one, those in CHANGES.items() for it in those])
def test_the_first_status_that_applies_is_what_the_offsets_prove(
    status: str, change: Callable[[MiniCluster], object]
) -> None:
    cluster = kept_up()
    before = cluster.step()
    assert before.offset_status == "WAITS"
    change(cluster)
    found = cluster.step()
    assert (found.offset_status, STATUSES.index(status) >= 0) == (status, True)
    assert found.waits_since is None if status == "OK" else found.waits_since is not None


def test_at_the_last_stable_offset_it_is_held_and_without_members_it_waits() -> None:
    for tasks, status in ((TASKS, "HELD"), (replace(NO_TASKS, has_members=False), "UNOWNED")):
        cluster = MiniCluster(tasks=tasks, end=100, stable=90)
        cluster.commit_offset(90)
        row = [cluster.step() for _ in range(3)][-1]
        assert (row.offset_status, row.lag, row.waits_since is None) == (status, 10, status == "HELD")


def test_without_a_commit_it_waits_where_records_came_since_a_member_had_it() -> None:
    cluster = MiniCluster(tasks=TASKS)
    cluster.commit = Commit(None)
    assert cluster.step().offset_status == "OK"
    began = cluster.step()
    cluster.produce(100)
    waits = [cluster.step() for _ in range(3)][-1]
    assert (waits.offset_status, waits.unmoved_since, waits.waits_since) == (
        "WAITS",
        began.observed_at - 30,
        began.observed_at + 30,
    )
    cluster = MiniCluster(tasks=TASKS, end=100)
    cluster.commit = Commit(None)
    assert cluster.step().offset_status == "UNKNOWN"


def test_since_when_nothing_moves_is_since_the_last_change_of_the_offset_or_not_known() -> None:
    cluster = kept_up()
    moved_at = cluster.commit and cluster.commit.committed_at
    for again in range(20):
        cluster.produce(100)
        cluster.commit_offset((cluster.commit and cluster.commit.offset) or 0)
        found = cluster.step()
        assert found.unmoved_since == moved_at, again
    untimed = MiniCluster(tasks=TASKS, end=100, commit=Commit(50, TOPIC_ID))
    assert untimed.step().unmoved_since is None


def test_offsets_that_are_set_back_twice_have_to_come_to_where_they_were_at_first() -> None:
    cluster, found = MiniCluster(end=100, tasks=TASKS), []
    for offset in (80, 10, 5, 50, 79, 80, 90, 20):
        cluster.commit_offset(offset)
        found.append(cluster.step(1.0).rewound_from)
    assert found == [None, 80, 80, 80, 80, None, None, 90]


def test_records_wait_since_a_clock_that_was_set_back_says_so() -> None:
    cluster = MiniCluster(end=10, commit=Commit(0, TOPIC_ID))
    assert [cluster.step(seconds).waits_since for seconds in (0.0, -600.0)] == [1_000_000.0, 999_400.0]
