"""The poller of broker facts, with a real broker and a real table: what it keeps while the broker is away."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaConnectionError

from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.job.broker_facts import BrokerFacts
from streaming_app.kafka import fact_requests as asked
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.lag.open_transactions import OpenTransaction
from streaming_app.tables.reader import WarehouseReader
from tests.cli.commands import run
from tests.support.a_job import a_job
from tests.support.container import Broker
from tests.support.healthy_group import healthy_group
from tests.support.rows import group_row, subtopology_row
from tests.support.waiting import wait_until
from tests.support.warehouses import append, make_warehouse, replace_rows

pytestmark = pytest.mark.broker
NOW = datetime(2026, 11, 24, 8, tzinfo=timezone.utc)


class Rig:
    """A poller of the groups that the test names, whose clock the test moves."""

    def __init__(self, warehouse: Path, server: str) -> None:
        self.warehouse, self.server, self.now = make_warehouse(warehouse), server, NOW
        self.groups: dict[str, GroupSnapshot] = {}
        self.away = False
        self.restart()

    def restart(self, report: Callable[[str], Any] = pytest.fail) -> None:
        of_test = {"groups": lambda: self.groups, "now": lambda: self.now}
        self.service = BrokerFacts(a_job(self.warehouse, report, server=self.server, **of_test))

    def _connect(self, properties: Mapping[str, str]) -> StreamsGroupClient:
        admin = StreamsGroupClient(properties["bootstrap.servers"])
        send, describe = admin.send_to_any, admin.describe_configs

        def away_or(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if self.away:
                raise KafkaConnectionError("away")
            return call(*arguments, **named)

        admin.send_to_any, admin.describe_configs = partial(away_or, send), partial(away_or, describe)
        return admin

    def add(self, group_id: str, topic: str) -> None:
        self.groups[group_id] = replace(healthy_group(NOW), group_id=group_id)
        subtopology = {"topology_epoch": 0, "subtopology_id": "0", "source_topics": [topic]}
        append(self.warehouse, "groups", group_row(group_id, subtopologies=[subtopology]))

    def see_coordinator(self, client: StreamsGroupClient) -> None:
        """Do a pass once there are coordinators: the first request for one makes the offsets topic."""
        assert wait_until(lambda: not any(one.error_code for one in client.find_coordinators(self.groups)))
        self.service.tick()

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return WarehouseReader(self.warehouse).rows(
            f"SELECT * FROM broker_facts WHERE kind = '{kind}' ORDER BY subject, name"
        )


@pytest.fixture
def rig(
    tmp_path: Path,
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Rig:
    made = Rig(tmp_path / "w", broker.bootstrap_server)
    monkeypatch.setattr(StreamsGroupClient, "of", made._connect)
    topic = unique("orders")
    client.create_topic(topic, configs={"min.insync.replicas": "2"})
    made.add(unique("group"), topic)
    return made


def test_a_pass_writes_every_kind_of_fact_and_those_of_a_group_that_is_gone_go_with_it(
    rig: Rig, client: StreamsGroupClient
) -> None:
    (group_id,) = rig.groups
    of_older_release = {"kind": "left_over_topic", "subject": "t", "name": "bytes", "value": "1", "observed_at": NOW}
    append(rig.warehouse, "broker_facts", of_older_release)
    rig.see_coordinator(client)
    assert rig.rows("left_over_topic") == []
    coordinators = rig.rows("coordinator")
    assert {row["subject"] for row in coordinators} == {f"__consumer_offsets-{n}" for n in range(len(coordinators))}
    assert {row["value"] for row in coordinators} == {f"{rig.server} (1)"}
    assert {row["observed_at"] for row in rig.rows("group_config")} == {NOW}
    assert {row["name"] for row in rig.rows("retention")} == {"cleanup.policy", "retention.bytes", "retention.ms"}
    assert [row["value"] for row in rig.rows("isr")] == ["1 of 1, min.insync.replicas 2"]
    released = [(row["subject"], row["value"]) for row in rig.rows("feature") if row["name"] == "release"]
    assert released == [("1", "4.4")]
    rig.groups = {group_id: replace(rig.groups[group_id], state="Dead")}
    rig.service.tick()
    assert rig.rows("group_config") == []


def test_of_classic_groups_changelogs_are_known_by_their_names_and_the_retention_of_what_they_read(
    rig: Rig, client: StreamsGroupClient
) -> None:
    (group_id,) = rig.groups
    classic, topic = f"{group_id}-app", f"{group_id}-app-counts-by-word-changelog"
    client.create_topic(topic, 3)
    client.create_topic(f"{classic}-nothing", 1)
    client.create_topic(source := f"{group_id}-words", 1, {"retention.ms": "7200000"})
    parts = [subtopology_row("0", source_topics=[source], state_changelog_topics=None)]
    append(rig.warehouse, "groups", group_row(classic, protocol="classic", group_type="classic", subtopologies=parts))
    rig.service.tick()
    found = [(row["subject"], row["group_id"], row["name"], row["value"]) for row in rig.rows("changelog")]
    assert found == [(topic, classic, "partitions", "3")]
    assert rig.service.retention()[source] == 7200.0


def test_while_the_brokers_are_away_facts_stay_with_their_times_also_across_a_restart(rig: Rig) -> None:
    rig.service.tick()
    before = rig.rows("isr")
    rig.away, rig.now = True, NOW + timedelta(hours=1)
    for _ in range(2):
        with pytest.raises(KafkaConnectionError):
            rig.service.tick()
        assert rig.rows("isr") == before
        rig.restart()
    rig.away, rig.now = False, rig.now + timedelta(minutes=10)
    rig.service.tick()
    assert [row["observed_at"] for row in rig.rows("isr")] == [rig.now]


def test_a_value_that_changed_has_the_one_before_also_across_a_restart(rig: Rig, client: StreamsGroupClient) -> None:
    def standbys() -> tuple[Any, ...]:
        row = next(one for one in rig.rows("group_config") if one["name"] == "streams.num.standby.replicas")
        return row["value"], row["value_before"], row["changed_at"]

    def changed(value: str) -> bool:
        rig.now += timedelta(minutes=10)
        rig.service.tick()
        return standbys()[0] == value

    (group_id,) = rig.groups
    rig.service.tick()
    assert standbys() == ("0", None, None)
    client.configure_group(group_id, {"streams.num.standby.replicas": 2})
    assert wait_until(lambda: changed("2"))
    seen = standbys()
    assert seen[:2] == ("2", "0")
    assert NOW < seen[2] <= rig.now
    rig.restart()
    assert changed("2")
    assert standbys() == seen


def test_internal_topics_that_are_otherwise_and_sink_topics_that_are_missing_are_known_until_they_are_mended(
    rig: Rig, client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    """And not of a group that is gone."""
    (group_id,), there, missing = rig.groups, unique("there"), unique("missing")
    changelog = f"{group_id}-store-changelog"
    client.create_topic(there)
    client.create_topic(changelog, configs={"cleanup.policy": "delete"})
    part = subtopology_row(changelogs=[changelog])
    part["state_changelog_topics"][0] |= {"replication_factor": -1, "topic_configs": [("cleanup.policy", "compact")]}
    replace_rows(rig.warehouse, "groups", group_row(group_id, subtopologies=[part]))

    def edge(topic: str, from_kind: str = "sink", to_kind: str = "topic") -> dict[str, Any]:
        return {"from_node": "n", "from_kind": from_kind, "to_node": topic, "to_kind": to_kind}

    edges = [edge(there), edge(missing), edge(f"{group_id}-x-repartition"), edge("dynamic", "processor", "sink")]
    described = {"group_id": group_id, "content_hash": "a", "status": "AVAILABLE", "asked_at": NOW}
    append(rig.warehouse, "descriptions", {**described, "is_newest": True, "description_edges": edges})
    of_earlier = {"is_newest": False, "content_hash": "b", "description_edges": [edge(unique("earlier"))]}
    append(rig.warehouse, "descriptions", {**described, **of_earlier})
    assert rig.service.topic_differences() is None
    rig.service.tick()
    different = {group_id: [(changelog, "cleanup.policy", "delete, asked for compact", NOW)]}
    assert (rig.service.topic_differences(), rig.service.sinks()) == (
        different,
        {group_id: [(missing, "does not exist")]},
    )
    shown = run(rig.warehouse, "describe", group_id, "--topology").stdout
    assert [group_id, missing, "does", "not", "exist"] in [line.split() for line in shown.splitlines()]
    alive, rig.groups = rig.groups, {group_id: replace(rig.groups[group_id], state="Dead")}
    assert (rig.service.topic_differences(), rig.service.sinks()) == ({}, {})
    rig.groups = alive
    client.create_topic(missing)
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, changelog, {"cleanup.policy": "compact"})])
    rig.now += timedelta(minutes=10)
    rig.service.tick()
    assert (rig.service.topic_differences(), rig.service.sinks()) == ({}, {})


def test_an_overdue_transaction_on_the_offsets_topic_is_a_fact_and_one_line_until_it_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers' cleaner stops there. A real one would have to outlive the brokers' own clean-up."""
    lines = list[str]()
    rig.restart(lines.append)
    hanging = OpenTransaction("payments-0_0", NOW.timestamp() - 10_000, 60.0, 7)
    found = [(hanging, (OFFSETS_TOPIC, 3)), (hanging, ("orders", 0))]
    monkeypatch.setattr(asked, "open_transactions", lambda *_: found)
    for _ in range(2):
        rig.service.tick()
    assert [(row["subject"], row["name"]) for row in rig.rows("transaction")] == [
        (f"{OFFSETS_TOPIC}-3", "payments-0_0")
    ]
    (line,) = lines
    assert (
        f"the brokers do not compact {OFFSETS_TOPIC} behind an open transaction: {OFFSETS_TOPIC}-3 by payments" in line
    )
    assert rig.service.transactions() is not None
    monkeypatch.setattr(asked, "open_transactions", lambda *_: [])
    rig.service.tick()
    assert (rig.rows("transaction"), len(lines)) == ([], 1)
