"""The service that fetches stored descriptions: what it keeps, asks again, and leaves, with a real broker and table."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.job.descriptions import DescriptionsService
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, build_description, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader
from tests.support.a_job import a_job
from tests.support.container import Broker
from tests.support.healthy_group import healthy_group
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.broker
NOW = datetime(2026, 11, 24, 8, tzinfo=timezone.utc)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Rig:
    """A service of the groups that the test names, whose clock the test moves and whose requests are counted."""

    def __init__(self, directory: Path, server: str) -> None:
        self.warehouse, self.server, self.now = make_warehouse(directory), server, NOW
        self.groups: dict[str, GroupSnapshot] = {}
        self.asked: list[str] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.away: set[str] = set()
        self.lines: list[str] = []
        self.restart()

    def restart(self) -> None:
        of_test = {"groups": lambda: self.groups, "now": lambda: self.now}
        self.service = DescriptionsService(a_job(self.warehouse, self.lines.append, server=self.server, **of_test))

    def _connect(self, properties: Mapping[str, str]) -> StreamsGroupClient:
        client = StreamsGroupClient(properties["bootstrap.servers"])
        describe = client.describe

        def counted(group_ids: list[str], **named: Any) -> list[dict[str, Any]]:
            self.asked += group_ids
            if self.away & set(group_ids):
                raise NodeNotReadyError
            return [self.answers.get(one) or describe([one], **named)[0] for one in group_ids]

        client.describe = counted  # type: ignore[method-assign, assignment]
        return client

    def knows(self, group_id: str, **fields: Any) -> None:
        stored = {"description_status": "CURRENT", "description_since": NOW, "last_unsolicited_push_at": None}
        self.groups[group_id] = replace(healthy_group(NOW), group_id=group_id, **{**stored, **fields})

    def rows(self, table: str = "descriptions") -> list[dict[str, Any]]:
        return WarehouseReader(self.warehouse).rows(f"SELECT * FROM {table} ORDER BY group_id, is_newest")


@pytest.fixture
def rig(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    made = Rig(tmp_path, broker.bootstrap_server)
    monkeypatch.setattr(StreamsGroupClient, "of", made._connect)
    return made


@pytest.fixture
def described(client: StreamsGroupClient, unique: Callable[[str], str]) -> SimulatedMember:
    """The member of a group whose description the broker stores."""
    topic = unique("orders")
    client.create_topic(topic)
    member = SimulatedMember(client, unique("described"), topology(subtopology("0", source_topics=[topic])))
    member.join()
    settle([member])
    member.push_description()
    return member


def test_what_the_plugin_stores_is_kept_as_text_nodes_and_edges_and_asked_for_once(
    rig: Rig, described: SimulatedMember
) -> None:
    rig.knows(described.group_id)
    rig.knows("never-stored", description_status="NEVER_STORED")
    rig.service.tick()
    (row,) = rig.rows()
    assert row["text"].startswith("Topologies:\n   Sub-topology: 0\n    Source: KSTREAM-SOURCE-0")
    assert (row["status"], row["topology_epoch"], row["node_count"]) == ("AVAILABLE", 0, 2)
    assert (row["stored_at"], row["fetched_at"], row["is_newest"], row["truncated"]) == (NOW, NOW, True, False)
    (topic,) = described.topology["subtopologies"][0]["source_topics"]
    assert {(one["kind"], one["node"], one["subtopology_id"]) for one in rig.rows("description_nodes")} == {
        ("topic", topic, None),
        ("source", "KSTREAM-SOURCE-0", "0"),
        ("processor", "KSTREAM-PROCESSOR-0", "0"),
    }
    assert {(one["from_node"], one["to_node"], one["content_hash"]) for one in rig.rows("description_edges")} == {
        (topic, "KSTREAM-SOURCE-0", row["content_hash"]),
        ("KSTREAM-SOURCE-0", "KSTREAM-PROCESSOR-0", row["content_hash"]),
    }
    rig.now += DAY - HOUR
    rig.service.tick()
    rig.restart()
    rig.service.tick()
    assert rig.asked == [described.group_id]
    rig.now += HOUR
    rig.service.tick()
    assert rig.asked == [described.group_id] * 2
    assert [one["asked_at"] for one in rig.rows()] == [rig.now]


def test_another_description_that_is_pushed_for_the_same_epoch_is_a_row_of_its_own(
    rig: Rig, described: SimulatedMember
) -> None:
    rig.knows(described.group_id)
    rig.service.tick()
    changed = build_description(described.topology, described.group_id)
    changed["subtopologies"][0]["nodes"][1]["stores"] = ["totals"]
    described.push_description(description=changed)
    rig.knows(described.group_id, last_unsolicited_push_at=NOW + HOUR)
    rig.now += HOUR
    rig.service.tick()
    before, after = rig.rows()
    assert (before["is_newest"], after["is_newest"]) == (False, True)
    assert "[totals]" not in before["text"]
    assert "[totals]" in after["text"]
    nodes = WarehouseReader(rig.warehouse).rows("SELECT node FROM description_nodes WHERE is_newest AND kind = 'store'")
    assert nodes == [{"node": "totals"}]


def test_a_description_that_the_plugin_has_lost_stays_with_since_when_and_is_asked_for_every_hour(
    rig: Rig, described: SimulatedMember
) -> None:
    rig.knows(described.group_id)
    rig.answers = {described.group_id: not_stored(2)}
    assert rig.service.lost() is None
    rig.service.tick()
    assert [(one["status"], one["text"], one["fetched_at"]) for one in rig.rows()] == [("ERROR", None, None)]
    rig.answers = {}
    rig.now = fetched = NOW + HOUR
    rig.service.tick()
    assert [(one["status"], one["is_newest"]) for one in rig.rows()] == [("AVAILABLE", True)]
    assert rig.service.lost() == {}

    rig.answers = {described.group_id: not_stored(1)}
    rig.asked.clear()
    first = fetched + DAY
    for hours in (24, 24.5, 25):
        rig.now = fetched + timedelta(hours=hours)
        rig.service.tick()
    assert len(rig.asked) == 2
    rig.restart()
    rig.service.tick()
    assert rig.service.lost() == {described.group_id: ("NOT_STORED", 0, first)}
    (row,) = rig.rows()
    assert (row["status"], row["fetched_at"], row["text"][:10]) == ("NOT_STORED", fetched, "Topologies")
    assert (row["status_since"], row["asked_at"]) == (first, first + HOUR)
    rig.answers = {}
    rig.now += HOUR
    rig.service.tick()
    assert [one["status"] for one in rig.rows()] == ["AVAILABLE"]


def test_groups_whose_coordinator_is_away_do_not_keep_the_others_from_being_asked(rig: Rig) -> None:
    rig.away = {f"away-{n}" for n in range(5)}
    for one in (*sorted(rig.away), "here-1", "here-2"):
        rig.knows(one)
        rig.answers[one] = not_stored(1)
    for asked in (
        ["away-0", "away-1", "away-2"],
        ["away-3", "away-4", "here-1", "here-2", "away-0", "away-1", "away-2"],
    ):
        rig.asked.clear()
        with pytest.raises(NodeNotReadyError):
            rig.service.tick()
        assert rig.asked == asked
    assert [one["group_id"] for one in rig.rows()] == ["here-1", "here-2"]
    rig.away.clear()
    rig.service.tick()
    assert len(rig.rows()) == 7


def not_stored(status: int) -> dict[str, Any]:
    """Return the answer of a broker whose plugin has no description."""
    return {"error_code": 0, "topology": None, "topology_description_status": status}
