"""What the members of a classic group tell each other, from the bytes in its record: of consumers, and of Kafka Streams.

A record of type 2 has a subscription and an assignment for each member. In a group of consumers both are in the format
of Kafka's consumers, and have user data of the assignor. The assignor of Kafka Streams, named `stream`, writes there the
tasks that a thread runs, and how far it has copies of other tasks. Clients choose all of these bytes, and other client
libraries have other formats. So nothing here raises: what cannot be read is None.
"""

from dataclasses import dataclass, field

Task = tuple[str, int]
"""Subtopology ("0") and partition of a task. In a named topology the subtopology is `<name>__0`, as in Kafka's task ids."""
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """The subscription of a consumer; `user_data` is what its assignor adds, `rack_id` is null before version 3."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerAssignment:
    """The assignment of a consumer: its partitions by topic, in the order of the bytes."""

    version: int
    partitions: dict[str, list[int]]
    user_data: bytes | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a thread of a Kafka Streams application tells when it joins.

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

    `version` is the used version of AssignmentInfo, `common_version` the newest that all members support (None before
    version 3). `active` and `standby` map each task to its source partitions. `error_code` is 0 for none, 1 for missing
    source topics, 3 for an error of the assignor, 4 for a requested shutdown. `next_rebalance_ms` is the time of the
    next rebalance in ms since 1970: 0 for at once, as tasks change hands; None for none.
    """

    version: int
    common_version: int | None
    active: dict[Task, list[TopicPartition]]
    standby: dict[Task, list[TopicPartition]]
    error_code: int = 0
    next_rebalance_ms: int | None = None


def decode_consumer_subscription(metadata: bytes) -> ConsumerSubscription | None:
    """Return the subscription of a consumer; None if it does not parse."""
    raise NotImplementedError


def decode_consumer_assignment(assignment: bytes) -> ConsumerAssignment | None:
    """Return the assignment of a consumer; None if it does not parse."""
    raise NotImplementedError


def decode_subscription(metadata: bytes) -> Subscription | None:
    """Return the subscription of a thread of Kafka Streams; None if it does not parse."""
    raise NotImplementedError


def decode_assignment(assignment: bytes) -> Assignment | None:
    """Return the assignment of a thread of Kafka Streams; None if it does not parse."""
    raise NotImplementedError
