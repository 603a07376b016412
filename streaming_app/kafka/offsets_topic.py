"""The offsets topic as the brokers describe it, and the choice of a group coordinator that answers Spark.

kafka-python sends the requests. If it does not support the client properties (such as GSSAPI), Kafka's own client in
Spark's JVM describes the topic, so that the job can run; then it is not known whether a coordinator answers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaTimeoutError

from streaming_app.errors import JobError, MissingTopicError, NotAuthorizedError, OtherTopicError, UnreachableError
from streaming_app.groups.partition import partition_of
from streaming_app.kafka import GROUP_PREFIX, diagnose
from streaming_app.kafka.committed_offsets import fetch_committed_offsets
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.error_lines import REQUEST_ERRORS, missing_acl_message, to_job_error
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import GroupError
from streaming_app.kafka.topic_reader import EARLIEST, LATEST, UNKNOWN_TOPIC, is_denied, read_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

COORDINATOR_SECONDS = 10.0
"""How long a coordinator of any partition may take to answer; with the earlier requests the line comes within 15 s."""
_NEXT_MS = 1_000  # without an answer of one coordinator, until the next one is asked
_PAUSE_SECONDS = 0.2  # between two attempts
TIMEOUT_MS = 15_000
"""Of a request, and of a call of Java's client."""
_IDS_PER_PARTITION = 8  # random group ids: with so many, nearly each partition has one
_READ = "READ"
_INVALID_TOPIC = "INVALID_TOPIC"
_DELETE_RETENTION = "delete.retention.ms"
_DEFAULT_DELETE_RETENTION_MS = 86_400_000  # Kafka's default, if the principal may not read the configuration


class OffsetsTopic(NamedTuple):
    """The topic as the cluster describes it."""

    name: str
    topic_id: str
    cluster_id: str
    end_offsets: Mapping[int, int]
    """End offsets by partition."""
    start_offsets: Mapping[int, int] = MappingProxyType({})
    """Start offsets by partition."""
    delete_retention_ms: int = _DEFAULT_DELETE_RETENTION_MS
    """How long the brokers keep tombstones after compaction: `delete.retention.ms`."""
    group_id: str = GROUP_PREFIX
    """A group id for Spark's consumers whose coordinator has answered."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.end_offsets)

    @property
    def offsets(self) -> int:
        """End offsets minus start offsets, summed: an upper bound of the number of records."""
        return sum(self.end_offsets.values()) - sum(self.start_offsets.values())


class OffsetsTopicClient:
    """Asks about the offsets topic, for any number of threads.

    Calls raise UnreachableError when no broker answers, MissingTopicError when the topic does not exist,
    NotAuthorizedError when an ACL is missing, and JobError if waiting does not help; the texts say what to do.
    """

    def __init__(self, connection: SharedConnection[Admin], topic: str, spark: SparkSession) -> None:
        self._connection, self._topic, self._spark = connection, topic, spark
        self._properties = connection.properties

    def describe(self, *, to_read: bool = True) -> OffsetsTopic:
        """Return the description of the topic.

        With `to_read`, it includes what a query needs: the retention of tombstones, and a group id for Spark's
        consumers. Without, no coordinator is needed.
        """
        try:
            return self._ask(partial(self._describe, to_read=to_read))
        except SecurityError as error:
            return _describe_in_java(self._spark, self._properties, self._topic, error)

    def coordinator_answers(self, group_id: str) -> bool:
        """Return whether the coordinator of a group answers; True if it cannot be asked."""
        try:
            return self._ask(lambda admin: _first_answering(admin, [group_id])) is not None
        except SecurityError:
            return True

    def _ask(self, call: Callable[[Admin], T]) -> T:
        try:
            with self._connection.use() as admin:
                return call(admin)
        except REQUEST_ERRORS as error:
            raise to_job_error(error, self._properties) from None

    def _describe(self, admin: Admin, *, to_read: bool) -> OffsetsTopic:
        topic, servers = self._topic, self._properties["bootstrap.servers"]
        try:
            described, (ends, starts) = read_offsets(admin, topic, LATEST, EARLIEST, in_detail=True)
        except GroupError:
            raise NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", topic)) from None
        if (error := described.error) == UNKNOWN_TOPIC:
            raise _missing(servers, topic)
        if error == _INVALID_TOPIC:
            raise JobError(f"--topic {topic}: Kafka does not allow this topic name")
        if error:
            raise UnreachableError(f"{servers}: {topic}: {error}.")
        if described.rights is not None and _READ not in described.rights:
            raise NotAuthorizedError(missing_acl_message(_READ, "Topic", topic))
        if not ends:
            raise JobError(f"Topic {topic} has no partitions: is this the cluster you mean?")
        known = OffsetsTopic(topic, described.topic_id or "", described.cluster_id, ends, starts)
        if not to_read:
            return known
        retention, group_id = _delete_retention_ms(admin, topic), _answering_group(admin, topic, len(ends))
        return known._replace(delete_retention_ms=retention, group_id=group_id)


def check_topic_id(name: str, expected: str, found: str) -> None:
    """Raise OtherTopicError if the id of a topic is not the expected one."""
    if found != expected:
        raise OtherTopicError(
            f"Topic {name} was deleted and created again while the job ran: start it with --reset to drop the rows of "
            "the groups and read from the beginning; the history stays"
        )


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
    timeouts = {"default.api.timeout.ms": str(TIMEOUT_MS), "request.timeout.ms": str(TIMEOUT_MS // 3)}
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
        topic_id, cluster_id = described.topicId().toString(), admin.describeCluster().clusterId().get()
        ends, starts = found
        return OffsetsTopic(topic, topic_id, cluster_id, ends, starts, group_id=f"{GROUP_PREFIX}-{uuid.uuid4()}")
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
