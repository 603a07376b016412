"""The offsets topic as a stream: what must hold before it is read, and the filter that spares Python most of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming_app.job.errors import JobError
from streaming_app.job.refused import GROUP_PREFIX, explained, missing_acl
from streaming_app.protocol.security import SecurityError, read_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ANSWER_MS = 15_000
_READ = "READ"

# Key bytes sort as unsigned, so types compare as bytes: 2 (a classic group, which takes a group id over), 17 and
# up, and keys too short to hold a type. Offset commits and the other groups' records never leave the JVM.
WANTED = "key IS NULL OR key < X'0000' OR key >= X'0011' OR (key >= X'0002' AND key < X'0003')"

# Every group record's key begins with its type and the group's id, whose length is an int16. The id stays bytes: it may
# be no text.
RECORD_TYPE = "coalesce(cast(conv(hex(substring(key, 1, 2)), 16, 10) AS int), -1)"  # -1: there is no key
GROUP_BYTES = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) AS int))"


# What a properties file for other tools may hold, and Spark's reader sets itself and refuses to be told.
_SPARKS_OWN = frozenset(
    {"auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes", "key.deserializer"}
    | {"value.deserializer"}
)


class Topic(NamedTuple):
    """The topic as the cluster knows it."""

    name: str
    topic_id: str
    cluster_id: str
    partitions: int
    offsets: int  # end offsets less start offsets, summed: at most so many records


def client_properties(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    """Kafka client properties from the command line's. Raises JobError if the file cannot be read."""
    try:
        properties = read_properties(command_config) if command_config else {}
    except SecurityError as error:
        raise JobError(f"--command-config {error}") from None
    own = {name: value for name, value in properties.items() if name not in _SPARKS_OWN}
    return {**own, "bootstrap.servers": bootstrap_server}


def examine(spark: SparkSession, properties: Mapping[str, str], topic: str) -> Topic:
    """Ask the cluster about `topic` with Kafka's own AdminClient, so that every security setting means what it says.

    Raises UnreachableError when no broker answers, JobError when the topic is not there, has no partitions, or may not
    be read; both say what to do.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded by those who need it

    try:
        return _examine(spark._jvm, properties, topic)  # noqa: SLF001 - the JVM has no public name
    except Py4JJavaError as error:
        raise explained(error.java_exception, properties, topic) from None


def admin_client(jvm: Any, properties: Mapping[str, str], answer_ms: int) -> Any:  # noqa: ANN401 - of the JVM
    """Kafka's AdminClient, which gives up after `answer_ms`, whatever the properties say: they may say minutes."""
    settings = jvm.java.util.Properties()
    times = {"default.api.timeout.ms": str(answer_ms), "request.timeout.ms": str(answer_ms // 3)}
    for name, value in {**properties, **times}.items():
        settings.setProperty(name, value)
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)


def _examine(jvm: Any, properties: Mapping[str, str], topic: str) -> Topic:  # noqa: ANN401 - a JVM by name
    clients, seconds = jvm.org.apache.kafka.clients.admin, jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    admin = admin_client(jvm, properties, _ANSWER_MS)
    try:
        options = clients.DescribeTopicsOptions().includeAuthorizedOperations(True)  # noqa: FBT003 - Java's signature
        names = jvm.java.util.List.of(topic)
        found = admin.describeTopics(names, options).allTopicNames().get(_ANSWER_MS, seconds).get(topic)
        _may_read(found, topic)
        admin.listConsumerGroupOffsets(GROUP_PREFIX).all().get(_ANSWER_MS, seconds)  # what Spark will ask, too
        partitions = found.partitions().size()
        if partitions == 0:
            raise JobError(f"Topic {topic} has no partitions: is this the cluster you mean?")
        span = 0
        for sign, when in ((1, clients.OffsetSpec.latest()), (-1, clients.OffsetSpec.earliest())):
            asked = jvm.java.util.HashMap()
            for partition in range(partitions):
                asked.put(jvm.org.apache.kafka.common.TopicPartition(topic, partition), when)
            answers = admin.listOffsets(asked).all().get(_ANSWER_MS, seconds).values()
            span += sign * sum(answer.offset() for answer in answers)
        cluster_id = admin.describeCluster().clusterId().get(_ANSWER_MS, seconds)
        return Topic(topic, found.topicId().toString(), cluster_id, partitions, span)
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))


def _may_read(found: Any, topic: str) -> None:  # noqa: ANN401 - Kafka's TopicDescription
    operations = found.authorizedOperations()
    if operations is not None and _READ not in {operation.toString() for operation in operations}:
        raise JobError(missing_acl(_READ, "Topic", topic))


def read_stream(spark: SparkSession, properties: Mapping[str, str], topic: Topic, max_offsets: int) -> DataFrame:
    """Every record of every partition, from the beginning or the checkpoint, aborted transactions included.

    Partitions are assigned: subscribing would make Spark join a consumer group, which writes into this very topic.
    """
    return (
        spark.readStream.format("kafka").options(**_options(properties, topic), maxOffsetsPerTrigger=max_offsets).load()
    )


def read_once(spark: SparkSession, properties: Mapping[str, str], topic: Topic) -> DataFrame:
    """The same as a table, read as it is now."""
    return spark.read.format("kafka").options(**_options(properties, topic)).load()


def _options(properties: Mapping[str, str], topic: Topic) -> dict[str, str]:
    fetching = {
        "max.poll.records": "5000",
        "max.partition.fetch.bytes": str(1 << 20),
        "fetch.max.bytes": str(4 << 20),
        "isolation.level": "read_uncommitted",
        # Spark asks for offsets after every poll, and a broker answers a connection's requests in turn: behind a fetch
        # that waits for data that Spark does not want (half a second by default). Spark only fetches what is there.
        "fetch.max.wait.ms": "1",
    }
    return {
        **{f"kafka.{name}": value for name, value in {**fetching, **properties}.items()},
        "assign": json.dumps({topic.name: list(range(topic.partitions))}),
        "startingOffsets": "earliest",
        "groupIdPrefix": GROUP_PREFIX,
        "includeHeaders": "false",
    }
