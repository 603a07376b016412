"""The offsets topic for one stream: its description, leader epochs, and a group coordinator that answers Spark.

kafka-python sends the requests. If it does not support the client properties (such as GSSAPI), Kafka's own client in
Spark's JVM describes the topic, so that the job can run; then it is not known whether a coordinator answers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError

from streaming_app.errors import JobError, MissingTopicError, NotAuthorizedError, OtherTopicError, UnreachableError
from streaming_app.groups.partition import partition_of
from streaming_app.kafka import GROUP_PREFIX, diagnose
from streaming_app.kafka.client import fetch_committed_offsets
from streaming_app.kafka.connection import ANSWER_MS, Admin, SharedConnection
from streaming_app.kafka.error_lines import REQUEST_ERRORS, missing_acl_message, to_job_error
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, GroupError
from streaming_app.kafka.topic_reader import (
    EARLIEST,
    LATEST,
    UNKNOWN_TOPIC,
    DescribedTopic,
    EpochEnd,
    TopicReader,
    is_denied,
    read_offsets,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

COORDINATOR_SECONDS = 10.0
"""How long a coordinator of any partition may take to answer; with the earlier requests the line comes within 15 s."""
_NEXT_MS = 1_000  # without an answer of one coordinator, until the next one is asked
_PAUSE_SECONDS = 0.2  # between two attempts
_ELECTION_SECONDS = 30.0  # a dead broker is fenced after its session timeout, 9 s by default
_FIRST_ANSWER_MS = 5_000  # doubled with each attempt: a broker that has just started may be slow
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
    start_offsets: Mapping[int, int] = MappingProxyType({})
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
    """Asks about the offsets topic for one stream.

    Calls raise UnreachableError when no broker answers, MissingTopicError when the topic does not exist,
    NotAuthorizedError when an ACL is missing, and JobError if waiting does not help; the texts say what to do.
    """

    def __init__(self, connection: SharedConnection[Admin], topic: str, spark: SparkSession, stop: Event) -> None:
        """Prepare. Once `stop` is set, no call waits for elections."""
        self._connection, self._topic, self._spark, self._stop = connection, topic, spark, stop
        self.properties = connection.properties
        self._reader, self._topic_id, self._is_described = TopicReader(), "", False

    def describe(self, *, to_read: bool = True) -> OffsetsTopic:
        """Return the description; with `to_read` also the retention of tombstones, and an id for Spark's consumers."""
        try:
            return self._request(partial(self._describe, to_read=to_read))
        except SecurityError as error:
            known = self._check(partial(_read_in_java, self._spark, self.properties, self._topic, error))
            return known._replace(group_id=f"{GROUP_PREFIX}-{uuid.uuid4()}")

    def coordinator_answers(self, group_id: str) -> bool:
        """Return whether the coordinator of a group answers; True if it cannot be asked."""
        try:
            return self._request(lambda admin: _first_answering(admin, [group_id])) is not None
        except SecurityError:
            return True

    # Leader epochs, for one thread at a time: the leader answers OffsetForLeaderEpoch (KIP-101, KIP-320) from its log.
    # `TopicReader.epoch_ends` says what an answer proves. A stream cannot go on without one, so these methods wait.

    def expect(self, topic_id: str) -> None:
        """Set the topic's id for the following methods. Once another topic has the name, they raise OtherTopicError."""
        self._topic_id, self._is_described = topic_id, False

    def forget_leaders(self) -> None:
        """Describe the topic again before the next request, which names the topic by its name."""
        self._is_described = False

    def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the epochs of the leaders, as of the last answer. Raises as `epoch_ends` if a leader is not known."""
        wanted = list(partitions)
        if not self._is_described:
            self.epoch_ends(dict.fromkeys(wanted, 0))
        return {partition: self._reader.topics[self._topic].epochs[partition] for partition in wanted}

    def epoch_ends(self, epochs: Mapping[int, int]) -> dict[int, EpochEnd]:
        """Return the end offsets of epochs, by partition. Waits 30 s for elections. Also raises SecurityError."""
        found: dict[int, EpochEnd] = {}
        deadline, timeout_ms = time.monotonic() + _ELECTION_SECONDS, _FIRST_ANSWER_MS
        while missing := {partition: epoch for partition, epoch in epochs.items() if partition not in found}:
            answers = self._fetch_epoch_ends(missing, timeout_ms)
            found |= {partition: one for partition, one in answers.items() if isinstance(one, EpochEnd)}
            failures = {partition: one for partition, one in answers.items() if isinstance(one, str)}
            self._is_described = not failures
            if any(map(is_denied, failures.values())):
                raise NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", self._topic))
            if failures and (time.monotonic() > deadline or self._stop.wait(_PAUSE_SECONDS)):
                partition, reason = min(failures.items())
                raise UnreachableError(f"No leader of partition {partition} of {self._topic} answers: {reason}.")
            timeout_ms = min(2 * timeout_ms, ANSWER_MS)
        return found

    def _fetch_epoch_ends(self, epochs: Mapping[int, int], timeout_ms: int) -> dict[int, EpochEnd | str]:
        try:
            with self._connection.use() as admin:
                if not self._is_described:
                    self._reader.describe(admin, [self._topic])
                    if topic_id := self._reader.topics[self._topic].topic_id:
                        check_topic_id(self._topic, self._topic_id, topic_id)
                answers = self._reader.epoch_ends(admin, self._topic, epochs, timeout_ms)
        except (KafkaError, OSError) as error:
            return dict.fromkeys(epochs, type(error).__name__)
        return {partition: one for (_, partition), one in answers.items()}

    def _request(self, call: Callable[[Admin], T]) -> T:
        try:
            with self._connection.use() as admin:
                return call(admin)
        except REQUEST_ERRORS as error:
            raise to_job_error(error, self.properties) from None

    def _describe(self, admin: Admin, *, to_read: bool) -> OffsetsTopic:
        topic = self._topic
        known = self._check(partial(read_offsets, admin, topic, LATEST, EARLIEST, in_detail=True))
        if not to_read:
            return known
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {_DELETE_RETENTION: None})
        configs = admin.describe_configs([resource], config_filter="all").get("topic", {}).get(topic, {})
        retention = int(configs[_DELETE_RETENTION]["value"]) if configs else _DEFAULT_DELETE_RETENTION_MS
        group_id = _answering_group(admin, topic, known.partitions)
        return known._replace(delete_retention_ms=retention, group_id=group_id)

    def _check(self, read: Callable[[], tuple[DescribedTopic, list[dict[int, int]]]]) -> OffsetsTopic:
        topic, servers = self._topic, self.properties["bootstrap.servers"]
        try:
            described, (ends, starts) = read()
        except GroupError:
            raise NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", topic)) from None
        if described.error == UNKNOWN_TOPIC:
            because = "no group has committed offsets there yet, or --topic is wrong"
            raise MissingTopicError(f"{servers} has no topic {topic}: {because}")
        if described.error == _INVALID_TOPIC:
            raise JobError(f"--topic {topic}: Kafka does not allow this topic name")
        if described.error:
            raise UnreachableError(f"{servers}: {topic}: {described.error}.")
        if described.rights is not None and _READ not in described.rights:
            raise NotAuthorizedError(missing_acl_message(_READ, "Topic", topic))
        if not ends:
            raise JobError(f"Topic {topic} has no partitions: is this the cluster you mean?")
        return OffsetsTopic(topic, described.topic_id or "", described.cluster_id, ends, starts)


def check_topic_id(name: str, expected: str, found: str) -> None:
    """Raise OtherTopicError if the id of a topic is not the expected one."""
    if found != expected:
        raise OtherTopicError(
            f"Topic {name} was deleted and created again while the job ran: start it with --reset to drop the rows of "
            "the groups and read from the beginning; the history stays"
        )


def _answering_group(admin: Admin, topic: str, partitions: int) -> str:
    """Return a new group id whose coordinator answers the request that Spark's driver sends before it reads.

    Spark waits for that answer without a limit, and does not use it. The id is new each time, since Spark's executors
    keep consumers by group id, and refuse other settings for it. Raises UnreachableError if no coordinator answers.
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


