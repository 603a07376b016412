"""Bytes of members against Kafka's own classes: we decode what they write, and they decode what we encode.

`SubscriptionInfo` and `AssignmentInfo` have no JSON converters, so their fields are compared one by one. Half of
ORACLE_MESSAGES is the number of random messages for each version.
"""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from offsets_decoder import decode, to_json
from offsets_decoder.embedded import decode_embedded
from offsets_decoder.streams_protocol import Subscription, Task, decode_assignment, decode_subscription
from tests.decoder.random_records import random_kafka_json
from tests.support.encode import encode, encode_embedded
from tests.support.ivy import resolve
from tests.support.kafka_oracle import Oracle

pytestmark = pytest.mark.java
RELEASE = "4.4.0"
MESSAGES = int(os.environ.get("ORACLE_MESSAGES", "50")) // 2
CONSUMER_FORMATS = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
LETTERS = 'abc-_.09 é€😀\x00"\\'
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)

TaskId = tuple[int, int, str | None]
Partition = tuple[str, int]
Host = tuple[str, int]


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    """The jars of the release. One that cannot be downloaded is an error, never a skip."""
    return resolve(f"org.apache.kafka:kafka-streams:{RELEASE}", f"org.apache.kafka:kafka-group-coordinator:{RELEASE}")


@pytest.fixture(scope="module")
def kafka(jars: list[Path]) -> Iterator[Oracle]:
    with closing(Oracle(jars)) as oracle:
        yield oracle


def schema_of(jars: list[Path], name: str) -> dict[str, Any]:
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            path = f"common/message/{name}.json"
            if path in archive.namelist():
                return json.loads(_COMMENT.sub("", archive.read(path).decode()))
    raise AssertionError(f"no jar has the schema of {name}")


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("name", CONSUMER_FORMATS)
def test_bytes_of_consumers_are_printed_as_kafka_prints_them_and_ours_are_its_own(
    jars: list[Path], kafka: Oracle, name: str, version: int
) -> None:
    random, schema, java = Random(f"{name} {version}"), schema_of(jars, name), f"org.apache.kafka.common.message.{name}"
    part = "subscription" if name == CONSUMER_FORMATS[0] else "assignment"

    for _ in range(MESSAGES):
        data, printed = kafka.bytes_of(java, version, random_kafka_json(random, schema, version))
        ours = encode_embedded(name, version, decode_embedded(name, data)[1])

        assert printed_of(part, data) == {"version": version, "data": printed}
        assert kafka.json_of(java, version, ours[2:]) == printed


def printed_of(part: str, data: bytes) -> Any:
    value = {"protocol_type": "consumer", "protocol": "range", "members": [{"member_id": "m", part: data}]}
    return to_json(decode(*encode(2, {"group": "g"}, value, version=3)))["decoded"]["members"][0][part]


def text(random: Random, longest: int = 8) -> str:
    return "".join(random.choices(LETTERS, k=random.randint(1, longest)))


def number(random: Random) -> int:
    return random.choice([0, 1, 2, 2**31 - 1, random.randint(0, 10_000)])


def task_ids(random: Random, version: int) -> list[TaskId]:
    """Return distinct tasks; they are all of named topologies or none of them, as in Kafka."""
    is_named = version >= 10 and random.random() < 0.3
    ids = {(number(random), number(random), text(random) if is_named else None) for _ in range(random.randint(0, 4))}
    return sorted(ids, key=repr)


def partitions(random: Random) -> set[Partition]:
    return {(text(random), number(random)) for _ in range(random.randint(0, 3))}


def printed_task(task: TaskId) -> str:
    subtopology, partition, name = task
    return f"{name}__{subtopology}_{partition}" if name else f"{subtopology}_{partition}"


def printed(task: Task) -> str:
    return f"{task[0]}_{task[1]}"


