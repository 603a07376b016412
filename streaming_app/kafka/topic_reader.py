"""The one reader of topic facts: ids of topics, leaders, leader epochs, and the offsets in the logs of partitions.

Theory of operation
-------------------
Every broker describes topics (Metadata). Only the leader of a partition knows its log (ListOffsets,
OffsetForLeaderEpoch, Fetch). kafka-python's admin client asks one leader after the other, and drops all answers at the
first error of a partition. This module sends the requests to all leaders before it waits for the first answer, and
keeps an error for its partition alone. A fact is known, or the name of an error says why not. It is never 0 instead.

| instead of the fact | meaning | asked again |
| --- | --- | --- |
| `UNKNOWN_TOPIC_OR_PARTITION`, in the description | the topic or partition does not exist | if the caller asks |
| `..._AUTHORIZATION_FAILED` | the principal may not know; partitions that were described before stay | no |
| `LEADER_NOT_AVAILABLE` | nobody leads the partition; `offline` has the brokers that could | once described again |
| `BROKER_NOT_AVAILABLE` | the leader does not answer; what others lead is known | once another one leads |
| any other error of Kafka | there was an election, or the topic was created again | once described again |
| KafkaError, which is raised | no broker answers, so no fact is known | at the next use of the connection |

`TopicReader.find_leaders` does the third column. Callers decide how long they wait: lag makes its next pass soon, a
batch waits in `OffsetsTopicClient.epoch_ends`, and `read_offsets` waits for a topic that must be known as a whole.
"""

import base64
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafka.admin import ACLOperation
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from streaming_app.chunks import chunks
from streaming_app.kafka.connection import ANSWER_MS, Admin, SharedConnection
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, GroupError, build, error_name
from streaming_app.lag.ends import TopicPartition
from streaming_app.report import Report, ReportOnce

T = TypeVar("T")

LATEST, EARLIEST = -1, -2
"""Special values in place of a time in milliseconds since 1970. The last one is the record with the latest time."""
NO_LEADER = "LEADER_NOT_AVAILABLE"
AWAY = "BROKER_NOT_AVAILABLE"
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"

_TOPICS_PER_REQUEST = 2_000
_PARTITIONS_PER_REQUEST = 50_000  # 0.8 MB out, 1.4 MB in
_ISOLATION_VERSION = 2  # of ListOffsets: the first with an isolation level
_EPOCH_VERSION = 2  # of OffsetForLeaderEpoch: the first with the epoch that the caller knows
_ELECTION_SECONDS = 10.0
_PAUSE_SECONDS = 0.2
_KEPT_SECONDS = 10.0  # partition counts
_NO_TOPIC_ID = UUID(int=0)
_DENIED = "AUTHORIZATION"


class DescribedTopic(NamedTuple):
    """A topic as a broker describes it: its leaders by partition (-1: none), or the name of an error."""

    topic_id: str | None
    leaders: Mapping[int, int]
    error: str | None = None
    epochs: Mapping[int, int] = MappingProxyType({})
    """The epoch of the leader of each partition."""
    offline: Mapping[int, Sequence[int]] = MappingProxyType({})
    """By partition without a leader: the brokers with a replica that are away."""
    cluster_id: str = ""
    rights: Collection[str] | None = None
    """The operations that the principal may do, such as READ; None if the broker does not say."""
    replicas: Mapping[int, Sequence[int]] = MappingProxyType({})
    """By partition: the brokers with a replica."""
    in_sync: Mapping[int, Sequence[int]] = MappingProxyType({})
    """By partition: the brokers in the ISR. Like `replicas` and `rights`, only if asked for in detail."""


class Offset(NamedTuple):
    """The answer of ListOffsets for one partition."""

    offset: int
    """-1: no record is as new."""
    timestamp: int
    """Of the record at this offset, in milliseconds, if the request was by time; -1: it has none."""


class EpochEnd(NamedTuple):
    """The newest epoch of a log up to the one asked for, and where the next one starts or the log ends; -1: none."""

    epoch: int
    end: int


Answers = dict[TopicPartition, T | str]
"""By partition, the fact or the name of an error."""
Topics = Mapping[str, DescribedTopic]
Parts = Iterable[tuple[TopicPartition, Any]]
"""The parts of an answer that are about one partition each; each part has an `error_code`."""


def is_denied(error: str) -> bool:
    """Return whether an error says that the principal lacks a permission."""
    return _DENIED in error


