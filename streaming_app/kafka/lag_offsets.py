"""Requests from which lag is computed: the ends of the logs of many partitions, and committed offsets of many groups.

The ends need Metadata for the leaders, then one ListOffsets request to each leader; the commits need one OffsetFetch
for many groups. kafka-python's own admin client asks one leader after the other, and drops all answers at the first
error of a partition. This module keeps an error for its partition or group only, and sends the requests to all brokers
before it waits for the first answer.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Special values in place of a time in milliseconds since 1970."""
NO_LEADER = "LEADER_NOT_AVAILABLE"
AWAY = "BROKER_NOT_AVAILABLE"
"""The name of the error if the leader does not answer."""
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"

_TOPICS_PER_REQUEST = 2_000
_PARTITIONS_PER_REQUEST = 50_000  # 0.8 MB out, 1.4 MB in
_ISOLATION_VERSION = 2  # of ListOffsets: the first with an isolation level
_NO_TOPIC_ID = UUID(int=0)
_DENIED = "AUTHORIZATION"
_GROUPS_PER_FETCH = 100
_FETCH_VERSION = 8  # the first version for many groups: KIP-709, Kafka 3.0
_LAST_VERSION_WITH_NAMES = 9  # later versions name topics by id
_FETCH_RECORDS_VERSION, _LAST_FETCH_WITH_NAMES = 4, 12  # the first one has an isolation level
_READS_OF_RECORDS = 10  # requests for each partition
_READ_BYTES = 131_072  # per partition, answer and pass
_BATCH = Struct(">qi4xb4xhi16xq6xi")  # base offset, length, magic, attributes, last delta, producer id, records
_BATCH_OVERHEAD = 12  # the base offset and the length itself
_BATCH_MAGIC = 2
_IS_TRANSACTIONAL, _IS_CONTROL = 0x10, 0x20


class TopicLeaders(NamedTuple):
    """A topic as a broker describes it: its id, its leaders by partition (-1: none), or the name of an error."""

    topic_id: str | None
    leaders: Mapping[int, int]
    error: str | None = None
    epochs: Mapping[int, int] = MappingProxyType({})
    """The epoch of the leader of each partition."""
    offline: Mapping[int, Sequence[int]] = MappingProxyType({})
    """By partition without a leader: the brokers with a replica that are away."""


class Offset(NamedTuple):
    """The answer of ListOffsets for one partition."""

    offset: int
    """-1: no record is as new."""
    timestamp: int
    """Of the record at this offset, in milliseconds, if the request was by time; -1: it has none."""


Offsets = dict[TopicPartition, Offset | str]
"""By partition, an offset or the name of an error."""


class FoundRecords(NamedTuple):
    """The result of reading one answer from an offset on."""

    record_at: int | None
    """There is a record at this offset, or shortly before it in the same batch; None: none before `reached`."""
    reached: int
    error: str | None = None


def is_denied(error: str) -> bool:
    """Return whether an error says that the principal lacks a permission."""
    return _DENIED in error


def describe_leaders(admin: Admin, topics: Iterable[str]) -> dict[str, TopicLeaders]:
    """Return these topics with their leaders or errors, whether or not they exist. Creates no topic.

    Raises KafkaError if no broker answers.
    """
    described: dict[str, TopicLeaders] = {}
    for names in chunks(topics, _TOPICS_PER_REQUEST):
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        for topic in admin.send_to_any(request).topics:
            described[topic.name] = TopicLeaders(
                format_topic_id(topic.topic_id),
                {one.partition_index: one.leader_id for one in topic.partitions},
                error_name(topic.error_code) if topic.error_code else None,
                {one.partition_index: one.leader_epoch for one in topic.partitions},
                {one.partition_index: one.offline_replicas for one in topic.partitions if one.leader_id < 0},
            )
    return described


