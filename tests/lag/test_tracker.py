"""What the tracker knows of a partition from pass to pass, and what it forgets."""

from __future__ import annotations

import pytest

from streaming_app.lag.model import Commit, GroupTasks, LogEnds
from streaming_app.lag.tracker import LagTracker
from tests.lag.lag_harness import ALICE, GROUP, TOPIC, TOPIC_ID, MiniCluster, row

TASKS = GroupTasks(subtopology_of={TOPIC: "0"}, owners={("0", 0): ALICE}, has_members=True)
OTHER_ID = "zzWb5ZLaQh2q0mFYH7Yb2A"


def test_a_commit_that_was_gone_for_a_pass_begins_anew() -> None:
    cluster = MiniCluster(end=100)
    cluster.commit_offset(10, at=0.0)
    first = cluster.step()
    commit, cluster.commit = cluster.commit, None
    cluster.now += 30
    assert cluster.rows() == []

    cluster.commit = commit

    again = cluster.step()
    assert (first.behind_since, again.behind_since) == (cluster.now - 60, cluster.now)


def test_a_topic_that_was_created_again_while_its_id_was_not_known_is_noticed() -> None:
    cluster = MiniCluster(end=100)
    cluster.commit_offset(10)
    cluster.step()
    cluster.topic_id = None
    cluster.step()
    cluster.topic_id = OTHER_ID

    found = cluster.step()

    assert (found.status, found.behind_since) == ("RECREATED", None)
    assert cluster.tracker.topic_id(TOPIC) == OTHER_ID


def test_the_id_and_the_samples_of_a_topic_that_nobody_asks_for_are_forgotten() -> None:
    cluster = MiniCluster(end=100)
    cluster.commit_offset(10)
    cluster.step()
    assert set(cluster.tracker.samples()) == {(TOPIC, 0)}
    cluster.tracker.observe({}, {}, {}, cluster.now)
    assert (dict(cluster.tracker.samples()), cluster.tracker.topic_id(TOPIC)) == ({}, None)


def test_a_commit_without_the_id_of_its_topic_is_of_the_topic_that_is_there() -> None:
    cluster = MiniCluster(end=100)
    cluster.commit = Commit(10, None, 0, cluster.now)
    assert cluster.step().lag == 90


def test_the_last_offset_is_no_lag_if_it_is_the_marker_of_a_transaction() -> None:
    cluster = MiniCluster(tasks=TASKS, end=100)
    cluster.commit_offset(100)
    cluster.step()
    cluster.produce(1)
    new = cluster.step()
    assert (new.lag, new.lag_seconds) == (1, 30.0)

    marker = cluster.step()

    assert (marker.lag, marker.lag_seconds, marker.lag_seconds_is_lower_bound) == (1, 0.0, False)


def test_a_task_without_a_commit_has_a_row_with_its_owner_and_the_ends_of_its_log() -> None:
    cluster = MiniCluster(tasks=TASKS, end=100, start=7)
    cluster.commit = Commit(None)

    found = cluster.step()

    assert (found.subtopology_id, found.task_id) == ("0", "0_0")
    assert (found.member_id, found.process_id, found.client_host) == ALICE
    assert (found.log_start_offset, found.log_end_offset, found.last_stable_offset) == (7, 100, 100)
    assert (found.committed_offset, found.lag, found.status) == (None, None, "UNKNOWN")
    cluster.tasks = GroupTasks()
    without_topology = cluster.step()
    assert (without_topology.subtopology_id, without_topology.task_id) == (None, None)


def test_a_task_is_named_as_kafka_names_it() -> None:
    cluster = MiniCluster(tasks=TASKS, end=100)
    cluster.commit_offset(10)
    assert cluster.step().task_id == "0_0"


@pytest.mark.parametrize("since", [None, 999_000.0])
def test_a_rewind_of_an_earlier_run_lasts_an_hour_from_its_beginning(since: float | None) -> None:
    tracker, start = LagTracker(), 1_000_000.0
    tracker.restore_row(
        row(committed_offset=10, lag=90, status="REWOUND", status_since=since, rewound_from=80, observed_at=start)
    )
    begun = start if since is None else since
    tracker.restore_samples(TOPIC, 0, TOPIC_ID, [(100, begun - 10_000)])

    def status(now: float) -> str:
        ends = {(TOPIC, 0): LogEnds(100, 0, 100, TOPIC_ID)}
        (found,) = tracker.observe({(GROUP, TOPIC, 0): Commit(10, TOPIC_ID, 0, None)}, ends, {}, now)
        return found.status

    assert status(begun + 3600) == "REWOUND"
    assert status(begun + 3601) != "REWOUND"


def test_what_is_allowed_is_no_lag_and_more_than_that_is() -> None:
    cluster = MiniCluster(tracker=LagTracker(lambda group_id: 50 if group_id == GROUP else 0), end=100)
    cluster.commit_offset(50)
    assert cluster.step().behind_since is None
    cluster.produce(1)
    assert cluster.step().behind_since == cluster.now


def test_all_records_that_were_deleted_but_the_last_marker_are_lost_and_the_marker_alone_is_not() -> None:
    cluster = MiniCluster(end=100, start=100)
    cluster.commit_offset(99)
    assert (found := cluster.step()).status == "OK"
    assert (found.lost_offsets, found.lag) == (1, 0)
    cluster.commit_offset(98)
    assert cluster.step().status == "LOST"
    cluster.end, cluster.start = 200, 100
    cluster.commit_offset(99)
    assert cluster.step().status == "LOST"


def test_a_topic_whose_id_was_not_known_for_a_pass_is_the_same() -> None:
    cluster = MiniCluster(end=100)
    cluster.commit_offset(10)
    first = cluster.step()
    cluster.topic_id = None
    cluster.step()
    cluster.topic_id = TOPIC_ID

    assert cluster.step().behind_since == first.behind_since
    assert len(cluster.tracker.samples()[TOPIC, 0]) > 1


def test_one_record_of_ten_minutes_ago_is_lag_until_it_is_known_to_be_a_marker() -> None:
    cluster = MiniCluster(tasks=TASKS, end=100)
    cluster.commit_offset(100)
    cluster.step()
    cluster.produce(1)
    assert [cluster.step(600).status, cluster.step().status] == ["STOPPED", "OK"]
