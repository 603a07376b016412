"""One row against one description: what is compared, field by field, and what neither side can know."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from streaming_app.verify.compare import differences

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


def internal(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": [("k", "v")]}


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
            "repartition_source_topics": [internal("fixed", 3), internal("open", 0)],
            "state_changelog_topics": [internal("c", 0)],
        }
    ],
    "members": [
        {
            "member_id": "m",
            "member_epoch": 5,
            "instance_id": None,
            "rack_id": "r",
            "client_id": "c",
            "client_host": "/h",
            "topology_epoch": 1,
            "process_id": "p",
            "user_endpoint": "host:80",
            "client_tags": {"zone": "a"},
        }
    ],
    "assignments": [
        task("active", 10),
        task("active", 2),
        task("active", 3, current=False),
        task("standby", 1, target=False),
    ],
}


def ids(*partitions: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": list(partitions)}] if partitions else []


def told_internal(name: str, partitions: int) -> dict[str, Any]:
    return {**internal(name, partitions), "topic_configs": [{"key": "k", "value": "v"}]}


TOLD: dict[str, Any] = {
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
                "repartition_source_topics": [told_internal("fixed", 3), told_internal("open", 7)],
                "state_changelog_topics": [told_internal("c", 7)],
            }
        ],
    },
    "members": [
        {
            "member_id": "m",
            "member_epoch": 5,
            "instance_id": None,
            "rack_id": "r",
            "client_id": "c",
            "client_host": "/h",
            "topology_epoch": 1,
            "process_id": "p",
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
    told = deepcopy(TOLD)
    where: Any = told
    for step in path[:-1]:
        where = where[step]
    where[path[-1]] = value
    return told


def test_two_spellings_of_the_same_group_do_not_differ() -> None:
    assert differences(G, ROW, TOLD) == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("group_state",), "Assigning", "state: tables say Stable, broker says Assigning"),
        (("group_epoch",), 6, "group_epoch: tables say 5, broker says 6"),
        (("assignment_epoch",), 4, "assignment_epoch: tables say 5, broker says 4"),
        (("topology", "epoch"), 2, "topology_epoch: tables say 1, broker says 2"),
        ((*PART, "source_topics"), ["a"], "subtopologies[0].source_topics: tables say ['a', 'b'], broker says ['a']"),
        ((*PART, "repartition_sink_topics"), [], "subtopologies[0].repartition_sink_topics: tables say ['s'], "),
        ((*PART, "repartition_source_topics", 0, "partitions"), 4, "subtopologies[0].repartition_source_topics: "),
        ((*PART, "repartition_source_topics", 1, "name"), "x", "subtopologies[0].repartition_source_topics: "),
        ((*PART, "state_changelog_topics"), [], "subtopologies[0].state_changelog_topics: "),
        ((*PART, "state_changelog_topics", 0, "replication_factor"), 3, "subtopologies[0].state_changelog_topics: "),
        ((*PART, "state_changelog_topics", 0, "topic_configs"), [], "subtopologies[0].state_changelog_topics: "),
        ((*PART, "subtopology_id"), "1", "subtopologies[0]: tables say present, broker says absent"),
        (("members",), [], "members[m]: tables say present, broker says absent"),
        ((*MEMBER, "member_epoch"), -2, "members[m].member_epoch: tables say 5, broker says -2"),
        ((*MEMBER, "instance_id"), "i", "members[m].instance_id: tables say none, broker says i"),
        ((*MEMBER, "rack_id"), None, "members[m].rack_id: tables say r, broker says none"),
        ((*MEMBER, "client_id"), "x", "members[m].client_id: tables say c, broker says x"),
        ((*MEMBER, "client_host"), "/x", "members[m].client_host: tables say /h, broker says /x"),
        ((*MEMBER, "topology_epoch"), 2, "members[m].topology_epoch: tables say 1, broker says 2"),
        ((*MEMBER, "process_id"), "x", "members[m].process_id: tables say p, broker says x"),
        ((*MEMBER, "user_endpoint"), None, "members[m].user_endpoint: tables say host:80, broker says none"),
        ((*MEMBER, "client_tags"), [], "members[m].client_tags: tables say {'zone': 'a'}, broker says none"),
        ((*MEMBER, "assignment", "active_tasks"), ids(2), "members[m].active: tables say {'0': [2, 10]}, "),
        ((*MEMBER, "assignment", "standby_tasks"), [], "members[m].standby: tables say {'0': [1]}, broker says none"),
        ((*MEMBER, "assignment", "warmup_tasks"), ids(5), "members[m].warmup: tables say none, broker says "),
        ((*MEMBER, "target_assignment", "active_tasks"), [], "members[m].target_active: tables say {'0': [2, 3, 10]}"),
        ((*MEMBER, "target_assignment", "standby_tasks"), ids(1), "members[m].target_standby: tables say none, "),
        ((*MEMBER, "target_assignment", "warmup_tasks"), ids(1), "members[m].target_warmup: tables say none, "),
        (("error_code",), 69, "group: tables say Stable, broker says absent"),
    ],
)
def test_every_field_that_differs_is_told(path: tuple[Any, ...], value: Any, line: str) -> None:
    told = [str(one) for one in differences(G, ROW, changed(path, value))]
    assert told[0].startswith(f"{G} {line}")
    renamed = path[-1] == "subtopology_id"  # then one is missing on each side
    assert len(told) == (2 if renamed else 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*PART, "repartition_source_topics", 1, "partitions"), 100),
        ((*PART, "state_changelog_topics", 0, "partitions"), 100),
        ((*MEMBER, "task_offsets"), []),
        ((*MEMBER, "assignment", "warmup_tasks"), [{"subtopology_id": "0", "partitions": []}]),
    ],
)
def test_what_the_log_does_not_hold_is_not_compared(path: tuple[Any, ...], value: Any) -> None:
    assert differences(G, ROW, changed(path, value)) == []


def test_a_pattern_stands_for_topics_that_only_the_broker_can_name() -> None:
    row = {**ROW, "subtopologies": [{**ROW["subtopologies"][0], "source_topic_regex": ["a.*"]}]}
    assert differences(G, row, changed((*PART, "source_topics"), ["a", "b", "ab"])) == []


def test_a_member_before_its_first_assignment_has_epoch_0_at_the_broker() -> None:
    row = {**ROW, "members": [{**ROW["members"][0], "member_epoch": None}]}
    assert differences(G, row, changed((*MEMBER, "member_epoch"), 0)) == []


def test_a_group_without_topology_is_told_as_such() -> None:
    row = {**ROW, "topology_epoch": None, "subtopologies": []}
    assert differences(G, row, changed(("topology",), None)) == []
    assert [one.field for one in differences(G, row, TOLD)] == ["subtopologies[0]", "topology_epoch"]


@pytest.mark.parametrize(("said", "agrees"), [(0, True), (1, True), (2, False)])
def test_the_epoch_before_the_first_assignment_depends_on_the_release_and_not_on_the_log(
    said: int, agrees: bool
) -> None:
    row = {**ROW, "assignment_epoch": 1, "assigned_at": None}
    assert (differences(G, row, changed(("assignment_epoch",), said)) == []) is agrees
    assigned = {**row, "assigned_at": "then"}
    assert (differences(G, assigned, changed(("assignment_epoch",), said)) == []) is (said == 1)


def test_a_4_1_broker_may_keep_state_and_topology_to_itself() -> None:
    row = {**ROW, "state": "Unknown", "readiness_recorded": False}
    assert differences(G, row, changed(("topology",), None)) == []
    assert differences(G, row, TOLD) == []
    (gone,) = differences(G, row, changed(("error_code",), 69))
    assert str(gone) == "g group: tables say Unknown, broker says absent"
    part_gone = changed(("topology", "subtopologies", 0, "subtopology_id"), "1")
    assert len(differences(G, row, part_gone)) == 2
