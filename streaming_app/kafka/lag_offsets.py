"""What lag is made of: the ends of the logs of many partitions, and the committed offsets of many groups.

The ends take Metadata for the leaders, then one ListOffsets request to each leader; the commits one OffsetFetch for
many groups. kafka-python's own admin client asks one leader after the other, and the first error of a partition loses
what all others answered. Here an error stays with its partition or its group, and the requests to all brokers are sent
before the first answer is awaited.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kafka.errors import KafkaError
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from streaming_app.chunks import chunks
from streaming_app.kafka.connection import ANSWER_MS, Admin
from streaming_app.kafka.protocol import GroupError, error_name
from streaming_app.lag.model import Commit
from streaming_app.lag.partition_time import partition_time_ms

TopicPartition = tuple[str, int]

LATEST, EARLIEST = -1, -2
"""What to ask for instead of a time in milliseconds since 1970."""
NO_LEADER = "LEADER_NOT_AVAILABLE"
AWAY = "BROKER_NOT_AVAILABLE"
"""The leader does not answer."""
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"

_TOPICS_PER_REQUEST = 2_000
_PARTITIONS_PER_REQUEST = 50_000  # 0.8 MB out, 1.4 MB in
_ISOLATION_VERSION = 2  # of ListOffsets: the first with an isolation level
_NO_TOPIC_ID = UUID(int=0)
_DENIED = "AUTHORIZATION"
_GROUPS_PER_FETCH = 100
_FETCH_VERSION = 8  # the first that takes many groups: KIP-709, Kafka 3.0
_LAST_VERSION_WITH_NAMES = 9  # later ones name topics by id
_FETCH_RECORDS_VERSION, _LAST_FETCH_WITH_NAMES = 4, 12  # the first with an isolation level
_READ_BYTES = 16_384  # of a partition in one answer
_BATCH = Struct(">qi4xb4xhi16xq6xi")  # base offset, length, magic, attributes, last delta, producer id, records
_BATCH_OVERHEAD = 12  # the base offset and the length itself
_BATCH_MAGIC = 2
_IS_TRANSACTIONAL, _IS_CONTROL = 0x10, 0x20


class TopicLeaders(NamedTuple):
    """A topic as a broker describes it: its id, its leaders by partition (-1: none), else the name of the error."""

    topic_id: str | None
    leaders: Mapping[int, int]
    error: str | None = None
    offline: Mapping[int, Sequence[int]] = MappingProxyType({})
    """By partition without a leader: the brokers that have it, and are away."""


@dataclass
class Offsets:
    """What ListOffsets returned: an offset or the name of an error for each partition."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, str] = field(default_factory=dict)
    timestamps: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the records at these offsets, in milliseconds, where it was asked for by time; -1: it has none."""
    away: set[int] = field(default_factory=set)
    """The brokers that did not answer."""
    answered: set[int] = field(default_factory=set)

    @property
    def stale(self) -> list[TopicPartition]:
        """The partitions whose leaders should be asked for again: any error but a denial may come of an election."""
        return [key for key, error in self.errors.items() if not is_denied(error)]

    def replace(self, again: Offsets) -> None:
        """Put in what was found of some of the partitions when they were asked for again."""
        self.errors = {key: error for key, error in self.errors.items() if key not in again.offsets} | again.errors
        self.offsets |= again.offsets
        self.away |= again.away
        self.answered |= again.answered


class FoundRecords(NamedTuple):
    """What was read from an offset on, in one answer."""

    record_at: int | None
    """A record is there, or shortly before it in its batch; None: there are none before `reached`."""
    reached: int
    error: str | None = None


def is_denied(error: str) -> bool:
    """Return whether an error is that the principal may not ask."""
    return _DENIED in error


class LogEndsClient:
    """Asks the brokers of one cluster; for one thread. `describe` raises KafkaError where none of them answers."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def describe(self, topics: Iterable[str]) -> dict[str, TopicLeaders]:
        """Return the leaders of these topics, whether or not they exist or may be described. Creates no topic."""
        described: dict[str, TopicLeaders] = {}
        for names in chunks(topics, _TOPICS_PER_REQUEST):
            request = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False,
            )
            for topic in self._admin.send_to_any(request).topics:
                described[topic.name] = TopicLeaders(
                    format_topic_id(topic.topic_id),
                    {one.partition_index: one.leader_id for one in topic.partitions},
                    error_name(topic.error_code) if topic.error_code else None,
                    {one.partition_index: one.offline_replicas for one in topic.partitions if one.leader_id < 0},
                )
        return described

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        topics: Mapping[str, TopicLeaders],
        timestamp: int | Mapping[TopicPartition, int] = LATEST,
        *,
        committed_only: bool = False,
    ) -> Offsets:
        """Return the offset of each partition at `timestamp`: LATEST, EARLIEST, or of the first record since a time.

        The time may be another one for each partition.

        With `committed_only`, LATEST is the last stable offset. -1 is the answer where no record is so new.
        """
        found = Offsets()
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for key in partitions:
            leader = leader_of(topics, key)
            if isinstance(leader, str):
                found.errors[key] = leader
            else:
                by_leader[leader].append(key)
        requests = [
            (leader, chunk, _request(chunk, timestamp, int(committed_only)))
            for leader, keys in by_leader.items()
            for chunk in chunks(keys, _PARTITIONS_PER_REQUEST)
        ]
        answers = self._admin.send_all([(leader, request) for leader, _, request in requests], ANSWER_MS)
        for (leader, chunk, _), answer in zip(requests, answers, strict=True):
            if isinstance(answer, KafkaError):
                found.away.add(leader)
                found.errors.update(dict.fromkeys(chunk, AWAY))
            else:
                found.answered.add(leader)
                _add(found, answer)
        return found

    def find_records(
        self, starts: Mapping[TopicPartition, int], topics: Mapping[str, TopicLeaders]
    ) -> dict[TopicPartition, FoundRecords]:
        """Read each partition from an offset on, as READ_COMMITTED, until there is a record, or a few kilobytes long.

        What the leader does not answer is left out, unless it is that the principal may not read.
        """
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for key in starts:
            if isinstance(leader := leader_of(topics, key), int):
                by_leader[leader].append(key)
        requests = [(leader, _fetch(keys, starts)) for leader, keys in by_leader.items()]
        found: dict[TopicPartition, FoundRecords] = {}
        for answer in self._admin.send_all(requests, ANSWER_MS):
            if isinstance(answer, KafkaError):
                continue
            for topic in answer.responses:
                for one in topic.partitions:
                    key, error = (topic.topic, one.partition_index), error_name(one.error_code)
                    if not one.error_code:
                        found[key] = _first_record(one, starts[key])
                    elif is_denied(error):
                        found[key] = FoundRecords(None, starts[key], error)
        return found


