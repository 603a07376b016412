"""Committed offsets and groups of every type, as a real broker writes and describes them."""

import base64
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import OffsetAndMetadata
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_fixed

from streaming_app.job.lag_pass import LagPass
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.lag.tracker import LagTracker
from streaming_app.queries.described import other_members
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.container import Broker
from tests.support.waiting import delete_topic, wait_until

pytestmark = pytest.mark.broker
_JOIN_SECONDS = 90


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
    client.commit_offsets(group, offsets, *member)


def offsets_of(warehouse: Path, group: str) -> dict[tuple[str, int], int]:
    query = f"SELECT topic, partition, committed_offset FROM offsets WHERE group_id = {quote(group)}"
    return {(r["topic"], r["partition"]): r["committed_offset"] for r in WarehouseReader(warehouse).rows(query)}


def broker_offsets(client: StreamsGroupClient, group: str) -> dict[tuple[str, int], int]:
    listed = client.list_group_offsets({group: None})[group]
    return {(one.topic, one.partition): known.offset for one, known in listed.items()}


def topic_id(client: StreamsGroupClient, topic: str) -> str:
    found = UUID(str(client.describe_topics([topic])[0]["topic_id"]))
    return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")


def hosts_of(warehouse: Path, client: StreamsGroupClient, topic: str) -> dict[str, str | None]:
    """Return by group the host that has the first partition of a topic, as a lag pass finds it."""
    rows = LagPass(LagTables(warehouse, "default"), LagTracker()).run(client).rows
    return {row.group_id: row.client_host for row in rows if (row.topic, row.partition) == (topic, 0)}


def test_offsets_of_groups_of_every_protocol_and_their_members_are_those_that_the_broker_returns(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], run: Callable[..., str], tmp_path: Path
) -> None:
    read = partial(run, "__consumer_offsets", offsets={"enabled": True})
    topic = unique("in")
    classic, streams, plain = map(unique, ("classic", "streams", "plain"))
    client.create_topic(topic, 2)
    commits = {(topic, 0): 3, (topic, 1): 4}
    commit(client, plain, commits)
    app = SimulatedMember(client, streams, topology(subtopology("0", source_topics=[topic])))
    app.join()
    settle([app])
    commit(client, streams, commits, app.member_id, app.epoch)
    with closing(join(broker, classic, topic)) as old:
        before = int(time.time())
        old.commit({TopicPartition(topic, 0): OffsetAndMetadata(8, "é", -1)})
        after = time.time()
        read()
        listed = {group["group_id"]: group for group in client.list_groups()}
        assert hosts_of(tmp_path, client, topic) == {classic: "127.0.0.1", streams: "127.0.0.1", plain: None}
    for group in (classic, streams, plain):
        assert offsets_of(tmp_path, group) == broker_offsets(client, group) != {}

    reader = WarehouseReader(tmp_path)
    (row,) = reader.rows(f"SELECT * FROM offsets WHERE group_id = {quote(classic)}")
    assert (row["metadata"], row["topic_id"]) == ("é", topic_id(client, topic))
    assert before <= row["committed_at"].timestamp() <= after
    ours = {classic, streams, plain}
    groups = {row["group_id"]: row for row in reader.rows("SELECT * FROM all_groups") if row["group_id"] in ours}
    columns = ("group_type", "protocol_type", "state")
    assert {group: tuple(row[one] for one in columns) for group, row in groups.items()} == {
        group: (
            listed[group]["group_type"].lower(),
            listed[group]["protocol_type"],
            None if group == classic else listed[group]["group_state"],
        )
        for group in ours
    }
    (member,) = other_members(reader, "default", [(classic, "classic")])
    assert (member["HOST"], member["LEADER"], member["ASSIGNMENT"]) == ("127.0.0.1", "yes", f"{topic}(0,1)")

    old_id = topic_id(client, topic)
    client.delete_group(plain)
    delete_topic(client, topic)
    client.create_topic(topic, 1)
    commit(client, again := unique("again"), {(topic, 0): 2})
    read()
    assert offsets_of(tmp_path, plain) == {}
    (row,) = WarehouseReader(tmp_path).rows(f"SELECT * FROM offsets WHERE group_id = {quote(again)}")
    assert (row["topic_id"], row["committed_offset"]) == (topic_id(client, topic), 2)
    assert row["topic_id"] != old_id