def _read_in_java(
    spark: SparkSession, properties: Mapping[str, str], topic: str, refused: SecurityError
) -> tuple[DescribedTopic, list[dict[int, int]]]:
    """Return what `read_offsets` does, as far as it is needed. Raises JobError."""
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
            raise _java_error(error.java_exception, properties, topic) from None
        raise JobError(f"--command-config: {refused}") from None  # Kafka's client does not support them, either
    try:
        options = clients.DescribeTopicsOptions().includeAuthorizedOperations(True)  # noqa: FBT003 - Java's
        described = admin.describeTopics(jvm.java.util.List.of(topic), options).allTopicNames().get().get(topic)
        operations, cluster_id = described.authorizedOperations(), admin.describeCluster().clusterId().get()
        rights = None if operations is None else {one.toString() for one in operations}
        known = DescribedTopic(described.topicId().toString(), {}, cluster_id=cluster_id, rights=rights)
        found = []
        for spec in (clients.OffsetSpec.latest(), clients.OffsetSpec.earliest()):
            specs = jvm.java.util.HashMap()
            for one in described.partitions():
                specs.put(jvm.org.apache.kafka.common.TopicPartition(topic, one.partition()), spec)
            offsets = admin.listOffsets(specs).all().get()
            found.append({partition.partition(): one.offset() for partition, one in offsets.items()})
    except Py4JJavaError as error:
        if _java_causes(error.java_exception)[0][-1] == "UnknownTopicOrPartitionException":
            return DescribedTopic(None, {}, UNKNOWN_TOPIC), [{}, {}]
        raise _java_error(error.java_exception, properties, topic) from None
    else:
        return known, found
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))


def _java_error(error: Any, properties: Mapping[str, str], topic: str) -> Exception:  # noqa: ANN401 - a Java exception
    servers, (names, message) = properties["bootstrap.servers"], _java_causes(error)
    if names[-1] == "TopicAuthorizationException":
        return GroupError(TOPIC_AUTHORIZATION_FAILED, topic)
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
