"""A real application with the classic protocol: its rows are equal to what the application itself says."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer

from streaming_app.config.settings import JobConfig
from streaming_app.groups.task_copies import copies_of_row
from streaming_app.job.first_look import look
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.tables.reader import WarehouseReader
from tests.support.classic_application import PROPERTIES, ClassicGroup
from tests.support.container import Broker
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


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

    group = ClassicGroup(broker.bootstrap_server, [application], threads=4, active=4, standbys=2)
    with application:
        row, events = group.settled()
    assert row["protocol"] == "classic"
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
        left, _ = group.read()
        return left is not None and left["state"] == "Empty"

    assert wait_until(is_empty)  # threads do not leave: the coordinator notices after the session timeout
    client.delete_group(group_id)
    deleted, _ = group.read()
    assert deleted
    assert (deleted["state"], deleted["deleted_at"] is None) == ("Dead", False)


def test_an_application_that_was_killed_while_records_come_is_down_with_an_alert_only_if_it_is_wanted(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    run: Callable[..., str],
    tmp_path: Path,
) -> None:
    group_id, topics = unique("killed"), (unique("in"), unique("out"))
    for topic in topics:
        client.create_topic(topic, 2)
    application = StreamsApplication(
        broker.bootstrap_server, tmp_path / "app", group_id, "words", topics, properties=PROPERTIES
    )
    group = ClassicGroup(broker.bootstrap_server, [application], threads=2, active=4, standbys=0)
    with application, KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
        producer.send(topics[0], b"all streams lead to kafka").get()
        group.settled()
        assert wait_until(lambda: bool(offsets_of(client, group_id)), interval=0.2)
        application.kill()
        for _ in range(20):
            producer.send(topics[0], b"and nobody reads this")
        producer.flush()
        assert wait_until(lambda: group.row()["state"] == "Empty", interval=0.5)
    config = {"bootstrap_server": broker.bootstrap_server, "alerts": {"rules": {"StreamsGroupDown": {"for": 0}}}}
    said = look({"bootstrap.servers": broker.bootstrap_server}, JobConfig.model_validate(config), lambda _line: None)
    assert "with the classic protocol and no alerts (alerts.protocols: streams): " in said.text
    assert group_id in said.text
    for protocols, rules in (("streams", []), ("all", ["StreamsGroupDown"])):
        settings = {"protocols": protocols, "rules": {"StreamsGroupDown": {"for": 0}}}
        on = {"enabled": True}
        run("__consumer_offsets", alerts=settings, lag=on, offsets=on)
        reader, mine = WarehouseReader(tmp_path), f"group_id = '{group_id}'"
        (found,) = reader.rows(f"SELECT verdict, severity, why FROM group_health WHERE {mine}")
        assert (found["verdict"], found["severity"]) == ("Down", "critical" if rules else None)
        assert "no members since" in found["why"]
        opened = reader.rows(f"SELECT rule FROM alerts WHERE {mine} AND opened_at IS NOT NULL")
        assert [one["rule"] for one in opened] == rules


def offsets_of(client: StreamsGroupClient, group_id: str) -> dict[str, int]:
    offsets = client.list_group_offsets(group_id)[group_id]
    return {key.topic: value.offset for key, value in offsets.items() if value.offset > 0}