class Streams:
    """Kafka Streams' own classes."""

    def __init__(self, kafka: Oracle) -> None:
        self.jvm = kafka.jvm
        self.info = kafka.jvm.org.apache.kafka.streams.processor.internals.assignment
        self.data = kafka.jvm.org.apache.kafka.streams.internals.generated.SubscriptionInfoData

    def inner(self, name: str) -> Any:
        return getattr(self.jvm.org.apache.kafka.streams.internals.generated, f"SubscriptionInfoData${name}")()

    def read(self, kind: str, data: bytes) -> Any:
        return getattr(self.info, kind).decode(self.jvm.java.nio.ByteBuffer.wrap(data))

    def bytes_of(self, data: Any, version: int) -> bytes:
        util = self.jvm.org.apache.kafka.common.protocol.MessageUtil
        return bytes(util.toVersionPrefixedBytes(version, data))[2:]

    def list_of(self, elements: Any) -> Any:
        made = self.jvm.java.util.ArrayList()
        for one in elements:
            made.add(one)
        return made

    def set_of(self, elements: set[Partition]) -> Any:
        made = self.jvm.java.util.HashSet()
        for topic, partition in elements:
            made.add(self.jvm.org.apache.kafka.common.TopicPartition(topic, partition))
        return made

    def map_of(self, entries: list[tuple[Any, Any]]) -> Any:
        made = self.jvm.java.util.HashMap()
        for key, value in entries:
            made.put(key, value)
        return made

    def task(self, task: TaskId) -> Any:
        return self.jvm.org.apache.kafka.streams.processor.TaskId(*task)

    def host(self, host: Host) -> Any:
        return self.jvm.org.apache.kafka.streams.state.HostInfo(*host)

    def hosts(self, by_host: dict[Host, set[Partition]]) -> Any:
        return self.map_of([(self.host(host), self.set_of(one)) for host, one in by_host.items()])

    def facts_of_subscription(self, data: bytes) -> dict[str, Any]:
        """Return what a leader reads of the bytes."""
        info = self.read("SubscriptionInfo", data)
        return {
            "version": info.version(),
            "latest": info.latestSupportedVersion(),
            "process": str(info.processId().id().toString()),
            "endpoint": info.userEndPoint(),
            "sums": {str(entry.getKey().toString()): entry.getValue() for entry in info.taskOffsetSums().entrySet()},
            "tags": dict(info.clientTags()),
            "error": info.errorCode(),
        }

    def facts_of_assignment(self, data: bytes) -> dict[str, Any]:
        """Return what a client reads of the bytes; the partitions by host are null before they are in the version."""
        info = self.read("AssignmentInfo", data)
        return {
            "version": info.version(),
            "common": info.commonlySupportedVersion(),
            "active": [str(task.toString()) for task in info.activeTasks()],
            "standby": {str(one.getKey().toString()): texts(one.getValue()) for one in info.standbyTasks().entrySet()},
            "by_host": hosts_of(info.partitionsByHost()),
            "standby_by_host": hosts_of(info.standbyPartitionByHost()),
            "error": info.errCode(),
            "next": info.nextRebalanceMs(),
        }


def texts(java_partitions: Any) -> list[str]:
    return sorted(str(one.toString()) for one in java_partitions)


def hosts_of(by_host: Any) -> dict[Host, list[str]]:
    entries = by_host.entrySet() if by_host else ()
    return {(str(one.getKey().host()), one.getKey().port()): texts(one.getValue()) for one in entries}


@pytest.fixture(scope="module")
def streams(kafka: Oracle) -> Streams:
    return Streams(kafka)


def our_subscription(data: bytes) -> dict[str, Any]:
    metadata = encode_embedded("ConsumerProtocolSubscription", 0, {"user_data": data})
    subscription = decode_subscription(metadata)
    return {
        "version": subscription.version,
        "latest": -1 if subscription.latest_version is None else subscription.latest_version,
        "process": subscription.process_id,
        "endpoint": subscription.user_endpoint,
        "sums": {printed(task): as_java(subscription, task) for task in subscription.offset_sums},
        "tags": subscription.client_tags,
        "error": subscription.error_code,
    }


def as_java(subscription: Subscription, task: Task) -> int:
    """Return the sum of a task; without sums Kafka has -3 (unknown) for the tasks that were not active."""
    known = subscription.offset_sums[task]
    return known if known is not None else -3 if task in subscription.previous_standby else -2


def written_subscription(random: Random, streams: Streams, version: int) -> bytes:
    data = streams.data().setVersion(version).setProcessId(streams.jvm.org.apache.kafka.common.Uuid.randomUuid())
    ids = task_ids(random, version)
    if version >= 3:
        data.setLatestSupportedVersion(random.randint(version, 11))
    if version >= 2:
        data.setUserEndPoint(random.choice(["", "host:1", text(random)]).encode())
    if version >= 8:
        data.setUniqueField(random.randint(-128, 127))
    if version >= 9:
        data.setErrorCode(random.choice([0, 4]))
    if version >= 11:
        tags = {text(random): text(random) for _ in range(random.randint(0, 3))}
        inner = [streams.inner("ClientTag").setKey(k.encode()).setValue(v.encode()) for k, v in tags.items()]
        data.setClientTags(streams.list_of(inner))
    sums = [random.choice([-2, 0, 2**63 - 1, random.randint(0, 2**40)]) for _ in ids]
    if version >= 10:
        made = [
            streams.inner("TaskOffsetSum").setTopicGroupId(s).setPartition(p).setNamedTopology(n).setOffsetSum(offset)
            for (s, p, n), offset in zip(ids, sums, strict=True)
        ]
        data.setTaskOffsetSums(streams.list_of(made))
    elif version >= 7:
        made = [
            streams.inner("TaskOffsetSum")
            .setTopicGroupId(s)
            .setPartitionToOffsetSum(
                streams.list_of([streams.inner("PartitionToOffsetSum").setPartition(p).setOffsetSum(offset)])
            )
            for (s, p, _), offset in zip(ids, sums, strict=True)
        ]
        data.setTaskOffsetSums(streams.list_of(made))
    else:
        made = [streams.inner("TaskId").setTopicGroupId(s).setPartition(p) for s, p, _ in ids]
        cut = random.randint(0, len(made))
        data.setPrevTasks(streams.list_of(made[:cut])).setStandbyTasks(streams.list_of(made[cut:]))
    return streams.bytes_of(data, version)


