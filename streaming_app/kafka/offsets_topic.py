"""The offsets topic as the brokers describe it, and the choice of a group coordinator that answers Spark.

kafka-python sends the requests. If it does not support the client properties (such as GSSAPI), Kafka's own client in
Spark's JVM describes the topic, so that the job can run; then it is not known whether a coordinator answers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaTimeoutError

from streaming_app.errors import JobError, MissingTopicError, NotAuthorizedError, OtherTopicError, UnreachableError
from streaming_app.groups.partition import partition_of
from streaming_app.kafka import GROUP_PREFIX, diagnose
from streaming_app.kafka.connection import Admin, KeptConnection, connect
from streaming_app.kafka.error_lines import REQUEST_ERRORS, missing_acl_message, to_job_error
from streaming_app.kafka.lag_offsets import (
    EARLIEST,
    LATEST,
    LogEndsClient,
    Offset,
    TopicLeaders,
    fetch_committed_offsets,
    format_topic_id,
    is_denied,
)
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, error_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

COORDINATOR_SECONDS = 10.0
"""How long a coordinator of any partition may take to answer; with the earlier requests the line comes within 15 s."""
_NEXT_MS = 1_000  # without an answer of one coordinator, until the next one is asked
_PATIENCE_SECONDS = 10.0  # for elections
_PAUSE_SECONDS = 0.2  # between two attempts
_TIMEOUT_MS = 15_000  # of a request, and of a call of Java's client
_IDS_PER_PARTITION = 8  # random group ids: with so many, nearly each partition has one
_READ = "READ"
_UNKNOWN_TOPIC, _INVALID_TOPIC = 3, 17
_DELETE_RETENTION = "delete.retention.ms"
_DEFAULT_DELETE_RETENTION_MS = 86_400_000  # Kafka's default, if the principal may not read the configuration


class OffsetsTopic(NamedTuple):
    """The topic as the cluster describes it."""

    name: str
    topic_id: str
    cluster_id: str
    partitions: int
    offsets: int
    """End offsets minus start offsets, summed: an upper bound of the number of records."""
    end_offsets: Mapping[int, int] = MappingProxyType({})
    """End offsets by partition."""
    delete_retention_ms: int = _DEFAULT_DELETE_RETENTION_MS
    """How long the brokers keep tombstones after compaction: `delete.retention.ms`."""
    start_offsets: Mapping[int, int] = MappingProxyType({})
    """Start offsets by partition."""
    group_id: str = GROUP_PREFIX
    """A group id for Spark's consumers whose coordinator has answered."""

    @classmethod
    def of(
        cls, name: str, topic_id: str, cluster_id: str, ends: Mapping[int, int], starts: Mapping[int, int]
    ) -> OffsetsTopic:
        """Return the topic, with the fields that follow from its offsets."""
        offsets = sum(ends.values()) - sum(starts.values())
        return cls(name, topic_id, cluster_id, len(ends), offsets, end_offsets=ends, start_offsets=starts)