def _fetch(keys: Iterable[TopicPartition], starts: Mapping[TopicPartition, int]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    topic_type = FetchRequest.FetchTopic
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    for topic, partition in keys:
        by_topic[topic].append(
            topic_type.FetchPartition(
                partition=partition, fetch_offset=starts[topic, partition], partition_max_bytes=_READ_BYTES
            )
        )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        topics=[topic_type(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
        min_version=_FETCH_RECORDS_VERSION,
        max_version=_LAST_FETCH_WITH_NAMES,
    )


def _first_record(answer: Any, start: int) -> FoundRecords:  # noqa: ANN401 - kafka-python is untyped
    """Go through the headers of the batches: the last one may be cut off, which is enough of it."""
    records, at = bytes(answer.records or b""), 0
    aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
    open_ids: set[int] = set()
    reached = start
    while at + _BATCH.size <= len(records):
        base, length, magic, attributes, last_delta, producer_id, count = _BATCH.unpack_from(records, at)
        if magic < _BATCH_MAGIC:
            return FoundRecords(base, reached)
        at += _BATCH_OVERHEAD + length
        while aborted and aborted[0][0] <= base + last_delta:
            open_ids.add(aborted.pop(0)[1])
        if attributes & _IS_CONTROL:
            open_ids.discard(producer_id)
        elif count and base + last_delta >= start and not (attributes & _IS_TRANSACTIONAL and producer_id in open_ids):
            return FoundRecords(base + last_delta, reached)
        reached = max(reached, base + last_delta + 1)
    return FoundRecords(None, reached)


def leader_of(topics: Mapping[str, TopicLeaders], key: TopicPartition) -> int | str:
    """Return the leader of a partition, or the name of the error."""
    topic = topics.get(key[0])
    if topic is None:
        return UNKNOWN_TOPIC
    if topic.error is not None:
        return topic.error
    leader = topic.leaders.get(key[1])
    if leader is None:
        return UNKNOWN_TOPIC
    return leader if leader >= 0 else NO_LEADER


def _request(
    keys: Sequence[TopicPartition], timestamp: int | Mapping[TopicPartition, int], isolation_level: int
) -> Any:  # noqa: ANN401 - kafka-python is untyped
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    for topic, partition in keys:
        at = timestamp if isinstance(timestamp, int) else timestamp[topic, partition]
        by_topic[topic].append(topic_type.ListOffsetsPartition(partition_index=partition, timestamp=at))
    return ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=[topic_type(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        min_version=_ISOLATION_VERSION,
    )


def _add(found: Offsets, answer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    for topic in answer.topics:
        name = topic.name
        for one in topic.partitions:
            if one.error_code:
                found.errors[name, one.partition_index] = error_name(one.error_code)
            else:
                found.offsets[name, one.partition_index] = one.offset
                found.timestamps[name, one.partition_index] = one.timestamp


def format_topic_id(topic_id: UUID | None) -> str | None:
    """Return a topic id as Kafka prints it: base64 without padding; None for that of an unknown topic."""
    if not topic_id or topic_id == _NO_TOPIC_ID:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


# --- Committed offsets ------------------------------------------------------------------------------------------------


class CommittedOffsets(NamedTuple):
    """By group: the offsets of every partition it has committed, or the name of the error."""

    offsets: dict[str, dict[TopicPartition, Commit]]
    errors: dict[str, str]


def fetch_committed_offsets(admin: Admin, group_ids: Iterable[str]) -> CommittedOffsets:
    """Return what the coordinators of these groups have; an aborted transaction's offsets are not in it.

    Raises KafkaError where no broker answers.
    """
    found = CommittedOffsets({}, {})
    for ids, answer in admin.send_to_coordinators(group_ids, _fetch_request, _GROUPS_PER_FETCH):
        if isinstance(answer, Exception):
            name = answer.name if isinstance(answer, GroupError) else type(answer).__name__
            found.errors.update(dict.fromkeys(ids, name))
            continue
        for group in answer.groups:
            if group.error_code:
                found.errors[group.group_id] = error_name(group.error_code)
            else:
                found.offsets[group.group_id] = _offsets(group)
    return found


def _fetch_request(group_ids: list[str]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[group(group_id=group_id, topics=None) for group_id in group_ids],
        require_stable=False,
        min_version=_FETCH_VERSION,
        max_version=_LAST_VERSION_WITH_NAMES,
    )


def _offsets(group: Any) -> dict[TopicPartition, Commit]:  # noqa: ANN401 - kafka-python is untyped
    return {
        (topic.name, one.partition_index): Commit(
            one.committed_offset,
            leader_epoch=one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None,
            partition_time=None if (time := partition_time_ms(one.metadata)) is None else time / 1_000,
        )
        for topic in group.topics
        for one in topic.partitions
        if not one.error_code and one.committed_offset >= 0
    }