@pytest.mark.parametrize("version", range(1, 12))
def test_subscriptions_of_kafka_streams_are_read_as_a_leader_reads_them(streams: Streams, version: int) -> None:
    random = Random(f"subscription {version}")

    for _ in range(MESSAGES):
        data = written_subscription(random, streams, version)

        assert our_subscription(data) == streams.facts_of_subscription(data)
        assert encode_embedded("SubscriptionInfo", version, decode_embedded("SubscriptionInfo", data)[1]) == data


def our_assignment(data: bytes) -> dict[str, Any]:
    version, fields = decode_embedded("AssignmentInfo", data)
    topics = {one["index"]: one["topic"] for one in fields["topics"]}

    def by_host(name: str) -> dict[Host, list[str]]:
        return {
            (host["host"], host["port"]): sorted(
                {
                    f"{one['topic'] if 'topic' in one else topics[one['topic_index']]}-{one['partition']}"
                    for one in host["partitions"]
                }
            )
            for host in fields[name]
        }

    def task_of(one: dict[str, Any]) -> str:
        return printed_task((one["topic_group_id"], one["partition"], one["named_topology"]))

    return {
        "version": version,
        "common": fields["commonly_supported_version"],
        "active": [task_of(one) for one in fields["active_tasks"]],
        "standby": {
            task_of(one): sorted({f"{p['topic']}-{p['partition']}" for p in one["partitions"]})
            for one in fields["standby_tasks"]
        },
        "by_host": by_host("partitions_by_host") | by_host("indexed_partitions_by_host"),
        "standby_by_host": by_host("indexed_standby_partitions_by_host"),
        "error": fields["err_code"],
        "next": fields["next_rebalance_ms"],
    }


def written_assignment(random: Random, streams: Streams, version: int) -> tuple[bytes, list[TaskId]]:
    """Return the bytes, and the active tasks, one for each partition."""
    active = [task for task in task_ids(random, version) for _ in range(random.choice([1, 1, 2]))]
    standby = {task: partitions(random) for task in task_ids(random, version)}
    by_host, standby_by_host = (
        {(text(random), number(random)): partitions(random) for _ in range(random.randint(0, 3))} for _ in "as"
    )
    made = streams.info.AssignmentInfo(
        version,
        random.randint(version, 11) if version >= 3 else -1,
        streams.list_of([streams.task(one) for one in active]),
        streams.map_of([(streams.task(task), streams.set_of(of_task)) for task, of_task in standby.items()]),
        streams.hosts(by_host),
        streams.hosts(standby_by_host),
        random.choice([0, 1, 3, 4]),
    )
    made.setNextRebalanceTime(random.choice([0, 2**63 - 1, 1_700_000_000_000]))
    return bytes(made.encode().array()), active


@pytest.mark.parametrize("version", range(1, 12))
def test_assignments_of_kafka_streams_are_read_as_a_client_reads_them(
    kafka: Oracle, streams: Streams, version: int
) -> None:
    random = Random(f"assignment {version}")
    consumer = kafka.jvm.org.apache.kafka.clients.consumer

    for _ in range(MESSAGES):
        data, active = written_assignment(random, streams, version)
        expected = streams.facts_of_assignment(data)
        assert our_assignment(data) == expected
        assert encode_embedded("AssignmentInfo", version, decode_embedded("AssignmentInfo", data)[1]) == data

        assigned = {(f"t{index // 3}", index % 3 + 9) for index in range(len(active))}
        java = getattr(consumer, "ConsumerPartitionAssignor$Assignment")(
            streams.list_of(streams.set_of(assigned)), kafka.jvm.java.nio.ByteBuffer.wrap(data)
        )
        assignment = decode_assignment(bytes(consumer.internals.ConsumerProtocol.serializeAssignment(java).array()))
        of_task: dict[str, list[Partition]] = {}
        for task, partition in zip(active, sorted(assigned), strict=True):
            of_task.setdefault(printed_task(task), []).append(partition)
        assert {printed(task): listed for task, listed in assignment.active.items()} == of_task
        kept = {printed(task): sorted({f"{t}-{n}" for t, n in own}) for task, own in assignment.standby.items()}
        assert kept == expected["standby"]
        assert assignment.next_rebalance_ms == (None if expected["next"] == 2**63 - 1 else expected["next"])
        assert (assignment.version, assignment.error_code) == (version, expected["error"])
