"""The offsets topic as the brokers describe it, requested with Kafka's own AdminClient in Spark's JVM.

Kafka's Java client is used so that every security setting of `--command-config` works as in Spark's reader. Here is
what the topic is, whether it is still the one that a stream began to read, and whether the brokers have a plugin for
topology descriptions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import count
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
_READ = "READ"
_PLUGIN_CLASS = "group.streams.topology.description.plugin.class"
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
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    try:
        return _describe(spark._jvm, properties, topic, to_read=to_read)  # noqa: SLF001 - the JVM has no public name
    except Py4JJavaError as error:
        raise to_job_error(error.java_exception, properties, topic) from None


def create_admin_client(jvm: Any, properties: Mapping[str, str], timeout_ms: int) -> Any:  # noqa: ANN401 - of the JVM
    """Return Kafka's AdminClient, its calls limited to `timeout_ms`, which overrides the timeouts in `properties`."""
    settings = jvm.java.util.Properties()
    timeouts = {"default.api.timeout.ms": str(timeout_ms), "request.timeout.ms": str(timeout_ms // 3)}
    for name, value in {**properties, **timeouts}.items():
        settings.setProperty(name, value)
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)


def _describe(jvm: Any, properties: Mapping[str, str], topic: str, *, to_read: bool) -> OffsetsTopic:  # noqa: ANN401 - a JVM by name
    clients, unit = jvm.org.apache.kafka.clients.admin, jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    admin = create_admin_client(jvm, properties, _TIMEOUT_MS)
    try:
        options = clients.DescribeTopicsOptions().includeAuthorizedOperations(True)  # noqa: FBT003 - Java's signature
        names = jvm.java.util.List.of(topic)
        description = admin.describeTopics(names, options).allTopicNames().get(_TIMEOUT_MS, unit).get(topic)
        _require_read_acl(description, topic)
        partitions = description.partitions().size()
        if partitions == 0:
            raise JobError(f"Topic {topic} has no partitions: is this the cluster you mean?")
        group_id = _answering_group(jvm, admin, topic, partitions) if to_read else GROUP_PREFIX
        ends = _list_offsets(jvm, admin, topic, partitions, clients.OffsetSpec.latest())
        starts = _list_offsets(jvm, admin, topic, partitions, clients.OffsetSpec.earliest())
        offsets = sum(ends.values()) - sum(starts.values())
        cluster_id = admin.describeCluster().clusterId().get(_TIMEOUT_MS, unit)
        retention = _delete_retention_ms(jvm, admin, topic)
        topic_id = description.topicId().toString()
        return OffsetsTopic(topic, topic_id, cluster_id, partitions, offsets, ends, retention, starts, group_id)
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))


def coordinator_answers(spark: SparkSession, properties: Mapping[str, str], topic: str, group_id: str) -> bool:
    """Return whether the coordinator of a group answers. Raises as `describe_offsets_topic`."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
    try:
        admin = create_admin_client(jvm, properties, _TIMEOUT_MS)
        try:
            return _first_answering(jvm, admin, [group_id]) is not None
        finally:
            admin.close(jvm.java.time.Duration.ofMillis(0))
    except Py4JJavaError as error:
        raise to_job_error(error.java_exception, properties, topic) from None


def _answering_group(jvm: Any, admin: Any, topic: str, partitions: int) -> str:  # noqa: ANN401 - of the JVM
    """Return a new group id whose coordinator answers the request that Spark's driver sends before it reads.

    Spark waits for that answer without a limit, and reads nothing of it. The id is new each time: Spark's executors
    keep consumers by group id, and refuse other settings for the same id.

    Raises UnreachableError if no coordinator answers.
    """
    groups = _group_ids(partitions)
    if (found := _first_answering(jvm, admin, groups.values())) is not None:
        return found
    names = ", ".join(map(str, sorted(groups)))
    raise UnreachableError(f"No group coordinator answers, of partition {names} of {topic}; Spark needs one to read.")


def _first_answering(jvm: Any, admin: Any, group_ids: Collection[str]) -> str | None:  # noqa: ANN401 - of the JVM
    """Return the first of some groups whose coordinator answers within COORDINATOR_SECONDS; None if none does."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    specs = jvm.java.util.HashMap()
    for group_id in group_ids:
        specs.put(group_id, jvm.org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec())
    listed, unit = admin.listConsumerGroupOffsets(specs), jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    waiting = {group_id: listed.partitionsToOffsetAndMetadata(group_id) for group_id in group_ids}
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while waiting and time.monotonic() < deadline:
        for group_id, answer in list(waiting.items()):
            try:
                answer.get(_NEXT_MS, unit)
            except Py4JJavaError as error:  # noqa: PERF203 - one of them
                if "GroupAuthorizationException" in str(error.java_exception):
                    raise
                if "TimeoutException" not in str(error.java_exception.getClass().getName()):
                    del waiting[group_id]  # not by `isDone`: the answer may have come since the time-out
            else:
                return group_id
    return None


