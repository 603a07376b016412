"""What consumers and Kafka Streams write into the record of a classic group about its members.

A record of type 2 has a subscription and an assignment of each member. If the protocol type is `consumer`, both are in
the format of Kafka's consumers, and have user data of the assignor. The assignor of Kafka Streams, named `stream`,
writes there which tasks a thread has, and the threads write how far their copies are. Clients choose these bytes, and
other client libraries have other formats. So nothing here raises: what cannot be read is None.
"""

from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from offsets_decoder.embedded import decode_embedded

Task = tuple[str, int]
"""Subtopology ("0") and partition of a task; in a named topology `<name>__0`, as in Kafka's `TaskId`."""
TopicPartition = tuple[str, int]
_FIRST_WITH_SUMS, _FIRST_BY_TASK = 7, 10  # versions of SubscriptionInfo
_NEVER = 2**63 - 1  # the time of the next rebalance if there is none


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """The subscription of a consumer; `user_data` is what its assignor adds, `rack_id` is null before version 3."""

    topics: tuple[str, ...]
    user_data: bytes | None
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class ConsumerAssignment:
    """The assignment of a consumer: its partitions by topic, in the order of the bytes."""

    partitions: dict[str, list[int]]
    user_data: bytes | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a thread of a Kafka Streams application reports when it joins.

    `version` and `latest_version` are of SubscriptionInfo: the used one, and the newest that the client supports (None
    in versions 1 and 2). `process_id` is a UUID with hyphens, the same for all threads of a process. `user_endpoint` is
    `application.server`, None if it is not set. `topics` are the source topics of the subscription.

    `offset_sums` has the sum of the offsets in the changelogs of each task that the thread has a state of: a lower
    bound; -2 (`Task.LATEST_OFFSET`) is a running active task. Before version 7 the sums are None, and
    `previous_standby` are those of the tasks that were standbys; it is empty since.
    """

    version: int
    latest_version: int | None
    process_id: str
    user_endpoint: str | None
    topics: tuple[str, ...]
    offset_sums: dict[Task, int | None] = field(default_factory=dict)
    previous_standby: frozenset[Task] = frozenset()
    client_tags: dict[str, str] = field(default_factory=dict)
    error_code: int = 0
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The tasks of a thread of a Kafka Streams application.

    `version` is the used version of AssignmentInfo. `active` and `standby` map each task to its source partitions.
    `error_code` is 0 for none, 1 for missing source topics, 3 for an error of the assignor, 4 for a requested shutdown.
    `next_rebalance_ms` is the time of the next rebalance in ms since 1970: 0 for at once, as tasks change hands.
    """

    version: int
    active: dict[Task, list[TopicPartition]]
    standby: dict[Task, list[TopicPartition]]
    error_code: int = 0
    next_rebalance_ms: int | None = None


def decode_consumer_subscription(metadata: bytes) -> ConsumerSubscription | None:
    """Return the subscription of a consumer; None if it does not parse."""
    decoded = decode_embedded("ConsumerProtocolSubscription", metadata)
    if decoded is None:
        return None
    _, fields = decoded
    return ConsumerSubscription(tuple(fields["topics"]), fields["user_data"], fields["rack_id"] or None)


def decode_consumer_assignment(assignment: bytes) -> ConsumerAssignment | None:
    """Return the assignment of a consumer; None if it does not parse."""
    decoded = decode_embedded("ConsumerProtocolAssignment", assignment)
    if decoded is None:
        return None
    _, fields = decoded
    partitions = dict[str, list[int]]()
    for one in fields["assigned_partitions"]:
        partitions.setdefault(one["topic"], []).extend(one["partitions"])
    return ConsumerAssignment(partitions, fields["user_data"])


def decode_subscription(metadata: bytes) -> Subscription | None:
    """Return the subscription of a thread of Kafka Streams; None if it or its user data does not parse."""
    consumer = decode_consumer_subscription(metadata)
    decoded = None if consumer is None else decode_embedded("SubscriptionInfo", consumer.user_data)
    if consumer is None or decoded is None:
        return None
    version, fields = decoded
    latest = fields["latest_supported_version"]
    return Subscription(
        version=version,
        latest_version=None if latest < 0 else latest,
        process_id=str(UUID(bytes=urlsafe_b64decode(fields["process_id"] + "=="))),
        user_endpoint=fields["user_end_point"].decode(errors="replace") or None,
        topics=consumer.topics,
        offset_sums=_offset_sums(version, fields),
        previous_standby=frozenset(map(_task, fields["standby_tasks"])),
        client_tags={
            one["key"].decode(errors="replace"): one["value"].decode(errors="replace") for one in fields["client_tags"]
        },
        error_code=fields["error_code"],
        rack_id=consumer.rack_id,
    )


def decode_assignment(assignment: bytes) -> Assignment | None:
    """Return the assignment of a thread of Kafka Streams; None if it or its user data does not parse.

    It does not parse either if it has not one active task for each partition: clients reject it, too.
    """
    consumer = decode_consumer_assignment(assignment)
    decoded = None if consumer is None else decode_embedded("AssignmentInfo", consumer.user_data)
    if consumer is None or decoded is None:
        return None
    version, fields = decoded
    # The order of TopicPartition in `StreamsPartitionAssignor.PARTITION_COMPARATOR`: by topic, then by number.
    partitions = sorted((topic, number) for topic, numbers in consumer.partitions.items() for number in numbers)
    if len(partitions) != len(fields["active_tasks"]):
        return None
    active = dict[Task, list[TopicPartition]]()
    for task, partition in zip(fields["active_tasks"], partitions, strict=True):
        active.setdefault(_task(task), []).append(partition)
    next_rebalance = fields["next_rebalance_ms"]
    return Assignment(
        version=version,
        active=active,
        standby={
            _task(task): [(one["topic"], one["partition"]) for one in task["partitions"]]
            for task in fields["standby_tasks"]
        },
        error_code=fields["err_code"],
        next_rebalance_ms=None if next_rebalance == _NEVER else next_rebalance,
    )


def _offset_sums(version: int, fields: dict[str, Any]) -> dict[Task, int | None]:
    if version < _FIRST_WITH_SUMS:
        return {_task(one): None for name in ("prev_tasks", "standby_tasks") for one in fields[name]}
    if version < _FIRST_BY_TASK:
        return {
            (str(one["topic_group_id"]), of_task["partition"]): of_task["offset_sum"]
            for one in fields["task_offset_sums"]
            for of_task in one["partition_to_offset_sum"]
        }
    return {_task(one): one["offset_sum"] for one in fields["task_offset_sums"]}


def _task(fields: dict[str, Any]) -> Task:
    name, subtopology = fields.get("named_topology"), fields["topic_group_id"]
    return f"{name}__{subtopology}" if name else str(subtopology), fields["partition"]
