"""A warehouse and checkpoint of an earlier release go on with this one: nothing is lost, nothing is there twice."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.checkpoint_offsets import checkpoint_location
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from tests.support.container import Broker
from tests.support.job_runner import run_once
from tests.upgrade.record import TOPIC, create_topic, extract, produce, read_parts

pytestmark = pytest.mark.broker
GROUPS = (
    "SELECT group_id, state, state_since, group_epoch, assignment_epoch, assigned_at, topology_epoch, "
    "validated_topology_epoch, stored_description_epoch, failed_description_epoch, description_status, "
    "unsolicited_pushes, member_count, deleted_at, source_partition, last_offset FROM groups ORDER BY group_id"
)
MEMBERS = (
    "SELECT group_id, member_id, member_epoch, previous_member_epoch, member_state, instance_id, rack_id, client_id, "
    "client_host, process_id, topology_epoch, rebalance_timeout_ms FROM members ORDER BY group_id, member_id"
)
ASSIGNMENTS = (
    "SELECT group_id, member_id, role, subtopology_id, partition, current, target, pending_revocation "
    "FROM assignments ORDER BY group_id, member_id, role, subtopology_id, partition"
)
EVENTS = (
    "SELECT group_id, kind, coalesce(member_id, '') AS member_id, coalesce(e.old, '') AS old, "
    "coalesce(e.new, '') AS new, at, e.offset FROM group_events e ORDER BY group_id, e.offset, kind, member_id"
)


def extract_for(directory: Path, topic: str, identity: Mapping[str, str]) -> Path:
    """Extract the warehouse as one of this topic, which has the records that were read then."""
    extract("0.3.0", directory)
    for file in (directory / "_checkpoints").rglob("*"):
        if file.suffix == ".crc":  # of files that change here
            file.unlink()
        elif file.is_file():
            text = file.read_text("utf-8").replace(f'"{TOPIC}"', f'"{topic}"')
            file.write_text(text.replace(rf"\"{TOPIC}\"", rf"\"{topic}\""), "utf-8")
    for record in (directory / "_checkpoints").glob("default*.topic.json"):
        record.write_text(json.dumps({**json.loads(record.read_text("utf-8")), **identity}), "utf-8")
    return directory


def answers(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    reader = WarehouseReader(warehouse)
    events = [event for event in reader.rows(EVENTS) if not _is_of_a_deletion(event)]
    return {"events": events} | {
        name: reader.rows(query) for name, query in (("groups", GROUPS), ("members", MEMBERS), ("tasks", ASSIGNMENTS))
    }


def _is_of_a_deletion(event: Mapping[str, Any]) -> bool:
    """Return whether the assignment epoch fell: releases before 0.3.1 said so of each group that was deleted."""
    return event["kind"] == "assignment_epoch" and int(event["old"] or 0) > int(event["new"] or 0)


def identity_of(warehouse: Path) -> dict[str, str]:
    """Return of which topic a warehouse is."""
    found = StateFile(checkpoint_location(Location.of(warehouse), "default")).read().state
    return {name: getattr(found, name) for name in ("cluster_id", "topic", "topic_id")}


def test_a_warehouse_of_0_3_0_goes_on_without_loss_and_without_doubles(
    spark: SparkSession,
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, server = unique("recorded"), broker.bootstrap_server
    create_topic(client, topic)
    *read_by_0_3_0, rest = read_parts()
    for part in read_by_0_3_0:
        produce(server, topic, part)

    def run(warehouse: Path) -> list[str]:
        return run_once(spark, server, warehouse, topic=topic)

    reference = tmp_path / "reference"
    run(reference)
    upgraded = extract_for(tmp_path / "upgraded", topic, identity_of(reference))
    assert any(line.startswith("The warehouse is upgraded to 0.4") for line in run(upgraded))
    assert answers(upgraded) == answers(reference)
    produce(server, topic, rest)
    for warehouse in (upgraded, reference):
        run(warehouse)
    assert answers(upgraded) == answers(reference)
    assert WarehouseReader(upgraded).rows("SELECT max(at) AS last FROM group_events")[0]["last"] < datetime.now(
        timezone.utc
    )
