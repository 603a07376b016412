"""Topics to tasks to members."""

from datetime import datetime, timezone
from typing import Any

import pytest

from streaming_app.lag.model import NO_TASKS, Owner, TopicNode, group_tasks

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


def test_the_content_of_a_topology_has_internal_topics_without_the_prefix_of_the_group() -> None:
    one = subtopology("0", "app-orders", repartition=("app-by-key",))
    one["state_changelog_topics"] = [{"name": "shared-sums-changelog"}, {"name": "app-orders"}]
    content = group_tasks(group(subtopologies=[one]), lambda _pattern: ()).content
    assert content == {
        TopicNode("0", "app-orders", is_internal=False),
        TopicNode("0", "by-key", is_internal=True),
        TopicNode("0", "shared-sums-changelog", is_internal=True),
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


def test_deleted_groups_and_those_that_became_classic_have_no_tasks() -> None:
    assert group_tasks(group(deleted_at=SINCE), lambda _pattern: ()) is NO_TASKS
    assert group_tasks(group(group_type="classic"), lambda _pattern: ()) is NO_TASKS
