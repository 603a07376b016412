"""Random topologies against a fixed set of topics: our reason compared with that of Kafka's own class, over py4j."""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from streaming_app.groups.group import Group
from streaming_app.groups.not_ready import INVALID_TOPOLOGY, reason_from_topics
from streaming_app.groups.replay import APPLY
from streaming_app.sandbox.member import internal_topic, subtopology
from tests.support.ivy import resolve
from tests.support.kafka_oracle import Oracle

TOPOLOGIES = 200
COUNTS = {"a1": 1, "b1": 1, "a2": 2, "b2": 2, "a3": 3, "r1": 1, "r2": 2, "s2": 2, "c1": 1, "c2": 2, "c3": 3}
"""Topics that exist: sources a and b, repartition topics r and s, changelogs c. Any other topic is missing."""

KafkaReason = Callable[[dict[str, Any]], tuple[str, str] | None]


@pytest.fixture(scope="module")
def kafka_reason() -> Iterator[KafkaReason]:
    """Return the result of InternalTopicManager for a topology: (status, detail), or None if its topics are valid."""
    oracle = Oracle(resolve("org.apache.kafka:kafka-group-coordinator:4.4.0"))
    jvm = oracle._gateway.jvm
    image = jvm.org.apache.kafka.image
    delta = getattr(image, "MetadataDelta$Builder")().build()
    records = jvm.org.apache.kafka.common.metadata
    for name, partitions in COUNTS.items():
        topic_id = jvm.org.apache.kafka.common.Uuid.randomUuid()
        delta.replay(records.TopicRecord().setName(name).setTopicId(topic_id))
        for number in range(partitions):
            delta.replay(records.PartitionRecord().setTopicId(topic_id).setPartitionId(number))
    metadata_image = delta.apply(image.MetadataProvenance.EMPTY)
    coordinator_image = jvm.org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage(metadata_image)
    streams = jvm.org.apache.kafka.coordinator.group.streams
    manager, of_record = streams.topics.InternalTopicManager, streams.StreamsTopology.fromRecord
    accessor, wrap = jvm.org.apache.kafka.common.protocol.ByteBufferAccessor, jvm.java.nio.ByteBuffer.wrap
    no_log, clock = jvm.org.slf4j.helpers.NOPLogger.NOP_LOGGER, jvm.org.apache.kafka.common.utils.Time.SYSTEM

    def configure_topics(fields: dict[str, Any]) -> tuple[str, str] | None:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415

        from tests.support.encode import encode  # noqa: PLC0415

        _, value = encode(23, {"group_id": "g"}, fields)
        assert value is not None
        record = oracle._class("StreamsGroupTopologyValue")(accessor(wrap(value[2:])), 0)
        try:
            configured = manager.configureTopics(no_log, "g", "m", 0, of_record(record), coordinator_image, clock)
        except Py4JJavaError as error:
            exception = error.java_exception
            assert exception.getClass().getSimpleName() == "StreamsInvalidTopologyException"
            return INVALID_TOPOLOGY, exception.getMessage()
        exception = configured.topicConfigurationException()
        return (exception.get().status().toString(), exception.get().getMessage()) if exception.isPresent() else None

    yield configure_topics
    oracle.close()


def random_topology(random: Random) -> dict[str, Any]:
    """Return a topology that passes the broker's validation of a heartbeat."""
    sources = ["a1", "b1", "a2", "b2", "a3"] + ["missing"] * (random.random() < 0.15)
    repartition = random.sample(["r1", "r2", "s2", "new", "newer"], random.choice((0, 0, 1, 2)))
    fixed = {name: random.choice((0, 0, 0, 1, 2, 3)) for name in repartition}
    parts = []
    for number in range(random.choice((1, 2, 3))):
        source_topics = random.sample(sources, random.choice((1, 1, 2)))
        read = [name for name in repartition if random.random() < 0.5] if number else []
        both = [*source_topics, *read]
        copartition_groups = (
            [random.sample(both, random.randint(2, len(both)))] if len(both) > 1 and random.random() < 0.5 else []
        )
        changelogs = random.sample(["c1", "c2", "c3", "missing-changelog"], random.choice((0, 0, 1)))
        parts.append(
            subtopology(
                str(number),
                source_topics=source_topics,
                repartition_source_topics=[internal_topic(name, fixed[name]) for name in read],
                repartition_sink_topics=[name for name in repartition if not number or random.random() < 0.1],
                state_changelog_topics=[internal_topic(name) for name in changelogs],
                copartition_groups=copartition_groups,
            )
        )
    return {"epoch": 0, "subtopologies": parts}


def test_random_topologies_have_the_same_reason_as_in_kafka(kafka_reason: KafkaReason) -> None:
    random = Random(1)  # noqa: S311 - no secret
    statuses: dict[str | None, int] = {}
    for _ in range(TOPOLOGIES):
        fields = random_topology(random)
        group = Group("g")
        APPLY[23](group, {"group_id": "g"}, fields, None)
        expected = kafka_reason(fields)
        status = expected and expected[0]
        reason = reason_from_topics(group.subtopologies, COUNTS)
        statuses[status] = statuses.get(status, 0) + 1
        found, _, detail = (reason or "").partition(": ")
        assert (found or None) == status, (fields, expected, reason)
        if expected and reason:
            assert is_equivalent(detail, expected[1]), (fields, expected, reason)
    assert all(count > TOPOLOGIES / 50 for count in statuses.values()), statuses
    assert statuses.keys() >= {
        None,
        "MISSING_SOURCE_TOPICS",
        "INCORRECTLY_PARTITIONED_TOPICS",
        "MISSING_INTERNAL_TOPICS",
    }


def is_equivalent(detail: str, expected: str) -> bool:
    """Compare the words in any order, as missing topics are; of several invalid topics, each side may name another."""
    if sorted(re.split(r"[ ,]+", detail)) == sorted(re.split(r"[ ,]+", expected)):
        return True
    prefixes = ("Existing topic", "Number of partitions", "Following topics")
    return detail.startswith(prefixes) and expected.startswith(prefixes)
