"""Topics to tasks to members, and sums over them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.lag.model import NO_TASKS, LagRow, Node, Owner, group_tasks, source_topics
from streaming_app.lag.status import BY_RANK, STATUSES
from streaming_app.lag.sums import KEYS, lag_sums
from tests.support.lag_harness import row

SINCE = datetime(2026, 3, 14, tzinfo=timezone.utc)


def subtopology(name: str, *topics: str, regex: tuple[str, ...] = (), repartition: tuple[str, ...] = ()) -> Any:
    return {
        "subtopology_id": name,
        "source_topics": list(topics),
        "source_topic_regex": list(regex),
        "repartition_source_topics": [{"name": topic} for topic in repartition],
        "state_changelog_topics": [],
    }


def group(**fields: Any) -> dict[str, Any]:
    member = {"member_id": "m", "process_id": "p", "client_host": "/10.0.0.1"}
    tasks = [
        {"member_id": "m", "role": role, "subtopology_id": "0", "partition": partition, "current": current}
        for partition, (role, current) in enumerate([("active", True), ("standby", True), ("active", False)])
    ]
    return {
        "group_id": "app",
        "group_type": "streams",
        "state": "Stable",
        "state_since": SINCE,
        "member_count": 1,
        "deleted_at": None,
        "subtopologies": [
            subtopology("0", "orders", repartition=("app-by-key",)),
            subtopology("1", regex=("click.*",)),
        ],
        "members": [member],
        "assignments": tasks,
        **fields,
    }


def test_a_topic_belongs_to_the_subtopology_that_names_it_or_whose_regex_matches() -> None:
    tasks = group_tasks(group(), lambda pattern: {"click.*": ["clicks", "orders"]}[pattern])

    assert tasks.subtopology_of == {"orders": "0", "app-by-key": "0", "clicks": "1"}
    assert source_topics(group()) == {"orders", "app-by-key"}


def test_the_content_of_a_topology_has_internal_topics_without_the_prefix_of_the_group() -> None:
    one = subtopology("0", "app-orders", repartition=("app-by-key",))
    one["state_changelog_topics"] = [{"name": "shared-sums-changelog"}, {"name": "app-orders"}]
    content = group_tasks(group(subtopologies=[one]), lambda _pattern: ()).content
    assert content == {
        Node("0", "app-orders", is_internal=False),
        Node("0", "by-key", is_internal=True),
        Node("0", "shared-sums-changelog", is_internal=True),
    }


def test_the_owner_is_the_member_that_has_the_task_now_as_active() -> None:
    tasks = group_tasks(group(), lambda _pattern: ())

    assert tasks.owners == {("0", 0): Owner("m", "p", "10.0.0.1")}
    assert (tasks.rebalancing_since, tasks.stable_since) == (None, SINCE.timestamp())


def test_a_task_of_a_member_that_the_row_does_not_have_has_no_owner() -> None:
    left = {"member_id": "left", "role": "active", "subtopology_id": "0", "partition": 3, "current": True}
    tasks = group_tasks(group(assignments=[*group()["assignments"], left]), lambda _pattern: ())

    assert set(tasks.owners) == {("0", 0)}


@pytest.mark.parametrize("column", ["members", "assignments", "subtopologies", "state_since"])
def test_a_row_that_lacks_a_column_still_has_the_rest(column: str) -> None:
    found = group_tasks(group(**{column: None, "state": "Assigning"}), lambda _pattern: ())

    has_owners = column not in {"members", "assignments"}
    assert found.owners == ({("0", 0): Owner("m", "p", "10.0.0.1")} if has_owners else {})
    assert found.rebalancing_since == (0.0 if column == "state_since" else SINCE.timestamp())
    assert found.stable_since is None
    assert source_topics(group(**{column: None})) == (set() if column == "subtopologies" else {"orders", "app-by-key"})


def test_deleted_groups_and_those_that_became_classic_have_no_tasks() -> None:
    assert group_tasks(group(deleted_at=SINCE), lambda _pattern: ()) is NO_TASKS
    assert group_tasks(group(group_type="classic"), lambda _pattern: ()) is NO_TASKS


rows = st.lists(
    st.builds(
        lambda group_id, topic, partition, lag, owner, status, age, known_until: row(
            group_id=group_id,
            topic=topic,
            partition=partition,
            lag=None if status == "UNKNOWN" else lag,
            lag_seconds=None if status == "UNKNOWN" else age[0],
            lag_seconds_is_lower_bound=None if status == "UNKNOWN" else age[1],
            known_until=known_until,
            committed_offset=None if status == "UNKNOWN" and lag == 0 else 90,
            subtopology_id="0" if owner is not None else None,
            task_id=None if owner is None else f"0_{partition}",
            member_id=owner or None,
            process_id=owner or None,
            client_host=owner or None,
            status=status,
        ),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y", "z"]),
        st.integers(0, 5),
        st.sampled_from([0, 0, 1, 2, 10**12]),
        st.sampled_from([None, "", "m1", "m2"]),
        st.sampled_from(sorted(STATUSES)),
        st.tuples(st.sampled_from([0.0, 0.5, 40.0]), st.booleans()),
        st.sampled_from([None, 100.0, 200.0, 300.0]),
    ),
    max_size=40,
)


@given(rows)
def test_every_sum_is_over_the_same_lag(found: list[LagRow]) -> None:
    counted = [one for one in found if one.status != "LEFT_OVER"]
    in_tasks = [one for one in counted if one.task_id is not None]
    for by in KEYS:
        expected = in_tasks if by in {"subtopology", "task", "member", "process", "host"} else counted
        sums = lag_sums(found, by)
        assert sum(one.lag or 0 for one in sums) == sum(one.lag or 0 for one in expected)
        assert sum(one.partitions for one in sums) == len(expected)
        lags = [-1 if one.lag is None else one.lag for one in sums]
        assert lags == sorted(lags, reverse=True)
        assert len({one.key for one in sums}) == len(sums)


@given(rows)
def test_a_sum_is_over_the_partitions_whose_lag_is_known_and_as_bad_as_the_worst_with_a_commit(
    found: list[LagRow],
) -> None:
    for one in lag_sums(found, "group"):
        those = [row for row in found if row.group_id == one.key[0] and row.status != "LEFT_OVER"]
        committed = [row for row in those if row.committed_offset is not None]
        known = [row for row in committed if row.lag is not None]
        assert one.status == min((row.status for row in committed), key=BY_RANK.index, default="UNKNOWN")
        assert one.lag == (sum(row.lag or 0 for row in known) if known else None)
        assert one.known_until == min((row.known_until for row in those if row.known_until is not None), default=None)
        assert one.partitions_without_commit == len(those) - len(committed)
        assert one.partitions_behind == sum(row.status != "OK" for row in committed)
        assert one.unknown_partitions == sum(row.lag is None for row in those)
        if not known:
            assert (one.max_lag, one.worst, one.lag_seconds) == (None, None, None)
            continue
        worst = max(known, key=lambda row: row.lag or 0)
        assert (one.max_lag, one.worst) == (worst.lag, (worst.topic, worst.partition))
        oldest = max(known, key=lambda row: row.lag_seconds or 0.0)
        assert one.lag_seconds == oldest.lag_seconds
        bounds = any(row.lag_seconds_is_lower_bound for row in known)
        assert one.is_lower_bound == (bounds or one.unknown_partitions > 0)


def test_an_age_of_at_least_50_seconds_beside_one_of_100_is_at_least_100() -> None:
    exact = row(lag_seconds=100.0, lag_seconds_is_lower_bound=False)
    bound = row(partition=1, lag_seconds=50.0, lag_seconds_is_lower_bound=True)
    for those in ([exact, bound], [bound, exact]):
        (found,) = lag_sums(those, "group")
        assert (found.lag_seconds, found.is_lower_bound) == (100.0, True)


def test_partitions_without_a_commit_are_counted_and_say_nothing_of_the_status() -> None:
    without = row(committed_offset=None, lag=None, lag_seconds=None, status="UNKNOWN", partition=1)
    (found,) = lag_sums([without, row(), without._replace(partition=2)], "group")
    assert (found.partitions, found.partitions_without_commit, found.partitions_behind) == (3, 2, 0)
    assert (found.lag, found.status) == (10, "OK")
    (nothing,) = lag_sums([without], "group")
    assert (nothing.lag, nothing.status, nothing.partitions_without_commit) == (None, "UNKNOWN", 1)


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({"log_end_offset": None}, 1),
        ({"status": "RECREATED"}, 1),
        ({"status": "RECREATED", "log_start_offset": 9, "log_end_offset": 9}, 1),
        ({"committed_offset": None, "log_end_offset": None}, 1),
        ({"committed_offset": None, "log_start_offset": 5, "log_end_offset": 9}, 1),
        ({"committed_offset": None, "log_start_offset": 9, "log_end_offset": 9}, 0),
        ({"status": "LEFT_OVER"}, 0),
    ],
    ids=lambda value: "" if isinstance(value, int) else ",".join(value),
)
def test_a_sum_counts_the_partitions_of_which_the_lag_is_not_known(fields: dict[str, object], unknown: int) -> None:
    missing = row(partition=1, **{"lag": None, "lag_seconds": None, "status": "UNKNOWN", **fields})
    for rows in ([row(), missing], [missing, row()]):
        (found,) = lag_sums(rows, "group")
        assert (found.lag, found.unknown_partitions, found.is_lower_bound) == (10, unknown, unknown > 0)
