"""The offsets topic as the brokers describe it, requested with Kafka's own AdminClient in Spark's JVM.

Kafka's Java client is used so that every security setting of `--command-config` works as in Spark's reader. Here is
what the topic is, whether it is still the one that a stream began to read, and which coordinator answers Spark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming_app.errors import JobError, NotAuthorizedError, OtherTopicError, UnreachableError
from streaming_app.groups.partition import partition_of
from streaming_app.kafka import GROUP_PREFIX
from streaming_app.kafka.error_lines import missing_acl_message, to_job_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COORDINATOR_SECONDS = 10.0
"""How long a coordinator of any partition may take to answer: with the requests before, the line comes within 15 s."""
_NEXT_MS = 200  # one that does not answer is waited for, until the answer of the next one is looked at
_TIMEOUT_MS = 15_000
_IDS_PER_PARTITION = 8  # of random ones: then nearly each partition has one
_READ = "READ"
_DELETE_RETENTION = "delete.retention.ms"
_DEFAULT_DELETE_RETENTION_MS = 86_400_000  # Kafka's default, for a principal that may not read the configuration


class OffsetsTopic(NamedTuple):
    """The topic as the cluster describes it."""

    name: str
    topic_id: str
    cluster_id: str
    partitions: int
    offsets: int
    """End offsets minus start offsets, summed: an upper bound of the number of records."""
    end_offsets: Mapping[int, int] = MappingProxyType({})
    """By partition."""
    delete_retention_ms: int = _DEFAULT_DELETE_RETENTION_MS
    """How long the brokers keep tombstones after compaction: `delete.retention.ms`."""
    start_offsets: Mapping[int, int] = MappingProxyType({})
    """By partition, where the log begins."""
    group_id: str = GROUP_PREFIX
    """Of Spark's consumers: its coordinator answered."""


def describe_offsets_topic(
    spark: SparkSession, properties: Mapping[str, str], topic: str, *, to_read: bool = True
) -> OffsetsTopic:
    """Return the description of `topic`, with a group id for Spark's consumers if it is `to_read`.

    Without that no coordinator is needed.

    Raises UnreachableError when no broker answers, MissingTopicError when the topic does not exist, NotAuthorizedError
    when its ACLs do not allow to read it, and JobError when it has no partitions; each says what to do.
    """
    with _JavaAdmin.of(spark, properties, topic) as admin:
        description = admin.describe_topic(topic)
        operations = description.authorizedOperations()
        if operations is not None and _READ not in {operation.toString() for operation in operations}:
            raise NotAuthorizedError(missing_acl_message(_READ, "Topic", topic))
        partitions = description.partitions().size()
        if partitions == 0:
            raise JobError(f"Topic {topic} has no partitions: is this the cluster you mean?")
        group_id = _answering_group(admin, topic, partitions) if to_read else GROUP_PREFIX
        ends, starts = (admin.list_offsets(topic, partitions, which) for which in ("latest", "earliest"))
        return OffsetsTopic(
            topic,
            description.topicId().toString(),
            admin.get(admin.java.describeCluster().clusterId()),
            partitions,
            sum(ends.values()) - sum(starts.values()),
            ends,
            admin.delete_retention_ms(topic),
            starts,
            group_id,
        )


def coordinator_answers(spark: SparkSession, properties: Mapping[str, str], topic: str, group_id: str) -> bool:
    """Return whether the coordinator of a group answers. Raises as `describe_offsets_topic`."""
    with _JavaAdmin.of(spark, properties, topic) as admin:
        return admin.first_answering([group_id]) is not None


def check_topic_id(name: str, expected: str, found: str) -> None:
    """Raise OtherTopicError if the id of a topic is not the one that it had."""
    if found != expected:
        raise OtherTopicError(
            f"Topic {name} was deleted and created again while the job ran: start it with --reset to drop the rows of "
            "the groups and read from the beginning; the history stays"
        )