class OffsetsTopicClient:
    """Asks about the offsets topic, over one connection; for one thread at a time.

    Calls raise UnreachableError when no broker answers, MissingTopicError when the topic does not exist,
    NotAuthorizedError when an ACL is missing, and JobError if waiting does not help; the texts say what to do.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, spark: SparkSession) -> None:
        """Prepare; the first call connects. `properties` are Kafka client properties."""
        self._properties, self._topic, self._spark = properties, topic, spark
        self._connection = KeptConnection(partial(connect, properties, request_timeout_ms=_TIMEOUT_MS))

    def describe(self, *, to_read: bool = True) -> OffsetsTopic:
        """Return the description of the topic; with `to_read`, including a group id for Spark's consumers.

        Without `to_read` no coordinator is needed.
        """
        try:
            return self._ask(partial(_describe, self._properties, self._topic, to_read=to_read))
        except SecurityError as error:
            return _describe_in_java(self._spark, self._properties, self._topic, error)

    def coordinator_answers(self, group_id: str) -> bool:
        """Return whether the coordinator of a group answers; True if it cannot be asked."""
        try:
            return self._ask(lambda admin: _first_answering(admin, [group_id])) is not None
        except SecurityError:
            return True

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection.close()

    def _ask(self, call: Callable[[Admin], T]) -> T:
        try:
            return call(self._connection.get())
        except JobError:
            raise
        except Exception as error:  # if the connection's thread has ended, any kind of error
            self.close()
            if isinstance(error, REQUEST_ERRORS):
                raise to_job_error(error, self._properties) from None
            raise


def describe_offsets_topic(
    spark: SparkSession, properties: Mapping[str, str], topic: str, *, to_read: bool = True
) -> OffsetsTopic:
    """Describe the topic as `OffsetsTopicClient` does, over a connection for this call only."""
    with closing(OffsetsTopicClient(properties, topic, spark)) as client:
        return client.describe(to_read=to_read)


def check_topic_id(name: str, expected: str, found: str) -> None:
    """Raise OtherTopicError if the id of a topic is not the expected one."""
    if found != expected:
        raise OtherTopicError(
            f"Topic {name} was deleted and created again while the job ran: start it with --reset to drop the rows of "
            "the groups and read from the beginning; the history stays"
        )


def _describe(properties: Mapping[str, str], topic: str, admin: Admin, *, to_read: bool) -> OffsetsTopic:
    client, deadline = LogEndsClient(admin), time.monotonic() + _PATIENCE_SECONDS
    while True:
        described = admin.describe_topics([topic])[0]
        _raise_unless_readable(properties, topic, described)
        leaders = {one["partition_index"]: one["leader_id"] for one in described["partitions"]}
        partitions, led = [(topic, one) for one in leaders], {topic: TopicLeaders(None, leaders)}
        found = [client.list_offsets(partitions, led, at) for at in (LATEST, EARLIEST)]
        ends, starts = ({key[1]: one.offset for key, one in some.items() if isinstance(one, Offset)} for some in found)
        if len(ends) == len(starts) == len(leaders):
            break
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(f"a partition of {topic} has no leader that answers")
        time.sleep(_PAUSE_SECONDS)
    topic_id = format_topic_id(uuid.UUID(described["topic_id"])) or ""
    return OffsetsTopic.of(topic, topic_id, admin.describe_cluster()["cluster_id"], ends, starts)._replace(
        delete_retention_ms=_delete_retention_ms(admin, topic),
        group_id=_answering_group(admin, topic, len(leaders)) if to_read else GROUP_PREFIX,
    )


def _raise_unless_readable(properties: Mapping[str, str], topic: str, described: Mapping[str, Any]) -> None:
    servers, code = properties["bootstrap.servers"], described["error_code"]
    if code == TOPIC_AUTHORIZATION_FAILED:
        raise NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", topic))
    if code == _UNKNOWN_TOPIC:
        raise _missing(servers, topic)
    if code == _INVALID_TOPIC:
        raise JobError(f"--topic {topic}: Kafka does not allow this topic name")
    if code:
        raise UnreachableError(f"{servers}: {topic}: {error_name(code)}.")
    operations = described.get("authorized_operations")
    if operations is not None and _READ not in operations:
        raise NotAuthorizedError(missing_acl_message(_READ, "Topic", topic))
    if not described["partitions"]:
        raise JobError(f"Topic {topic} has no partitions: is this the cluster you mean?")


def _missing(servers: str, topic: str) -> MissingTopicError:
    return MissingTopicError(
        f"{servers} has no topic {topic}: no group has committed offsets there yet, or --topic is wrong"
    )


def _delete_retention_ms(admin: Admin, topic: str) -> int:
    """Return the topic's `delete.retention.ms`, or Kafka's default if the principal lacks DescribeConfigs on it."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {_DELETE_RETENTION: None})
    configs = admin.describe_configs([resource], config_filter="all").get("topic", {}).get(topic, {})
    return int(configs[_DELETE_RETENTION]["value"]) if configs else _DEFAULT_DELETE_RETENTION_MS


def _answering_group(admin: Admin, topic: str, partitions: int) -> str:
    """Return a new group id whose coordinator answers the request that Spark's driver sends before it reads.

    Spark waits for that answer without a limit, and does not use it. The id is new each time, since Spark's executors
    keep consumers by group id, and refuse other settings for the same id.

    Raises UnreachableError if no coordinator answers.
    """
    start = uuid.uuid4()
    ids = (f"{GROUP_PREFIX}-{start}-{number}" for number in range(_IDS_PER_PARTITION * partitions))
    groups = {partition_of(one, partitions): one for one in ids}  # the leader of the partition coordinates the group
    if (found := _first_answering(admin, groups.values())) is not None:
        return found
    names = ", ".join(map(str, sorted(groups)))
    raise UnreachableError(f"No group coordinator answers, of partition {names} of {topic}; Spark needs one to read.")


