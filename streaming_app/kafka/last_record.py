"""Where the last record of a log ends that consumers may read: behind it only markers and aborted records may follow.

ListOffsets counts the markers of transactions, and what aborted ones wrote, as any other offset. Which offsets are
records only a Fetch tells: batches of version 2 say in their headers whether they are markers (KIP-98), and the answer
which transactions were aborted. So the tail of a log is read once for each end that it has, a few batches at a time.
It needs READ on the topic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from kafka.protocol.consumer import FetchRequest

from streaming_app.kafka.connection import ANSWER_MS, Admin
from streaming_app.kafka.lag_offsets import TopicPartition

_HEADER = struct.Struct(">qiibihiqqqhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, times, producer, sequence."""
_AFTER_LENGTH = 12  # bytes of a batch before what its length counts
_MAGIC = 2
_CONTROL = 0x20
_FETCH_BYTES = 64 << 10
_ROUNDS = 16
_MIN_VERSION, _MAX_VERSION = 4, 12  # the first with an isolation level, and the last that names topics
_COMMITTED = 1


class _Batch(NamedTuple):
    first: int
    last: int
    producer: int
    is_marker: bool


def find_last_records(
    admin: Admin, tails: Mapping[TopicPartition, tuple[int, int]], leaders: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """Return for each tail of a log, of which the first and the end offset are given, where its last record ends.

    It is the first offset of the tail if that has no record. Partitions of which it cannot be known are missing: the
    principal may not read them, the leader did not answer, or the tail has more than a megabyte.
    """
    found: dict[TopicPartition, int] = {}
    led = {key: leader for key in tails if (leader := leaders.get(key)) is not None}
    places = {key: _Tail(*tails[key]) for key in led}
    for _ in range(_ROUNDS):
        asked = {key: one for key, one in places.items() if one.at < one.end}
        if not asked:
            break
        requests = [(led[key], _request(key, one.at)) for key, one in asked.items()]
        for (key, one), answer in zip(asked.items(), admin.send_all(requests, ANSWER_MS), strict=True):
            if isinstance(answer, KafkaError) or not one.take(answer):
                del places[key]
    for key, one in places.items():
        if one.at >= one.end:
            found[key] = one.records_end
    return found


class _Tail:
    """What was read of the tail of one log."""

    def __init__(self, start: int, end: int) -> None:
        self.at, self.end, self.records_end = start, end, start
        self._open: dict[int, int] = {}  # by producer, the first offset of its transaction that was aborted
        self._aborts: set[tuple[int, int]] = set()

    def take(self, answer: Any) -> bool:  # noqa: ANN401 - kafka-python is untyped
        """Take in an answer; return whether it can be gone on with."""
        (topic,) = answer.responses
        (one,) = topic.partitions
        if one.error_code:
            return False
        self._aborts |= {(aborted.first_offset, aborted.producer_id) for aborted in one.aborted_transactions or ()}
        before = self.at
        for batch in _batches(bytes(one.records or b"")):
            if batch is None:
                return False
            if batch.last < self.at:
                continue
            for first, producer in [abort for abort in self._aborts if abort[0] <= batch.last]:
                self._open[producer] = first
                self._aborts.discard((first, producer))
            if batch.is_marker:
                self._open.pop(batch.producer, None)
            elif self._open.get(batch.producer, batch.last + 1) > batch.first:
                self.records_end = batch.last + 1
            self.at = batch.last + 1
        return self.at > before


def _batches(data: bytes) -> Iterator[_Batch | None]:
    """Yield the whole batches; None for one of an older version, which has no transactions."""
    at = 0
    while at + _HEADER.size <= len(data):
        first, length, _, magic, _, attributes, delta, _, _, producer, _, _ = _HEADER.unpack_from(data, at)
        if magic != _MAGIC:
            yield None
            return
        if at + _AFTER_LENGTH + length > len(data):
            return
        yield _Batch(first, first + delta, producer, bool(attributes & _CONTROL))
        at += _AFTER_LENGTH + length


def _request(key: TopicPartition, offset: int) -> Any:  # noqa: ANN401 - kafka-python is untyped
    topic, partition = key
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        isolation_level=_COMMITTED,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
                    )
                ],
            )
        ],
        min_version=_MIN_VERSION,
        max_version=_MAX_VERSION,
    )