class TopicReader:
    """Remembers how topics were described, and finds new leaders; for one thread."""

    def __init__(self) -> None:
        self.topics: dict[str, DescribedTopic] = {}

    def describe(self, admin: Admin, names: Iterable[str], *, in_detail: bool = False) -> None:
        """Describe topics. One that may not be described any more keeps its partitions. Raises KafkaError."""
        for name, one in describe_topics(admin, sorted(names), in_detail=in_detail).items():
            before = self.topics.get(name)
            is_hidden = before is not None and one.error is not None and is_denied(one.error)
            self.topics[name] = before._replace(error=one.error) if before and is_hidden else one

    def offsets(
        self,
        admin: Admin,
        keys: Iterable[TopicPartition],
        at: int | Mapping[TopicPartition, int] = LATEST,
        *,
        committed_only: bool = False,
    ) -> Answers[Offset]:
        """Return the offset of each partition: LATEST, EARLIEST, or of the first record since a time.

        `at` may be by partition. With `committed_only`, LATEST is the last stable offset.
        """
        topic_type = ListOffsetsRequest.ListOffsetsTopic

        def partition(key: TopicPartition) -> Any:  # noqa: ANN401 - kafka-python is untyped
            timestamp = at if isinstance(at, int) else at[key]
            return topic_type.ListOffsetsPartition(partition_index=key[1], timestamp=timestamp)

        def request(some: Sequence[TopicPartition]) -> Any:  # noqa: ANN401 - the same
            asked = [topic_type(name=name, partitions=those) for name, those in by_topic(some, partition)]
            return ListOffsetsRequest(isolation_level=int(committed_only), topics=asked, min_version=_ISOLATION_VERSION)

        def fact(_: TopicPartition, one: Any) -> Offset:  # noqa: ANN401 - the same
            return Offset(one.offset, one.timestamp)

        return send_to_leaders(admin, keys, self.topics, request, parts_of_topics, fact)

    def epoch_ends(
        self, admin: Admin, topic: str, epochs: Mapping[int, int], timeout_ms: int = ANSWER_MS
    ) -> Answers[EpochEnd]:
        """Return the end offsets of these epochs, by partition of a topic.

        Each request has the epoch of the leader, as described, and a broker that knows a newer epoch rejects it: a fact
        also proves that there was no election since the topic was described.
        """
        described = self.topics[topic]

        def request(keys: Sequence[TopicPartition]) -> Any:  # noqa: ANN401 - kafka-python is untyped
            partitions = [
                {"partition": one, "current_leader_epoch": described.epochs[one], "leader_epoch": epochs[one]}
                for _, one in keys
            ]
            fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": partitions}]}
            return build(OffsetForLeaderEpochRequest, fields, min_version=_EPOCH_VERSION)

        def parts(answer: Any) -> Parts:  # noqa: ANN401 - the same
            return (((topic, one.partition), one) for one in answer.topics[0].partitions)

        def fact(_: TopicPartition, one: Any) -> EpochEnd:  # noqa: ANN401 - the same
            return EpochEnd(one.leader_epoch, one.end_offset)

        return send_to_leaders(admin, [(topic, one) for one in epochs], self.topics, request, parts, fact, timeout_ms)

    def unanswered(self, found: Mapping[TopicPartition, object]) -> list[TopicPartition]:
        """Return the partitions whose facts may be known once their topics are described again, as in the table."""
        return [
            key
            for key, error in found.items()
            if isinstance(error, str) and not is_denied(error)
            if (topic := self.topics.get(key[0])) is not None and topic.error is None
        ]

    def find_leaders(self, admin: Admin, found: Mapping[TopicPartition, object]) -> list[TopicPartition]:
        """Describe the topics of unanswered partitions again; return the partitions that are worth another request."""
        unanswered = self.unanswered(found)
        away = {leader_of(self.topics, key) for key in unanswered if found[key] == AWAY}
        self.describe(admin, {topic for topic, _ in unanswered})
        return [key for key in unanswered if found[key] != AWAY or leader_of(self.topics, key) not in away]


def read_offsets(
    admin: Admin, topic: str, *at: int, in_detail: bool = False
) -> tuple[DescribedTopic, list[dict[int, int]]]:
    """Return a topic, and for each of `at` the offsets of all its partitions; waits up to 10 s for elections.

    There are no offsets of a topic that does not exist, or whose name is invalid. Raises GroupError if the topic may
    not be described, KafkaTimeoutError if a partition still has no leader that answers, and KafkaError.
    """
    reader, deadline = TopicReader(), time.monotonic() + _ELECTION_SECONDS
    while True:
        reader.describe(admin, [topic], in_detail=in_detail)
        described = reader.topics[topic]
        if described.error and is_denied(described.error):
            raise GroupError(TOPIC_AUTHORIZATION_FAILED, topic)
        found = [reader.offsets(admin, [(topic, one) for one in described.leaders], one) for one in at]
        known = [{key[1]: one.offset for key, one in some.items() if isinstance(one, Offset)} for some in found]
        if described.error or all(len(one) == len(described.leaders) for one in known):
            return described, known
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(f"a partition of {topic} has no leader that answers")
        time.sleep(_PAUSE_SECONDS)