class TopicIdentity:
    """The topic of one stream, and whether it is still the same one; over one connection, for one thread at a time."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        """Prepare; the first check connects."""
        self._spark, self._properties = spark, properties
        self._topic: OffsetsTopic | None = None
        self._admin: _JavaAdmin | None = None

    def remember(self, topic: OffsetsTopic) -> None:
        """Take this topic for the one that is read from now on."""
        self._topic = topic

    def check(self) -> None:
        """Raise OtherTopicError if another topic has the name by now; where that is not known, as `to_job_error`."""
        if self._topic is None:
            return
        name = self._topic.name
        with _java_errors(self._properties, name):
            if self._admin is None:
                self._admin = _JavaAdmin(self._spark, self._properties)
            found = self._admin.describe_topic(name).topicId().toString()
        check_topic_id(name, self._topic.topic_id, found)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._admin is not None:
            with suppress(Exception):  # py4j raises several kinds if the JVM has ended
                self._admin.close()
            self._admin = None


def _answering_group(admin: _JavaAdmin, topic: str, partitions: int) -> str:
    """Return a new group id whose coordinator answers the request that Spark's driver sends before it reads.

    Spark waits for that answer without a limit, and reads nothing of it. The id is new each time: Spark's executors
    keep consumers by group id, and refuse other settings for the same id.

    Raises UnreachableError if no coordinator answers.
    """
    start = uuid.uuid4()
    ids = (f"{GROUP_PREFIX}-{start}-{number}" for number in range(_IDS_PER_PARTITION * partitions))
    groups = {partition_of(one, partitions): one for one in ids}  # the leader of the partition coordinates the group
    if (found := admin.first_answering(groups.values())) is not None:
        return found
    names = ", ".join(map(str, sorted(groups)))
    raise UnreachableError(f"No group coordinator answers, of partition {names} of {topic}; Spark needs one to read.")


# --- Kafka's AdminClient ----------------------------------------------------------------------------------------------


@contextmanager
def _java_errors(properties: Mapping[str, str], topic: str) -> Iterator[None]:
    """Raise the exceptions of Java in the block as `to_job_error` has them."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    try:
        yield
    except Py4JJavaError as error:
        raise to_job_error(error.java_exception, properties, topic) from None


class _JavaAdmin:
    """A connection. Each call takes at most `_TIMEOUT_MS`, which overrides the time-outs in the properties."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
        self._jvm = jvm
        self._unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        settings = jvm.java.util.Properties()
        timeouts = {"default.api.timeout.ms": str(_TIMEOUT_MS), "request.timeout.ms": str(_TIMEOUT_MS // 3)}
        for name, value in {**properties, **timeouts}.items():
            settings.setProperty(name, value)
        self._clients = jvm.org.apache.kafka.clients.admin
        self.java = self._clients.AdminClient.create(settings)

    @classmethod
    @contextmanager
    def of(cls, spark: SparkSession, properties: Mapping[str, str], topic: str) -> Iterator[_JavaAdmin]:
        """Connect for a block about a topic, whose exceptions of Java are raised as `to_job_error` has them."""
        with _java_errors(properties, topic):
            made = cls(spark, properties)
            try:
                yield made
            finally:
                made.close()

    def close(self) -> None:
        self.java.close(self._jvm.java.time.Duration.ofMillis(0))

    def get(self, future: Any, timeout_ms: int | None = None) -> Any:  # noqa: ANN401 - of the JVM
        return future.get(_TIMEOUT_MS if timeout_ms is None else timeout_ms, self._unit)

    def describe_topic(self, topic: str) -> Any:  # noqa: ANN401 - Kafka's
        options = self._clients.DescribeTopicsOptions().includeAuthorizedOperations(True)  # noqa: FBT003 - Java's
        described = self.java.describeTopics(self._jvm.java.util.List.of(topic), options)
        return self.get(described.allTopicNames()).get(topic)

    def list_offsets(self, topic: str, partitions: int, which: str) -> dict[int, int]:
        """Return the `latest` or `earliest` offset of each partition."""
        specs, spec = self._jvm.java.util.HashMap(), getattr(self._clients.OffsetSpec, which)()
        for partition in range(partitions):
            specs.put(self._jvm.org.apache.kafka.common.TopicPartition(topic, partition), spec)
        found = self.get(self.java.listOffsets(specs).all())
        return {partition.partition(): result.offset() for partition, result in found.items()}

    def delete_retention_ms(self, topic: str) -> int:
        """Return the topic's `delete.retention.ms`, or Kafka's default if the principal lacks DescribeConfigs on it."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        resource = config(config.Type.TOPIC, topic)
        try:
            found = self.get(self.java.describeConfigs(self._jvm.java.util.List.of(resource)).all()).get(resource)
        except Py4JJavaError:
            return _DEFAULT_DELETE_RETENTION_MS
        entry = found.get(_DELETE_RETENTION)
        return _DEFAULT_DELETE_RETENTION_MS if entry is None else int(entry.value())

    def first_answering(self, group_ids: Collection[str]) -> str | None:
        """Return the first of some groups whose coordinator answers within COORDINATOR_SECONDS; None if none does."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

        specs = self._jvm.java.util.HashMap()
        for group_id in group_ids:
            specs.put(group_id, self._clients.ListConsumerGroupOffsetsSpec())
        listed = self.java.listConsumerGroupOffsets(specs)
        waiting = {group_id: listed.partitionsToOffsetAndMetadata(group_id) for group_id in group_ids}
        deadline = time.monotonic() + COORDINATOR_SECONDS
        while waiting and time.monotonic() < deadline:
            for group_id, answer in list(waiting.items()):
                try:
                    self.get(answer, _NEXT_MS)
                except Py4JJavaError as error:  # noqa: PERF203 - one of them
                    if "GroupAuthorizationException" in str(error.java_exception):
                        raise
                    if "TimeoutException" not in str(error.java_exception.getClass().getName()):
                        del waiting[group_id]  # not by `isDone`: the answer may have come since the time-out
                else:
                    return group_id
        return None