def _group_ids(partitions: int) -> dict[int, str]:
    """Return a new group id for each partition of the offsets topic whose leader is the coordinator of the group."""
    found: dict[int, str] = {}
    start = uuid.uuid4()
    for number in count():
        group_id = f"{GROUP_PREFIX}-{start}-{number}"
        found.setdefault(partition_of(group_id, partitions), group_id)
        if len(found) == partitions:
            break
    return found


def _list_offsets(jvm: Any, admin: Any, topic: str, partitions: int, spec: Any) -> dict[int, int]:  # noqa: ANN401 - of the JVM
    specs = jvm.java.util.HashMap()
    for partition in range(partitions):
        specs.put(jvm.org.apache.kafka.common.TopicPartition(topic, partition), spec)
    results = admin.listOffsets(specs).all().get(_TIMEOUT_MS, jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
    return {partition.partition(): result.offset() for partition, result in results.items()}


def _delete_retention_ms(jvm: Any, admin: Any, topic: str) -> int:  # noqa: ANN401 - of the JVM
    """Return the topic's `delete.retention.ms`, or Kafka's default if the principal lacks DescribeConfigs on it."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    config = jvm.org.apache.kafka.common.config
    resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
    unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    try:
        found = admin.describeConfigs(jvm.java.util.List.of(resource)).all().get(_TIMEOUT_MS, unit).get(resource)
    except Py4JJavaError:
        return _DEFAULT_DELETE_RETENTION_MS
    entry = found.get(_DELETE_RETENTION)
    return _DEFAULT_DELETE_RETENTION_MS if entry is None else int(entry.value())


def _require_read_acl(description: Any, topic: str) -> None:  # noqa: ANN401 - Kafka's TopicDescription
    operations = description.authorizedOperations()
    if operations is not None and _READ not in {operation.toString() for operation in operations}:
        raise NotAuthorizedError(missing_acl_message(_READ, "Topic", topic))


# --- Whether it is still the same topic -------------------------------------------------------------------------------


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
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
        self._properties = properties
        self._topic: OffsetsTopic | None = None
        self._admin: Any = None

    def remember(self, topic: OffsetsTopic) -> None:
        """Take this topic for the one that is read from now on."""
        self._topic = topic

    def check(self) -> None:
        """Raise OtherTopicError if another topic has the name by now; where that is not known, as `to_job_error`."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

        if self._topic is None:
            return
        name = self._topic.name
        try:
            if self._admin is None:
                self._admin = create_admin_client(self._jvm, self._properties, _TIMEOUT_MS)
            names, unit = self._jvm.java.util.List.of(name), self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
            found = self._admin.describeTopics(names).allTopicNames().get(_TIMEOUT_MS, unit).get(name)
        except Py4JJavaError as error:
            raise to_job_error(error.java_exception, self._properties, name) from None
        check_topic_id(name, self._topic.topic_id, found.topicId().toString())

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._admin is not None:
            with suppress(Exception):  # py4j raises several kinds if the JVM has ended
                self._admin.close(self._jvm.java.time.Duration.ofMillis(0))
            self._admin = None


# --- The plugin for topology descriptions -----------------------------------------------------------------------------


def has_description_plugin(spark: SparkSession, properties: Mapping[str, str]) -> bool | None:
    """Return whether the config of some broker names a plugin; None where it may not or cannot be read.

    False is only returned once every broker's config was read; brokers before 4.4 have no such config.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
    common, unit = jvm.org.apache.kafka.common.config, jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    admin = create_admin_client(jvm, properties, _TIMEOUT_MS)
    try:
        resources = jvm.java.util.ArrayList()
        nodes = admin.describeCluster().nodes().get(_TIMEOUT_MS, unit)
        for node in jvm.java.util.ArrayList(nodes):  # py4j iterates lists, and not every collection
            resources.add(common.ConfigResource(common.ConfigResource.Type.BROKER, node.idString()))
        configs = admin.describeConfigs(resources).all().get(_TIMEOUT_MS, unit)
        entries = [configs.get(resource).get(_PLUGIN_CLASS) for resource in resources]
        return any(entry is not None and bool(entry.value()) for entry in entries)
    except Py4JJavaError:
        return None
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))
