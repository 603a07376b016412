"""Committed offsets and groups of every type, as a real broker writes and describes them."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import OffsetAndMetadata
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_fixed

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.queries.groups import other_members
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.job.other_groups import GroupMember
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker
Run = Callable[..., str]
_JOIN_SECONDS = 90


@pytest.fixture
def read(run: Run) -> Run:
    """Runs the job once, with committed offsets."""
    return partial(run, "__consumer_offsets", offsets={"enabled": True})


@contextmanager
def consuming(broker: Broker, group: str, topic: str) -> Iterator[KafkaConsumer]:
    """A classic consumer with an assignment."""
    consumer = join(broker, group, topic)
    try:
        yield consumer
    finally:
        consumer.close()


@retry(retry=retry_if_exception_type(TimeoutError), stop=stop_after_attempt(3), reraise=True)
def join(broker: Broker, group: str, topic: str) -> KafkaConsumer:
    """Return a consumer that has joined. One of kafka-python 3.0 may look for its coordinator forever: then another."""
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap_server, group_id=group, enable_auto_commit=False)
    if not wait_until(lambda: bool(consumer.poll(timeout_ms=200) or consumer.assignment()), _JOIN_SECONDS):
        consumer.close()
        raise TimeoutError(f"no assignment within {_JOIN_SECONDS} s")
    return consumer


@retry(retry=retry_if_exception_type(GroupError), stop=stop_after_delay(60), wait=wait_fixed(0.3), reraise=True)
def commit(client: StreamsGroupClient, group: str, offsets: dict[tuple[str, int], int], *member: Any) -> None:
    """Commit; the coordinator of a topic that was just created may still load its partition."""
    client.admin.forget_coordinators([group])
    client.commit_offsets(group, offsets, *member)


def join_streams_group(client: StreamsGroupClient, group: str, topic: str) -> SimulatedMember:
    member = SimulatedMember(client, group, topology(subtopology("0", source_topics=[topic])))
    member.join()
    settle([member])
    return member


def offsets_of(warehouse: Path, group: str) -> dict[tuple[str, int], int]:
    query = f"SELECT topic, partition, committed_offset FROM offsets WHERE group_id = {quote(group)}"
    return {(r["topic"], r["partition"]): r["committed_offset"] for r in WarehouseReader(warehouse).rows(query)}


def broker_offsets(client: StreamsGroupClient, group: str) -> dict[tuple[str, int], int]:
    listed = client.admin.list_group_offsets({group: None})[group]
    return {(one.topic, one.partition): known.offset for one, known in listed.items()}


def topic_id(client: StreamsGroupClient, topic: str) -> str:
    """Return the id as Kafka prints it."""
    found = UUID(str(client.admin.describe_topics([topic])[0]["topic_id"]))
    return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")


def test_offsets_of_every_type_of_group_are_those_that_the_broker_returns(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], read: Run, tmp_path: Path
) -> None:
    topic, other = unique("in"), unique("gone")
    classic, consumer, streams, plain, share = map(unique, ("classic", "consumer", "streams", "plain", "share"))
    client.create_topic(topic, 2)
    client.create_topic(other, 1)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_server, enable_idempotence=True) as producer:
        for number in range(20):
            producer.send(topic, b"x", partition=number % 2).get(300)
    commits = {(topic, 0): 3, (topic, 1): 4}
    commit(client, plain, {**commits, (other, 0): 1})
    app = join_streams_group(client, streams, topic)
    commit(client, streams, commits, app.member_id, app.epoch)
    new = GroupMember(client, "Consumer", consumer, topic)
    new.join()
    commit(client, consumer, {(topic, 0): 7}, new.member_id, new.epoch)
    GroupMember(client, "Share", share, topic).join()
    with consuming(broker, classic, topic) as old:
        before = int(time.time())
        old.commit({TopicPartition(topic, 0): OffsetAndMetadata(8, "é", -1)})
        after = time.time()
        read()
        listed = {group["group_id"]: group for group in client.admin.list_groups()}
    for group in (classic, consumer, streams, plain):
        assert offsets_of(tmp_path, group) == broker_offsets(client, group) != {}

    reader = WarehouseReader(tmp_path)
    (row,) = reader.rows(f"SELECT * FROM offsets WHERE group_id = {quote(classic)}")
    assert (row["metadata"], row["topic_id"]) == ("é", topic_id(client, topic))
    assert before <= row["committed_at"].timestamp() <= after

    ours = {classic, consumer, streams, plain, share}
    groups = {row["group_id"]: row for row in reader.rows("SELECT * FROM all_groups") if row["group_id"] in ours}
    assert groups.keys() == ours <= listed.keys()
    for group, row in groups.items():
        described = listed[group]
        assert (row["group_type"], row["protocol_type"]) == (
            described["group_type"].lower(),
            described["protocol_type"],
        )
        assert row["state"] in (described["group_state"], None)
    assert {group for group, row in groups.items() if row["state"] is None} == {classic}
    members = [(other_members(reader, "default", [group]) or [{}])[0] for group in (classic, consumer)]
    assert [(one["HOST"], one["LEADER"], one["ASSIGNMENT"]) for one in members] == [
        ("127.0.0.1", "yes", f"{topic}(0,1)"),
        ("127.0.0.1", None, f"{topic}(0,1)"),
    ]
    assert other_members(reader, "default", [classic, streams]) is None
    assert groups[consumer]["state"] == groups[share]["state"] == groups[streams]["state"] == "Stable"

    old_id = topic_id(client, topic)
    new.leave()
    client.delete_topic(other)
    client.delete_topic(topic)
    client.create_topic(topic, 1)
    commit(client, again := unique("again"), {(topic, 0): 2})
    client.delete_group(plain)
    read()
    assert offsets_of(tmp_path, plain) == {}
    state = f"SELECT group_id, state FROM all_groups WHERE group_id IN ({quote(plain)}, {quote(consumer)})"
    assert WarehouseReader(tmp_path).rows(state) == [{"group_id": consumer, "state": "Empty"}]
    (row,) = WarehouseReader(tmp_path).rows(f"SELECT * FROM offsets WHERE group_id = {quote(again)}")
    assert (row["topic_id"], row["committed_offset"]) == (topic_id(client, topic), 2)
    assert row["topic_id"] != old_id


def test_the_change_from_classic_to_streams_and_back_is_an_event_each(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], read: Run, tmp_path: Path
) -> None:
    topic, group = unique("in"), unique("app")
    client.create_topic(topic, 1)
    with consuming(broker, group, topic) as old:
        old.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    read()
    join_streams_group(client, group, topic).leave()
    read()
    with consuming(broker, group, topic):
        read()
    query = f"SELECT old, new FROM group_events WHERE kind = 'group_type' AND group_id = {quote(group)} ORDER BY at"
    changes = [{"old": "classic", "new": "streams"}, {"old": "streams", "new": "classic"}]
    assert WarehouseReader(tmp_path).rows(query) == changes
    assert offsets_of(tmp_path, group) == {(topic, 0): 0}
    read(reset=True)
    assert WarehouseReader(tmp_path).rows(query) == changes
    types = WarehouseReader(tmp_path).rows(f"SELECT group_type FROM all_groups WHERE group_id = {quote(group)}")
    assert types == [{"group_type": "classic"}]
