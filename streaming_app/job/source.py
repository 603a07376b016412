"""The offsets topic as a stream: what must hold before it is read, and the filter that spares Python most of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming_app.job.errors import JobError, UnreachableError
from streaming_app.protocol.security import SecurityError, read_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ANSWER_MS = 15_000
_READ = "READ"
_GROUP_PREFIX = (
    "streams-groups"  # Spark's consumers ask for offsets under such names; they join nothing, commit nothing
)

# Key bytes sort as unsigned, so types compare as bytes: 2 (a classic group, which takes a group id over), 17 and
# up, and keys too short to hold a type. Offset commits and the other groups' records never leave the JVM.
WANTED = "key IS NULL OR key < X'0000' OR key >= X'0011' OR (key >= X'0002' AND key < X'0003')"

# Every group record's key begins with its type and the group's id, whose length is an int16. The id stays bytes: it may
# be no text.
RECORD_TYPE = "coalesce(cast(conv(hex(substring(key, 1, 2)), 16, 10) AS int), -1)"  # -1: there is no key
GROUP_BYTES = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) AS int))"


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
    return {**properties, "bootstrap.servers": bootstrap_server}


def examine(spark: SparkSession, properties: Mapping[str, str], topic: str) -> Topic:
    """Ask the cluster about `topic` with Kafka's own AdminClient, so that every security setting means what it says.

    Raises UnreachableError when no broker answers, JobError when the topic is not there, has no partitions, or may not
    be read; both say what to do.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded by those who need it

    try:
        return _examine(spark._jvm, properties, topic)  # noqa: SLF001 - the JVM has no public name
    except Py4JJavaError as error:
        raise _explained(error.java_exception, properties, topic) from None


def _examine(jvm: Any, properties: Mapping[str, str], topic: str) -> Topic:  # noqa: ANN401 - a JVM by name
    clients, seconds = jvm.org.apache.kafka.clients.admin, jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    settings = jvm.java.util.Properties()
    for name, value in {"default.api.timeout.ms": str(_ANSWER_MS), "request.timeout.ms": "5000", **properties}.items():
        settings.setProperty(name, value)
    admin = clients.AdminClient.create(settings)
    try:
        options = clients.DescribeTopicsOptions().includeAuthorizedOperations(True)  # noqa: FBT003 - Java's signature
        names = jvm.java.util.List.of(topic)
        found = admin.describeTopics(names, options).allTopicNames().get(_ANSWER_MS, seconds).get(topic)
        _may_read(found, topic)
        admin.listConsumerGroupOffsets(_GROUP_PREFIX).all().get(_ANSWER_MS, seconds)  # what Spark will ask, too
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
        raise JobError(_missing_acl(_READ, "Topic", topic))


def _missing_acl(operation: str, kind: str, name: str, how: str = "") -> str:
    return (
        f"Not authorized: the principal lacks the ACL {operation} on {kind}:{name}; grant it with kafka-acls.sh --add "
        f"--allow-principal User:... --operation {operation.title()} --{kind.lower()} {name}{how}"
    )


def _explained(error: Any, properties: Mapping[str, str], topic: str) -> JobError:  # noqa: ANN401 - a Java exception
    """One line for what Kafka's client threw."""
    while error.getCause() is not None:
        error = error.getCause()
    kind, servers = error.getClass().getSimpleName(), properties["bootstrap.servers"]
    told = error.getMessage() or kind
    lines = {
        "UnknownTopicOrPartitionException": f"{servers} has no topic {topic}: no group has committed there yet, or "
        "--topic names another one",
        "InvalidTopicException": f"--topic {topic}: Kafka allows no such name",
        "TopicAuthorizationException": _missing_acl("DESCRIBE", "Topic", topic),
        "GroupAuthorizationException": _missing_acl(
            "DESCRIBE", "Group", _GROUP_PREFIX, " --resource-pattern-type prefixed"
        ),
        "TimeoutException": f"No Kafka broker answers at {servers}: is the address right, and does the listener's "
        "security protocol match --command-config?",
        "SaslAuthenticationException": f"{servers} refused the credentials of --command-config: {told}",
        "SslAuthenticationException": f"TLS with {servers} failed: {told}",
        "ConfigException": f"Kafka client setting refused: {told}",
    }
    line = lines.get(kind, f"{servers}: {kind}: {told}")
    return UnreachableError(line) if kind == "TimeoutException" else JobError(line)


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
        "groupIdPrefix": _GROUP_PREFIX,
        "includeHeaders": "false",
    }