def list_offsets(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    topics: Mapping[str, TopicLeaders],
    timestamp: int | Mapping[TopicPartition, int] = LATEST,
    *,
    committed_only: bool = False,
) -> Offsets:
    """Return the offset of each partition at `timestamp`: LATEST, EARLIEST, or of the first record since a time.

    `timestamp` may be by partition. With `committed_only`, LATEST is the last stable offset.
    """
    topic_type = ListOffsetsRequest.ListOffsetsTopic

    def partition(key: TopicPartition) -> Any:  # noqa: ANN401 - kafka-python is untyped
        at = timestamp if isinstance(timestamp, int) else timestamp[key]
        return topic_type.ListOffsetsPartition(partition_index=key[1], timestamp=at)

    def request(keys: Sequence[TopicPartition]) -> Any:  # noqa: ANN401 - the same
        asked = [topic_type(name=name, partitions=those) for name, those in by_topic(keys, partition)]
        return ListOffsetsRequest(isolation_level=int(committed_only), topics=asked, min_version=_ISOLATION_VERSION)

    keys = list(partitions)
    found: Offsets = {key: leader for key in keys if isinstance(leader := leader_of(topics, key), str)}
    for some, answer in ask_leaders(admin, keys, topics, request):
        if isinstance(answer, KafkaError):
            found |= dict.fromkeys(some, AWAY)
            continue
        for topic in answer.topics:
            for one in topic.partitions:
                error = error_name(one.error_code) if one.error_code else None
                found[topic.name, one.partition_index] = error or Offset(one.offset, one.timestamp)
    return found


def find_records(
    admin: Admin, starts: Mapping[TopicPartition, int], topics: Mapping[str, TopicLeaders]
) -> dict[TopicPartition, FoundRecords]:
    """Read each partition from an offset on, as READ_COMMITTED, until a record or for some kilobytes.

    Partitions without an answer of the leader are missing, except if the principal may not read them.
    """
    found: dict[TopicPartition, FoundRecords] = {}
    for key, one in _read_committed(admin, starts, topics):
        error = error_name(one.error_code)
        if not one.error_code:
            found[key] = _first_record(one, starts[key])
        elif is_denied(error):
            found[key] = FoundRecords(None, starts[key], error)
    return found


def _read_committed(
    admin: Admin, starts: Mapping[TopicPartition, int], topics: Mapping[str, TopicLeaders]
) -> Iterator[tuple[TopicPartition, Any]]:
    """Read some kilobytes of each partition from an offset on, as READ_COMMITTED; yield the answers for partitions."""
    topic_type = FetchRequest.FetchTopic

    def partition(key: TopicPartition) -> Any:  # noqa: ANN401 - kafka-python is untyped
        return topic_type.FetchPartition(partition=key[1], fetch_offset=starts[key], partition_max_bytes=_READ_BYTES)

    def request(keys: Sequence[TopicPartition]) -> Any:  # noqa: ANN401 - the same
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1,
            topics=[topic_type(topic=name, partitions=those) for name, those in by_topic(keys, partition)],
            min_version=_FETCH_RECORDS_VERSION,
            max_version=_LAST_FETCH_WITH_NAMES,
        )

    for _, answer in ask_leaders(admin, starts, topics, request):
        for topic in () if isinstance(answer, KafkaError) else answer.responses:
            yield from (((topic.topic, one.partition_index), one) for one in topic.partitions)


def are_committed(admin: Admin, topic: str, records: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bool]:
    """Return which of these records (partition, offset) are committed, and which belong to aborted transactions.

    Those of an open transaction are missing, as are those without an answer. Raises KafkaError if no broker answers.
    """
    topics, found = describe_leaders(admin, [topic]), dict[tuple[int, int], bool]()
    left: defaultdict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted(records):
        left[partition].append(offset)
    for _ in range(_READS_OF_RECORDS):
        starts = {(topic, partition): offsets[0] for partition, offsets in left.items() if offsets}
        for (_, partition), answer in _read_committed(admin, starts, topics):
            if not answer.error_code:
                known = _outcomes(answer)
                offsets = left[partition]
                found |= {(partition, one): known[one] for one in offsets if one in known}
                left[partition] = [one for one in offsets[1:] if one not in known]
    return found


