"""Random topologies against random topics: our reason, and that of Kafka's own class, driven over py4j."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from streaming_app.core.group import Group, apply
from streaming_app.core.readiness import INVALID_TOPOLOGY, Reason, reason_from_topics
from streaming_app.local.jars import resolve
from streaming_app.protocol.topology import internal_topic, subtopology
from tests.decoder.kafka_oracle import Oracle

TOPOLOGIES = 200
COUNTS = {"a1": 1, "b1": 1, "a2": 2, "b2": 2, "a3": 3, "r1": 1, "r2": 2, "s2": 2, "c1": 1, "c2": 2, "c3": 3}
"""Topics that exist: sources a and b, repartition topics r and s, changelogs c. Names beyond these are missing."""

Ask = Callable[[dict[str, Any]], tuple[str, str] | None]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Ask]:
    """What InternalTopicManager says of a topology: (status, detail), or None if its topics are in order."""
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
    made = delta.apply(image.MetadataProvenance.EMPTY)
    known = jvm.org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage(made)
    streams = jvm.org.apache.kafka.coordinator.group.streams
    manager, of_record = streams.topics.InternalTopicManager, streams.StreamsTopology.fromRecord
    accessor, wrap = jvm.org.apache.kafka.common.protocol.ByteBufferAccessor, jvm.java.nio.ByteBuffer.wrap
    quiet, clock = jvm.org.slf4j.helpers.NOPLogger.NOP_LOGGER, jvm.org.apache.kafka.common.utils.Time.SYSTEM

    def ask(fields: dict[str, Any]) -> tuple[str, str] | None:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415

        from offsets_decoder import encode  # noqa: PLC0415

        _, value = encode(23, {"group_id": "g"}, fields)
        assert value is not None
        record = oracle._class("StreamsGroupTopologyValue")(accessor(wrap(value[2:])), 0)
        try:
            configured = manager.configureTopics(quiet, "g", "m", 0, of_record(record), known, clock)
        except Py4JJavaError as error:
            thrown = error.java_exception
            assert thrown.getClass().getSimpleName() == "StreamsInvalidTopologyException"
            return INVALID_TOPOLOGY, thrown.getMessage()
        trouble = configured.topicConfigurationException()
        return (trouble.get().status().toString(), trouble.get().getMessage()) if trouble.isPresent() else None

    yield ask
    oracle.close()


def random_topology(random: Random) -> dict[str, Any]:
    """One that a broker's own checks of a heartbeat would let through."""
    sources = ["a1", "b1", "a2", "b2", "a3"] + ["gone"] * (random.random() < 0.15)
    spare = random.sample(["r1", "r2", "s2", "new", "newer"], random.choice((0, 0, 1, 2)))
    fixed = {name: random.choice((0, 0, 0, 1, 2, 3)) for name in spare}
    parts = []
    for number in range(random.choice((1, 2, 3))):
        mine = random.sample(sources, random.choice((1, 1, 2)))
        read = [name for name in spare if random.random() < 0.5] if number else []
        both = [*mine, *read]
        together = (
            [random.sample(both, random.randint(2, len(both)))] if len(both) > 1 and random.random() < 0.5 else []
        )
        stores = random.sample(["c1", "c2", "c3", "gone-changelog"], random.choice((0, 0, 1)))
        parts.append(
            subtopology(
                str(number),
                source_topics=mine,
                repartition_source_topics=[internal_topic(name, fixed[name]) for name in read],
                repartition_sink_topics=[name for name in spare if not number or random.random() < 0.1],
                state_changelog_topics=[internal_topic(f"{name}") for name in stores],
                copartition_groups=together,
            )
        )
    return {"epoch": 0, "subtopologies": parts}


def test_random_topologies_have_the_reason_that_kafka_gives(kafka: Ask) -> None:
    random = Random(1)  # noqa: S311 - no secret
    seen: dict[str | None, int] = {}
    for _ in range(TOPOLOGIES):
        fields = random_topology(random)
        group = Group("g")
        apply(group, 23, {"group_id": "g"}, fields, None)
        said = kafka(fields)
        ours = reason_from_topics(group.subtopologies, COUNTS)
        seen[said and said[0]] = seen.get(said and said[0], 0) + 1
        assert (ours and ours.status) == (said and said[0]), (fields, said, ours)
        if said and ours:
            assert alike(ours, said[1]), (fields, said, ours)
    assert all(count > TOPOLOGIES / 50 for count in seen.values()), seen
    assert seen.keys() >= {None, "MISSING_SOURCE_TOPICS", "INCORRECTLY_PARTITIONED_TOPICS", "MISSING_INTERNAL_TOPICS"}


def alike(ours: Reason, said: str) -> bool:
    """Word for word, but for the order of missing internal topics; several wrong topics may be told in any order."""
    if sorted(re.split(r"[ ,]+", ours.detail)) == sorted(re.split(r"[ ,]+", said)):
        return True
    kinds = ("Existing topic", "Number of partitions", "Following topics")
    return ours.detail.startswith(kinds) and said.startswith(kinds)