def _first_answering(admin: Admin, group_ids: Collection[str]) -> str | None:
    """Return the first of these groups whose coordinator answers within COORDINATOR_SECONDS; None if none does."""
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while True:
        for group_id in group_ids:
            answered, errors = fetch_committed_offsets(admin, [group_id], _NEXT_MS)
            if answered:
                return group_id
            if any(map(is_denied, errors.values())):
                raise NotAuthorizedError(
                    missing_acl_message("DESCRIBE", "Group", GROUP_PREFIX, " --resource-pattern-type prefixed")
                )
            if time.monotonic() > deadline:
                return None
        time.sleep(_PAUSE_SECONDS)


# --- Kafka's own client, for properties that kafka-python does not support --------------------------------------------


def _describe_in_java(
    spark: SparkSession, properties: Mapping[str, str], topic: str, refused: SecurityError
) -> OffsetsTopic:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
    clients, settings = jvm.org.apache.kafka.clients.admin, jvm.java.util.Properties()
    timeouts = {"default.api.timeout.ms": str(_TIMEOUT_MS), "request.timeout.ms": str(_TIMEOUT_MS // 3)}
    for name, value in {**properties, **timeouts}.items():
        settings.setProperty(name, value)
    try:
        admin = clients.AdminClient.create(settings)
    except Py4JJavaError as error:
        if "LoginException" in _java_causes(error.java_exception)[0]:  # the login server may only be down
            raise _java_job_error(error.java_exception, properties, topic) from None
        raise JobError(f"--command-config: {refused}") from None  # Kafka's client does not support them, either
    try:
        options = clients.DescribeTopicsOptions().includeAuthorizedOperations(True)  # noqa: FBT003 - Java's
        described = admin.describeTopics(jvm.java.util.List.of(topic), options).allTopicNames().get().get(topic)
        operations = described.authorizedOperations()
        if operations is not None and _READ not in {one.toString() for one in operations}:
            raise NotAuthorizedError(missing_acl_message(_READ, "Topic", topic))
        found = []
        for spec in (clients.OffsetSpec.latest(), clients.OffsetSpec.earliest()):
            specs = jvm.java.util.HashMap()
            for one in described.partitions():
                specs.put(jvm.org.apache.kafka.common.TopicPartition(topic, one.partition()), spec)
            offsets = admin.listOffsets(specs).all().get()
            found.append({partition.partition(): one.offset() for partition, one in offsets.items()})
        ids = described.topicId().toString(), admin.describeCluster().clusterId().get()
        return OffsetsTopic.of(topic, *ids, *found)._replace(group_id=f"{GROUP_PREFIX}-{uuid.uuid4()}")
    except Py4JJavaError as error:
        raise _java_job_error(error.java_exception, properties, topic) from None
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))


def _java_job_error(error: Any, properties: Mapping[str, str], topic: str) -> JobError:  # noqa: ANN401 - a Java exception
    servers, (names, message) = properties["bootstrap.servers"], _java_causes(error)
    if names[-1] == "UnknownTopicOrPartitionException":
        return _missing(servers, topic)
    if names[-1] == "TopicAuthorizationException":
        return NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", topic))
    if "SslAuthenticationException" in names:
        line = diagnose.tls_cause(" ".join([*names, message])).format(server=servers, detail=message)
        return JobError(line)
    if "TimeoutException" in names or "LoginException" in names:  # the cause of a time-out is the last attempt
        return to_job_error(KafkaTimeoutError(), properties)
    return JobError(f"{servers}: {names[-1]}: {message}")


def _java_causes(error: Any) -> tuple[list[str], str]:  # noqa: ANN401 - a Java exception
    """Return the names of an exception and its causes, innermost last, and the innermost message."""
    names, message = list[str](), ""
    while error is not None:
        names.append(error.getClass().getSimpleName())
        message, error = " ".join((error.getMessage() or "").split()), error.getCause()
    return names, message
