"""What topics a topology has, how many partitions they have, and which of them a member serves at its endpoint."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import as_json, words
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse


def lag(topic: str, partition: int, subtopology_id: str | None = "0") -> dict[str, Any]:
    key = {"cluster": "default", "group_id": "orders", "topic": topic, "partition": partition}
    return {**key, "subtopology_id": subtopology_id, "offset_status": "OK"}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    parts = [
        subtopology_row(
            "0", changelogs=["orders-totals-changelog"], source_topics=["in"], source_topic_regex=["eu-.*"]
        ),
        subtopology_row("1", repartition=["orders-by-key-repartition"], source_topic_regex=["us-.*"]),
    ]
    parts[1]["repartition_source_topics"][0]["partitions"] = 4
    place = {"rack_id": "a", "user_endpoint": "h0.example:80", "client_tags": {"zone": "z", "cluster": "k"}}
    members = [member_row("m0", **place), member_row("m1")]
    tasks = [
        task_row("m0", "0_0", current=True, target=True),
        task_row("m0", "0_2", "standby", current=True),
        task_row("m0", "1_1", "warmup", current=True),
        task_row("m0", "0_1", pending_revocation=True),
        task_row("m1", "0_1", current=True),
    ]
    row = {"members": members, "assignments": tasks, "subtopologies": parts}
    append(path, "groups", group_row("orders", "Stable", **row))
    read = [lag("in", 0), lag("in", 1), lag("in", 2), lag("eu-west", 0), lag("eu-west", 1), lag("left-over", 0, None)]
    append(path, "lag", *read, *(lag("orders-by-key-repartition", number, "1") for number in range(3)))
    for topic, value in (("orders-by-key-repartition", "3, asked for 4"), ("orders-totals-changelog", "3")):
        fact = {"kind": "internal_topic", "subject": topic, "name": "partitions", "value": value, "group_id": "orders"}
        append(path, "broker_facts", fact)
    return path


def test_a_verbose_topology_lists_its_topics_as_they_are_and_as_they_were_asked_for(warehouse: Path) -> None:
    lines = words(warehouse, "describe", "orders", "--topology", "--verbose")
    begin = lines.index([]) + 1
    assert lines[begin : lines.index([], begin)] == [
        ["GROUP", "SUBTOPOLOGY", "TOPIC", "KIND", "PARTITIONS", "ASKED-FOR"],
        ["orders", "0", "in", "source", "3", "-"],
        ["orders", "0", "eu-west", "by", "pattern", "2", "-"],
        ["orders", "0", "orders-totals-changelog", "changelog", "3", "-"],
        ["orders", "1", "us-.*", "pattern", "-", "-"],
        ["orders", "1", "orders-by-key-repartition", "repartition", "3", "4"],
    ]
    (group,) = as_json(warehouse, "describe", "orders")
    assert group["topics"][-1] == {
        "subtopology_id": "1",
        "name": "orders-by-key-repartition",
        "kind": "repartition",
        "partitions": 3,
        "asked_for": 4,
    }


def test_verbose_members_say_where_they_are_and_which_partitions_their_endpoints_serve(warehouse: Path) -> None:
    header, first, second, blank, *endpoints = words(warehouse, "describe", "orders", "--members", "--verbose")
    places = slice(header.index("RACK"), header.index("CLIENT-TAGS") + 1)
    assert header[places] == ["RACK", "ENDPOINT", "CLIENT-TAGS"]
    assert first[places] == ["a", "h0.example:80", "zone=z,cluster=k"]
    assert second[places] == ["-", "-", "-"]
    assert (blank, endpoints) == (
        [],
        [
            ["GROUP", "ENDPOINT", "MEMBER", "ACTIVE-PARTITIONS", "STANDBY-PARTITIONS"],
            # The topic that the pattern matches has two partitions only.
            ["orders", "h0.example:80", "m0", "eu-west(0),", "in(0)", "in(2),", "orders-by-key-repartition(1)"],
        ],
    )
