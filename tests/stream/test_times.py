"""Timestamps out of order, and records without one: state and order come from offsets, times are as written.

A broker's clock may be set back, and a restored or mirrored topic may hold records without a timestamp (Kafka's -1,
which Spark shows as a millisecond before 1970).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from kafka import KafkaProducer

from offsets_decoder import encode
from streaming_app.groups.group import Event
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.reader import WarehouseReader
from tests.support.event_chain import gaps
from tests.support.job_runner import streams_groups

pytestmark = pytest.mark.broker
WRONG = (b"\x00\x18\x00\x01g", b"?")
NO_TIME = -1


def operations(group: str) -> list[tuple[bytes, bytes | None]]:
    """A member joins, gets its assignment, becomes stable, and pushes a description twice."""
    at, member = {"group_id": group}, {"group_id": group, "member_id": "m"}
    stored = {"epoch": 2, "validated_topology_epoch": 0, "last_assignment_configs": []}
    return [
        encode(19, member, {"client_id": "c"}),
        encode(23, at, {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["in"]}]}),
        encode(17, at, stored),
        encode(20, at, {"assignment_epoch": 2}),
        encode(22, member, {"member_epoch": 2, "state": 1}),
        encode(17, at, {**stored, "stored_description_topology_epoch": 0}),
        encode(17, at, {**stored, "stored_description_topology_epoch": -2}),
        encode(17, at, {**stored, "stored_description_topology_epoch": 0}),
    ]


def test_timestamps_out_of_order_or_missing_change_neither_state_nor_history(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], run: Callable[..., str], tmp_path: Path
) -> None:
    topic, now = unique("offsets"), int(time.time() * 1000)
    client.create_topic(topic, 1)
    jumping = [now, now - 60_000, now, now + 60_000, now - 86_400_000, now, now - 1, now]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server)
    for group, times in (("jumping", jumping), ("timeless", [NO_TIME] * 8)):
        for (key, value), at in zip(operations(group), times, strict=True):
            producer.send(topic, key=key, value=value, timestamp_ms=at).get(300)
    producer.send(topic, key=WRONG[0], value=WRONG[1], timestamp_ms=NO_TIME).get(300)
    producer.close()

    run(topic, max_offsets_per_trigger=6)
    opened = WarehouseReader(tmp_path)
    rows = {row["group_id"]: row for row in opened.rows("SELECT * FROM groups")}
    wanted = {"state": "Stable", "description_status": "CURRENT", "unsolicited_pushes": 1, "member_count": 1}
    for group in ("jumping", "timeless"):
        assert {name: rows[group][name] for name in wanted} == wanted
        columns = ", ".join(f'"{name}"' for name in Event._fields)
        found = opened.rows(f"SELECT {columns} FROM group_events WHERE group_id = '{group}'")
        events = [Event(**row) for row in found]
        assert list(gaps(group, events, rows[group])) == []
        states = [event.new for event in sorted(events, key=lambda one: one.offset) if event.kind == "state"]
        assert states == ["Assigning", "Reconciling", "Stable"]

    def written(position: int) -> datetime:
        return datetime.fromtimestamp(jumping[position] / 1000, timezone.utc)

    times = ("first_seen_at", "state_since", "description_since", "last_unsolicited_push_at", "updated_at")
    # No operation holds both the topology and record 17, so the log does not prove when the group was created.
    assert [rows["jumping"][name] for name in times] == [None, *(written(n) for n in (4, 7, 6, 7))]
    assert [rows["timeless"][name] for name in times] == [None] * 5
    assert opened.rows("SELECT at FROM group_events WHERE group_id = 'timeless' AND at IS NOT NULL") == []
    assert opened.rows("SELECT timestamp FROM quarantine") == [{"timestamp": None}]
    for command in (["list", "--state"], ["describe", "--all-groups", "--verbose"]):
        asked = streams_groups(*command, "--warehouse", tmp_path)
        assert (asked.returncode, asked.stderr) == (0, "")
        assert "timeless" in asked.stdout
