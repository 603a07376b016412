"""The comparison of one row with one description: every field, and those that only one side has."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from streaming_app.checks.compare import differences

G = "g"


def task(role: str, partition: int, *, current: bool = True, target: bool = True, member: str = "m") -> dict[str, Any]:
    return {
        "member_id": member,
        "role": role,
        "subtopology_id": "0",
        "partition": partition,
        "current": current,
        "target": target,
        "pending_revocation": not current,
    }


def internal_topic(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": [("k", "v")]}


_BOTH: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 5,
    "instance_id": None,
    "rack_id": "r",
    "client_id": "c",
    "client_host": "/h",
    "topology_epoch": 1,
    "process_id": "p",
}
ROW: dict[str, Any] = {
    "state": "Stable",
    "readiness_recorded": True,
    "group_epoch": 5,
    "assignment_epoch": 5,
    "assigned_at": "then",
    "topology_epoch": 1,
    "subtopologies": [
        {
            "subtopology_id": "0",
            "source_topics": ["a", "b"],
            "source_topic_regex": [],
            "repartition_sink_topics": ["s"],
            "repartition_source_topics": [internal_topic("fixed", 3), internal_topic("computed", 0)],
            "state_changelog_topics": [internal_topic("c", 0)],
        }
    ],
    "members": [{**_BOTH, "user_endpoint": "host:80", "client_tags": {"zone": "a"}}],
    "assignments": [
        task("active", 10),
        task("active", 2),
        task("active", 3, current=False),
        task("standby", 1, target=False),
    ],
}


def ids(*partitions: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": list(partitions)}] if partitions else []


def described_topic(name: str, partitions: int) -> dict[str, Any]:
    return {**internal_topic(name, partitions), "topic_configs": [{"key": "k", "value": "v"}]}


DESCRIPTION: dict[str, Any] = {
    "error_code": 0,
    "group_state": "Stable",
    "group_epoch": 5,
    "assignment_epoch": 5,
    "topology": {
        "epoch": 1,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": ["b", "a"],
                "repartition_sink_topics": ["s"],
                "repartition_source_topics": [described_topic("fixed", 3), described_topic("computed", 7)],
                "state_changelog_topics": [described_topic("c", 7)],
            }
        ],
    },
    "members": [
        {
            **_BOTH,
            "user_endpoint": {"host": "host", "port": 80},
            "client_tags": [{"key": "zone", "value": "a"}],
            "task_offsets": [{"subtopology_id": "0", "partition": 1, "offset": 4}],
            "assignment": {"active_tasks": ids(2, 10), "standby_tasks": ids(1), "warmup_tasks": []},
            "target_assignment": {"active_tasks": ids(10, 3, 2), "standby_tasks": [], "warmup_tasks": []},
        }
    ],
}
PART, MEMBER = ("topology", "subtopologies", 0), ("members", 0)


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    description = deepcopy(DESCRIPTION)
    parent: Any = description
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return description


def test_a_row_and_a_description_of_the_same_group_do_not_differ() -> None:
    assert differences(G, ROW, DESCRIPTION) == []


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the path of each value and list in a description, and another value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        yield path, [] if value else ids(5)
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path, value + 1 if isinstance(value, int) else f"{value}x"


def is_in_log(path: tuple[Any, ...]) -> bool:
    """Return whether the log has what the description has there, and not only the broker's memory."""
    computed = {(*PART, "repartition_source_topics", 1), (*PART, "state_changelog_topics", 0)}
    return not ({"task_offsets", "error_code"} & {*path} or (path[-1] == "partitions" and path[:-1] in computed))


@pytest.mark.parametrize(("path", "value"), [*leaves(DESCRIPTION)], ids=str)
def test_every_field_that_differs_is_reported(path: tuple[Any, ...], value: Any) -> None:
    """What the log does not contain is not compared."""
    assert bool(differences(G, ROW, changed(path, value))) is is_in_log(path)


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("group_epoch",), 6, "group_epoch: 5 in the tables, 6 on the broker"),
        ((*PART, "subtopology_id"), "1", "subtopologies[0]: present in the tables, absent on the broker"),
        (("members",), [], "members[m]: present in the tables, absent on the broker"),
        ((*MEMBER, "user_endpoint"), None, "members[m].user_endpoint: host:80 in the tables, none on the broker"),
        ((*MEMBER, "assignment", "active_tasks"), ids(2), "members[m].active: {'0': [2, 10]} in the tables, "),
        ((*MEMBER, "target_assignment", "warmup_tasks"), ids(1), "members[m].target_warmup: none in the tables, "),
        (("error_code",), 69, "group: Stable in the tables, absent on the broker"),
    ],
)
def test_a_difference_is_a_line(path: tuple[Any, ...], value: Any, line: str) -> None:
    lines = [str(one) for one in differences(G, ROW, changed(path, value))]
    assert lines[0].startswith(f"{G} {line}")
    renamed = path[-1] == "subtopology_id"  # then one is missing on each side
    assert len(lines) == (2 if renamed else 1)


def test_rows_whose_description_depends_on_more_than_the_log_are_equal_to_it() -> None:
    part, member = ROW["subtopologies"][0], ROW["members"][0]
    with_pattern = {**ROW, "subtopologies": [{**part, "source_topic_regex": ["a.*"]}]}  # only a broker resolves it
    assert differences(G, with_pattern, changed((*PART, "source_topics"), ["a", "b", "ab"])) == []
    unassigned = {**ROW, "members": [{**member, "member_epoch": None}]}  # before its first assignment
    assert differences(G, unassigned, changed((*MEMBER, "member_epoch"), 0)) == []
    row = {**ROW, "topology_epoch": None, "subtopologies": []}
    assert differences(G, row, changed(("topology",), None)) == []
    assert [one.field for one in differences(G, row, DESCRIPTION)] == ["subtopologies[0]", "topology_epoch"]


@pytest.mark.parametrize(("epoch", "agrees"), [(0, True), (1, True), (2, False)])
def test_the_epoch_before_the_first_assignment_depends_on_the_release_and_not_on_the_log(
    epoch: int, agrees: bool
) -> None:
    row = {**ROW, "assignment_epoch": 1, "assigned_at": None}
    assert (differences(G, row, changed(("assignment_epoch",), epoch)) == []) is agrees
    assigned = {**row, "assigned_at": "then"}
    assert (differences(G, assigned, changed(("assignment_epoch",), epoch)) == []) is (epoch == 1)


def test_state_and_topology_that_a_4_1_broker_does_not_make_available_are_not_compared() -> None:
    row = {**ROW, "state": "Unknown", "readiness_recorded": False}
    assert differences(G, row, changed(("topology",), None)) == []
    assert differences(G, row, DESCRIPTION) == []
    (missing,) = differences(G, row, changed(("error_code",), 69))
    assert str(missing) == "g group: Unknown in the tables, absent on the broker"
    renamed = changed(("topology", "subtopologies", 0, "subtopology_id"), "1")
    assert len(differences(G, row, renamed)) == 2
