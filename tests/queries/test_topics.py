"""What topics a topology has, how many partitions they have, and which of them a member serves at its endpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.queries.topics import served, topics_of
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology
from tests.cli.commands import as_json, words
from tests.support.container import Broker
from tests.support.offsets_log import FoldedLog, RawRecord
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
    read = [lag("in", 0), lag("in", 1), lag("in", 2), lag("eu-west", 0), lag("left-over", 0, None)]
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
        ["orders", "0", "eu-west", "by", "pattern", "1", "-"],
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
            # The topic that the pattern matches has one partition only.
            ["orders", "h0.example:80", "m0", "eu-west(0),", "in(0)", "in(2),", "orders-by-key-repartition(1)"],
        ],
    )


@pytest.mark.broker
def test_what_a_member_serves_is_what_brokers_say_to_all_members(
    client: StreamsGroupClient,
    broker: Broker,
    unique: Callable[[str], str],
    read_offsets: Callable[..., list[RawRecord]],
) -> None:
    group_id, large, small = unique("app"), unique("large"), unique("small")
    repartition, changelog = f"{group_id}-by-key-repartition", f"{group_id}-totals-changelog"
    client.create_topic(large, 4)
    client.create_topic(small, 2)
    client.configure_group(group_id, {"streams.num.standby.replicas": 1})
    parts = topology(
        subtopology("0", source_topics=[large, small], repartition_sink_topics=[repartition]),
        subtopology(
            "1",
            repartition_source_topics=[internal_topic(repartition, 3)],
            state_changelog_topics=[internal_topic(changelog)],
        ),
    )
    members = [
        SimulatedMember(client, group_id, parts, process_id=name, user_endpoint=(f"{name}.example", 80))
        for name in ("a", "b")
    ]
    for member in members:
        member.join()
    settle(
        members, until=lambda: all(one.settled for one in members) and all(one.assignment["standby"] for one in members)
    )

    answer = members[0].heartbeat()["partitions_by_user_endpoint"]
    theirs = {
        f"{one['user_endpoint']['host']}:{one['user_endpoint']['port']}": (
            by_topic(one["active_partitions"]),
            by_topic(one["standby_partitions"]),
        )
        for one in answer
    }
    log = FoldedLog()
    log.add(read_offsets(broker.bootstrap_server, group_id))
    row = log.rows[group_id]
    (described,) = client.describe([group_id])
    assert not any(member["is_classic"] for member in described["members"])  # no release has such members yet
    counts = {
        topic["name"]: topic["partitions"]
        for part in described["topology"]["subtopologies"]
        for topic in (*part["repartition_source_topics"], *part["state_changelog_topics"])
    }
    topics = [*topics_of(row["subtopologies"], {("0", large): 4, ("0", small): 2}, counts)]
    assert {(one.name, one.partitions, one.asked_for) for one in topics} >= {(repartition, 3, 3), (changelog, 3, None)}
    ours = {
        member["user_endpoint"]: served(
            [task for task in row["assignments"] if task["member_id"] == member["member_id"]], topics
        )
        for member in row["members"]
    }
    assert {endpoint: tuple(map(parsed, own)) for endpoint, own in ours.items()} == theirs
    assert any(standby for _, standby in theirs.values())


def by_topic(partitions: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in partitions:
        found.setdefault(one["topic"], []).extend(one["partitions"])
    return {topic: sorted(ones) for topic, ones in found.items()}


def parsed(text: str | None) -> dict[str, list[int]]:
    pairs = (one.rstrip(")").split("(") for one in (text or "").split(", ") if one)
    return {topic: [int(number) for number in numbers.split(",")] for topic, numbers in pairs}