def _outcomes(answer: Any) -> dict[int, bool]:  # noqa: ANN401 - kafka-python is untyped
    """Return for each offset of an answer with READ_COMMITTED whether its record is committed."""
    found: dict[int, bool] = {}
    for base, last, is_committed, _ in _batches(answer):
        found |= dict.fromkeys(range(base, last + 1), is_committed)
    return found


def ask_leaders(
    admin: Admin,
    keys: Iterable[TopicPartition],
    topics: Mapping[str, TopicLeaders],
    request: Callable[[Sequence[TopicPartition]], Any],
    timeout_ms: int = ANSWER_MS,
) -> Iterator[tuple[list[TopicPartition], Any]]:
    """Ask the leader of each partition that has one; yield some partitions, with the answer about them."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for key in keys:
        if isinstance(leader := leader_of(topics, key), int):
            by_leader[leader].append(key)
    asked = [(leader, some) for leader, led in by_leader.items() for some in chunks(led, _PARTITIONS_PER_REQUEST)]
    answers = admin.send_all([(leader, request(some)) for leader, some in asked], timeout_ms)
    return zip((some for _, some in asked), answers, strict=True)


def by_topic(keys: Iterable[TopicPartition], build: Callable[[TopicPartition], Any]) -> Iterable[tuple[str, list[Any]]]:
    """Return by topic what `build` makes of the partitions."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for key in keys:
        found[key[0]].append(build(key))
    return found.items()


def _first_record(answer: Any, start: int) -> FoundRecords:  # noqa: ANN401 - kafka-python is untyped
    """Find the first record by the batch headers; the last batch may be cut off, but its header is enough."""
    reached = start
    for _, last, is_committed, has_records in _batches(answer):
        if has_records and is_committed and last >= start:
            return FoundRecords(last, reached)
        reached = max(reached, last + 1)
    return FoundRecords(None, reached)


def _batches(answer: Any) -> Iterator[tuple[int, int, bool, bool]]:  # noqa: ANN401 - kafka-python is untyped
    """Yield the first and last offset of each batch, whether it was not aborted, and whether it has records."""
    records, at = bytes(answer.records or b""), 0
    aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
    open_ids: set[int] = set()
    while at + _BATCH.size <= len(records):
        base, length, magic, attributes, last_delta, producer_id, count = _BATCH.unpack_from(records, at)
        at += _BATCH_OVERHEAD + length
        if magic < _BATCH_MAGIC:
            yield base, base, True, True
            continue
        while aborted and aborted[0][0] <= base + last_delta:
            open_ids.add(aborted.pop(0)[1])
        if attributes & _IS_CONTROL:
            open_ids.discard(producer_id)
        is_aborted = bool(attributes & _IS_TRANSACTIONAL) and producer_id in open_ids
        yield base, base + last_delta, not is_aborted, bool(count) and not attributes & _IS_CONTROL


def leader_of(topics: Mapping[str, TopicLeaders], key: TopicPartition) -> int | str:
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


# --- Committed offsets ------------------------------------------------------------------------------------------------


def fetch_committed_offsets(
    admin: Admin, group_ids: Iterable[str], timeout_ms: int = ANSWER_MS
) -> tuple[dict[str, dict[TopicPartition, Commit]], dict[str, str]]:
    """Return the committed offsets by group and partition from the coordinators; and by group, the name of an error.

    Offsets of aborted transactions are not returned. Raises KafkaError if no broker answers.
    """
    offsets: dict[str, dict[TopicPartition, Commit]] = {}
    errors: dict[str, str] = {}
    for ids, answer in admin.send_to_coordinators(group_ids, _fetch_request, _GROUPS_PER_FETCH, timeout_ms):
        if isinstance(answer, Exception):
            name = answer.name if isinstance(answer, GroupError) else type(answer).__name__
            errors.update(dict.fromkeys(ids, name))
            continue
        for group in answer.groups:
            if group.error_code:
                errors[group.group_id] = error_name(group.error_code)
            else:
                offsets[group.group_id] = _offsets(group)
    return offsets, errors


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