def describe_topics(admin: Admin, names: Iterable[str] | None, *, in_detail: bool = False) -> Topics:
    """Return topics, by default all, with leaders or errors; creates none. Raises KafkaError if no broker answers."""
    described: dict[str, DescribedTopic] = {}
    for some in [None] if names is None else chunks(names, _TOPICS_PER_REQUEST):
        request = MetadataRequest(
            topics=None if some is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in some],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=in_detail,
        )
        answer = admin.send_to_any(request)
        for topic in answer.topics:
            details: dict[str, Any] = {}
            if in_detail:
                rights = topic.authorized_operations
                details = {
                    "rights": None if rights is None else {one.name for one in ACLOperation if one.value in rights},
                    "replicas": {one.partition_index: one.replica_nodes for one in topic.partitions},
                    "in_sync": {one.partition_index: one.isr_nodes for one in topic.partitions},
                }
            described[topic.name] = DescribedTopic(
                format_topic_id(topic.topic_id),
                {one.partition_index: one.leader_id for one in topic.partitions},
                error_name(topic.error_code) if topic.error_code else None,
                {one.partition_index: one.leader_epoch for one in topic.partitions},
                {one.partition_index: one.offline_replicas for one in topic.partitions if one.leader_id < 0},
                answer.cluster_id or "",
                **details,
            )
    return described


def send_to_leaders(  # noqa: PLR0913, PLR0917 - whom, what, and how the answer is read
    admin: Admin,
    keys: Iterable[TopicPartition],
    topics: Topics,
    request: Callable[[Sequence[TopicPartition]], Any],
    parts: Callable[[Any], Parts],
    fact: Callable[[TopicPartition, Any], T],
    timeout_ms: int = ANSWER_MS,
) -> Answers[T]:
    """Ask the leaders of partitions; return the `fact` of each part of their answers, or why it is not known."""
    found: Answers[T] = {}
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for key in keys:
        if isinstance(leader := leader_of(topics, key), int):
            by_leader[leader].append(key)
        else:
            found[key] = leader
    asked = [(leader, some) for leader, led in by_leader.items() for some in chunks(led, _PARTITIONS_PER_REQUEST)]
    answers = admin.send_all([(leader, request(some)) for leader, some in asked], timeout_ms)
    for (_, some), answer in zip(asked, answers, strict=True):
        if isinstance(answer, KafkaError):
            found |= dict.fromkeys(some, AWAY)
            continue
        for key, one in parts(answer):
            found[key] = error_name(one.error_code) if one.error_code else fact(key, one)
    return found


def parts_of_topics(answer: Any) -> Parts:  # noqa: ANN401 - kafka-python is untyped
    """Return the parts of an answer that names topics and partitions as most do."""
    return (((topic.name, one.partition_index), one) for topic in answer.topics for one in topic.partitions)


def by_topic(keys: Iterable[TopicPartition], part: Callable[[TopicPartition], Any]) -> Iterable[tuple[str, list[Any]]]:
    """Return by topic what `part` makes of the partitions."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for key in keys:
        found[key[0]].append(part(key))
    return found.items()


def leader_of(topics: Topics, key: TopicPartition) -> int | str:
    """Return the leader of a partition, or the name of an error."""
    topic = topics.get(key[0])
    if topic is None:
        return UNKNOWN_TOPIC
    if topic.error is not None:
        return topic.error
    leader = topic.leaders.get(key[1])
    if leader is None:
        return UNKNOWN_TOPIC
    return leader if leader >= 0 else NO_LEADER


def format_topic_id(topic_id: UUID | None) -> str | None:
    """Return a topic id in Kafka's format: base64 without padding; None for the id of an unknown topic."""
    if not topic_id or topic_id == _NO_TOPIC_ID:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


class PartitionCounts:
    """The partition counts from which the reason is derived why a group is NotReady; for one thread."""

    def __init__(self, connection: SharedConnection[Admin], report: Report) -> None:
        """Prepare; `report` gets a line if kafka-python does not support the client properties."""
        self._connection, self._report = connection, ReportOnce(report)
        self._counts: dict[str, int | None] = {}
        self._kept_until = 0.0

    def __call__(self, names: Sequence[str]) -> Mapping[str, int] | None:
        """Return the partition counts of the topics that exist among these; they may be some seconds old.

        None if no broker answers, which the stream reports, or the principal may not describe one of the topics.
        """
        if time.monotonic() > self._kept_until:
            self._counts, self._kept_until = {}, time.monotonic() + _KEPT_SECONDS
        if missing := [name for name in names if name not in self._counts]:
            try:
                with self._connection.use() as admin:
                    topics = describe_topics(admin, missing)
            except (KafkaError, OSError, SecurityError) as error:
                if isinstance(error, SecurityError):
                    because = f"because topics cannot be described: {error}"
                    self._report(f"NotReady reasons are derived from the log alone, {because}")
                return None
            if any(one.error not in {None, UNKNOWN_TOPIC} for one in topics.values()):
                return None  # not authorized to describe it: the topic may still exist
            self._counts |= {name: len(topics[name].leaders) or None for name in missing}
        return {name: count for name in names if (count := self._counts[name])}
