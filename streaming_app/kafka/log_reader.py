"""Reads records of a topic with kafka-python, if a Spark job would cost more than reading them.

This process gets a large record from the broker in a tenth of the time that Spark's source and Arrow take, and the JVM
does not hold the record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError
from typing_extensions import Self

from streaming_app.kafka.connection import connection_settings, silence_log

_POLL_MS = 500
_PATIENCE_SECONDS = 20.0  # without a record, then the read fails
_FETCH_BYTES = 4 << 20  # per partition and fetch; a larger record is still returned

Range = tuple[int, int]
"""The first offset, and the one after the last."""


class LogReader:
    """A connection to the brokers that reads one topic; a context manager. All calls raise KafkaError."""

    def __init__(self, properties: Mapping[str, str], topic: str) -> None:
        """Connect. Raises KafkaError if no broker answers, SecurityError for properties that kafka-python lacks.

        Checksums are not verified: in Python that takes seconds for some megabytes. Spark reads the same records, and
        verifies them.
        """
        silence_log()
        self._topic = topic
        self._consumer = KafkaConsumer(
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
        ends = {TopicPartition(self._topic, one): end for one, (start, end) in ranges.items() if start < end}
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
