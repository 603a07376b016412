"""A real application goes to the streams protocol and back: what `migrate check` says, and what its log tells."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.queries.protocol_changes import read_changes
from streaming_app.tables.reader import WarehouseReader
from tests.cli.commands import run
from tests.support.classic_application import PROPERTIES, ClassicGroup
from tests.support.container import Broker
from tests.support.heartbeats import write_heartbeat
from tests.support.kafka_tool import run_script
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until
from tests.support.warehouses import append, make_warehouse

pytestmark = [pytest.mark.broker, pytest.mark.java]


def test_there_and_back_it_has_the_same_tasks_and_the_log_alone_tells_it(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    group_id, topics, server = unique("moved"), (unique("in"), unique("out")), broker.bootstrap_server
    for topic in topics:
        client.create_topic(topic, 2)
    with KafkaProducer(bootstrap_servers=server) as producer:
        producer.send(topics[0], b"all streams lead to kafka")
    classic, streams = (
        StreamsApplication(server, tmp_path / "app", group_id, "words", topics, properties=properties)
        for properties in (PROPERTIES, {"group.protocol": "streams", "num.stream.threads": "2"})
    )
    group = ClassicGroup(server, [classic], threads=2, active=4, standbys=0)

    def is_state(protocol: str, state: str) -> bool:
        row, _ = group.read()
        return row is not None and (row["protocol"], row["state"]) == (protocol, state)

    with classic:
        row, _ = group.settled()
        warehouse = make_warehouse(tmp_path / "warehouse")
        write_heartbeat(warehouse)
        append(warehouse, "groups", row)
        ran = run(warehouse, "migrate", "check", group_id, "--bootstrap-server", server, "--json")
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    (found,) = said["groups"]
    assert {one["status"] for one in said["cluster"]} == {"ok"}
    results = {one["check"]: one for one in found["results"]}
    assert "its coordinator says Stable" in results["state"]["text"]
    assert results["session time-out"]["text"].startswith("6000 ms; ")
    assert results["session time-out"]["text"].endswith("; brokers allow 45000")
    assert results["static members"]["status"] == "ok"
    (command,) = (one for step in found["steps"] for one in step["commands"] if one.startswith("kafka-configs.sh "))
    assert f"Completed updating config for group {group_id}" in run_script(server, tmp_path, command)

    assert wait_until(lambda: is_state("classic", "Empty"), interval=0.5)
    with streams:
        assert wait_until(lambda: is_state("streams", "Stable"), interval=0.5)
    assert wait_until(lambda: is_state("streams", "Empty"), interval=0.5)
    with classic:
        group.settled()
    row, events = group.read()
    told = make_warehouse(tmp_path / "told")
    append(told, "group_events", *events)
    changes = read_changes(WarehouseReader(told), "default", group_id)
    ways = ["classic -> streams", "streams -> classic"]
    assert list(dict.fromkeys(one["protocol"] for one in changes)) == ways
    for way in ways:
        steps: dict[str, Any] = {one["step"]: one for one in changes if one["protocol"] == way}
        times = [steps[name]["at"] for name in ("stopped", "Empty", "converted", "joined", "tasks")]
        assert times == sorted(times)
        assert steps["tasks"]["what"] == "the same as before: 4 active tasks"
    assert not [one for one in events if one["kind"] == "deleted"]
