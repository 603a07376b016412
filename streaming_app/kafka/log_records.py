"""Reads records of logs with kafka-python.

`LogReader` returns whole records, if a Spark job would cost more than reading them: this process gets a large record
from the broker in a tenth of the time that Spark's source and Arrow take, and the JVM does not hold the record.

The functions read the headers alone: where the next record is, and whether it is committed. They send Fetch requests as
READ_COMMITTED, to all leaders at the same time, as `topic_reader` sends them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import kafka
from kafka.errors import KafkaTimeoutError
from kafka.protocol.consumer import FetchRequest
from typing_extensions import Self

from streaming_app.kafka.connection import Admin, connection_settings, silence_log
from streaming_app.kafka.topic_reader import Answers, Parts, Topics, by_topic, describe_topics, send_to_leaders
from streaming_app.lag.ends import TopicPartition

T = TypeVar("T")
Range = tuple[int, int]
"""The first offset, and the one after the last."""

_POLL_MS = 500
_PATIENCE_SECONDS = 20.0  # without a record, then the read fails
_FETCH_BYTES = 4 << 20  # per partition and fetch; a larger record is still returned
_FETCH_RECORDS_VERSION, _LAST_FETCH_WITH_NAMES = 4, 12  # the first one has an isolation level
_READS_OF_RECORDS = 10  # requests for each partition
_READ_BYTES = 131_072  # per partition, answer and pass
_BATCH = Struct(">qi4xb4xhi16xq6xi")  # base offset, length, magic, attributes, last delta, producer id, records
_BATCH_OVERHEAD = 12  # the base offset and the length itself
_BATCH_MAGIC = 2
_IS_TRANSACTIONAL, _IS_CONTROL = 0x10, 0x20


class LogReader:
    """A connection to the brokers that reads one topic; a context manager. All calls raise KafkaError."""

    def __init__(self, properties: Mapping[str, str], topic: str) -> None:
        """Connect. Raises KafkaError, SecurityError. Checksums take seconds here, and are left to Spark."""
        silence_log()
        self._topic = topic
        self._consumer = kafka.KafkaConsumer(
            **connection_settings(properties),
            client_id="streams-groups",
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_uncommitted",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCH_BYTES,
            check_crcs=False,
        )

    def read(self, ranges: Mapping[int, Range]) -> Iterator[Any]:
        """Yield the records of these ranges, by partition, as kafka-python returns them; in order within a partition.

        Raises OffsetOutOfRangeError if the log begins later, KafkaTimeoutError if nothing comes for 20 seconds.
        """
        consumer = self._consumer
        ends = {kafka.TopicPartition(self._topic, one): end for one, (start, end) in ranges.items() if start < end}
        consumer.assign(list(ends))
        consumer.resume(*ends)  # an earlier call has paused partitions that it read to the end
        for partition in ends:
            consumer.seek(partition, ranges[partition.partition][0])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left := [one for one, end in ends.items() if consumer.position(one) < end]:
            consumer.pause(*(ends.keys() - left))
            found = consumer.poll(timeout_ms=_POLL_MS)
            for partition, records in found.items():
                yield from (record for record in records if record.offset < ends[partition])
            if found:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise KafkaTimeoutError(f"{self._topic}: nothing for {_PATIENCE_SECONDS:.0f} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


class FoundRecords(NamedTuple):
    """The result of reading one answer from an offset on."""

    record_at: int | None
    """There is a record at this offset, or shortly before it in the same batch; None: none before `reached`."""
    reached: int


def find_records(admin: Admin, starts: Mapping[TopicPartition, int], topics: Topics) -> Answers[FoundRecords]:
    """Read each partition from an offset on, as READ_COMMITTED, until a record or for some kilobytes."""
    return _read_committed(admin, starts, topics, lambda key, one: _first_record(one, starts[key]))


def _read_committed(
    admin: Admin, starts: Mapping[TopicPartition, int], topics: Topics, fact: Callable[[TopicPartition, Any], T]
) -> Answers[T]:
    """Return the `fact` in some kilobytes of each partition from an offset on, read as READ_COMMITTED."""
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

    def parts(answer: Any) -> Parts:  # noqa: ANN401 - the same
        return (((topic.topic, one.partition_index), one) for topic in answer.responses for one in topic.partitions)

    return send_to_leaders(admin, starts, topics, request, parts, fact)


def are_committed(admin: Admin, topic: str, records: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bool]:
    """Return whether records (partition, offset) are committed; none of an open transaction. Raises KafkaError."""
    topics, found = describe_topics(admin, [topic]), dict[tuple[int, int], bool]()
    left: defaultdict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted(records):
        left[partition].append(offset)
    for _ in range(_READS_OF_RECORDS):
        starts = {(topic, partition): offsets[0] for partition, offsets in left.items() if offsets}
        for (_, partition), known in _read_committed(admin, starts, topics, _outcomes).items():
            if not isinstance(known, str):
                offsets = left[partition]
                found |= {(partition, one): known[one] for one in offsets if one in known}
                left[partition] = [one for one in offsets[1:] if one not in known]
    return found


def _outcomes(_key: TopicPartition, answer: Any) -> dict[int, bool]:  # noqa: ANN401 - kafka-python is untyped
    found: dict[int, bool] = {}
    for base, last, is_committed, _ in _batches(answer):
        found |= dict.fromkeys(range(base, last + 1), is_committed)
    return found


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
