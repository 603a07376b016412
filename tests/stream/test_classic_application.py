"""A real application with the classic protocol: its rows are equal to what the application itself says."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from streaming_app.groups.task_copies import copies_of_row
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.stream.fold_stage import fold_group
from streaming_app.stream.group_result import FoldOptions
from tests.support.container import Broker
from tests.support.offsets_log import RawRecord, read_log
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

Tasks = dict[str, tuple[list[str], list[str]]]
"""Thread -> its active tasks, and its standbys with warm-ups."""
PROPERTIES = {
    "group.protocol": "classic",
    "num.stream.threads": "2",
    "num.standby.replicas": "1",
    "application.server": "localhost:31401",
    "client.tag.zone": "a",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "commit.interval.ms": "200",
}


def row_of(records: list[RawRecord]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the row of a group and its events, from its records of type 2."""
    rows = (
        (one.group_id.encode(), one.offset, one.partition, _time(one.timestamp_ms), one.key, one.value, None)
        for one in records
        if one.record_type == 2
    )
    found = next(iter(fold_group(rows, FoldOptions("default", "topic"), None)), None)
    assert not found or not found.rows["quarantine"]
    return (found.rows["groups"][0], found.rows["group_events"]) if found else (None, [])


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def tasks_of_row(row: dict[str, Any]) -> Tasks:
    threads = {one["member_id"]: one["client_id"].removesuffix("-consumer") for one in row["members"]}
    found: Tasks = {name: ([], []) for name in threads.values()}
    for one in row["assignments"]:
        if one["current"]:
            task = f"{one['subtopology_id']}_{one['partition']}"
            found[threads[one["member_id"]]][one["role"] != "active"].append(task)
    return {name: (sorted(active), sorted(standby)) for name, (active, standby) in found.items()}


def tasks_of(application: StreamsApplication) -> Tasks:
    threads = [thread for instance in application.tasks() for thread in instance["threads"]]
    return {one["name"]: (sorted(one["active"]), sorted(one["standby"])) for one in threads}


def test_threads_tasks_and_topics_of_an_application_are_those_that_it_has(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    group_id, topics = unique("classic"), (unique("in"), unique("out"))
    for topic in topics:
        client.create_topic(topic, 2)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        for number in range(40):
            producer.send(topics[0], f"all streams lead to kafka {number}".encode(), partition=number % 2)
    application = StreamsApplication(
        broker.bootstrap_server, tmp_path, group_id, "words", topics, instances=2, properties=PROPERTIES
    )

    def read() -> dict[str, Any] | None:
        row, _ = row_of(read_log(broker.bootstrap_server, group_id))
        return row

    def is_settled() -> bool:
        row = read()
        if not row or row["tasks_moving"] or row["probing_rebalance_at"] or row["member_count"] != 4:
            return False
        return (
            tasks_of_row(row) == tasks_of(application) and sum(len(one) for _, one in tasks_of_row(row).values()) == 2
        )

    with application:
        assert wait_until(is_settled), (read(), tasks_of(application))
        row, events = row_of(read_log(broker.bootstrap_server, group_id))
    assert row
    assert (row["protocol"], row["undecoded_members"]) == ("classic", 0)
    assert {one["kind"] for one in events} >= {"created", "group_epoch", "member_joined", "assignment"}
    members = row["members"]
    assert len({one["process_id"] for one in members}) == 2
    facts = {(one["user_endpoint"], *one["client_tags"], one["client_version"]) for one in members}
    assert facts == {("localhost:31401", ("zone", "a"), 11)}
    assert all(one["client_host"] for one in members)
    topics_of = {
        one["subtopology_id"]: (one["source_topics"], [topic["name"] for topic in one["repartition_source_topics"]])
        for one in row["subtopologies"]
    }
    assert topics_of == {"0": ([topics[0]], []), "1": ([], [f"{group_id}-words-repartition"])}
    copies = [one for one in copies_of_row(row) if one.stateful and one.role != "dormant"]
    assert sorted((one.role, one.subtopology_id, one.partition) for one in copies) == [
        ("active", "1", 0),
        ("active", "1", 1),
        ("standby", "1", 0),
        ("standby", "1", 1),
    ]

    def is_empty() -> bool:
        left = read()
        return left is not None and left["state"] == "Empty"

    assert wait_until(is_empty)  # threads do not leave: the coordinator notices after the session timeout
    client.delete_group(group_id)
    deleted = read()
    assert deleted
    assert (deleted["state"], deleted["deleted_at"] is None) == ("Dead", False)
