"""The log of a broker without Spark: its records as they come, folded by the pure core as the job folds them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from typing_extensions import Self

from offsets_decoder import decode
from streaming_app.core.fold import CLASSIC_GROUP, Fold
from streaming_app.core.group import RECORD_TYPES
from streaming_app.core.life import Event, LogRecord
from streaming_app.core.row import from_row, to_row
from tests.history.chain import key

TOPIC = "__consumer_offsets"


class Raw(NamedTuple):
    """A record as it stands in the log; a value of None is a tombstone."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None

    @property
    def record_type(self) -> int:
        return int.from_bytes(self.key[:2], "big")

    @property
    def group_id(self) -> str:
        """Every group record's key begins with its type and the group's id."""
        return self.key[4 : 4 + int.from_bytes(self.key[2:4], "big")].decode()


class LogReader:
    """Reads the offsets topic to its end, each time from where it was."""

    def __init__(self, bootstrap_server: str) -> None:
        self._server = bootstrap_server
        self._positions: dict[TopicPartition, int] = {}
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def reopen(self) -> None:
        """Go on with a new connection, after the broker was away."""
        self.close()
        self._open()

    def _open(self) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=self._server, enable_auto_commit=False, isolation_level="read_uncommitted"
        )
        numbers = self._consumer.partitions_for_topic(TOPIC) or set()
        self._partitions = [TopicPartition(TOPIC, number) for number in sorted(numbers)]
        self._consumer.assign(self._partitions)
        if fresh := [where for where in self._partitions if where not in self._positions]:
            self._consumer.seek_to_beginning(*fresh)
        for where, offset in self._positions.items():
            self._consumer.seek(where, offset)

    def read(self) -> list[Raw]:
        """What is new, in the order of each partition."""
        if not self._partitions:  # the topic comes with the first group
            self.reopen()
        ends = self._consumer.end_offsets(self._partitions)
        records: list[Any] = []
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            for batch in self._consumer.poll(timeout_ms=100).values():
                records += batch
        self._positions = {where: self._consumer.position(where) for where in self._partitions}
        return [Raw(one.partition, one.offset, one.timestamp, one.key, one.value) for one in records]


class Folded:
    """The rows and the events that the core makes of a log; every `add` is a batch of the job."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[Event]] = {}

    def add(self, records: Iterable[Raw]) -> None:
        folds: dict[str, Fold] = {}
        for raw in records:
            if raw.record_type != CLASSIC_GROUP and raw.record_type not in RECORD_TYPES:
                continue
            group_id = raw.group_id
            if group_id not in folds:
                stored = self.rows.get(group_id)
                if stored is None and raw.record_type == CLASSIC_GROUP:
                    continue
                folds[group_id] = Fold.of(group_id, raw.partition, stored and from_row(stored))  # type: ignore[arg-type]
            folds[group_id].add([_decoded(raw)])
        for group_id, fold in folds.items():
            if fold.touched:
                fold.close()
                self.rows[group_id] = to_row("default", fold.life)
                kept = self.events.setdefault(group_id, [])
                for gone in fold.retracted:
                    _take_back(kept, gone)
                kept += fold.events


def _decoded(raw: Raw) -> LogRecord:
    at = datetime.fromtimestamp(raw.timestamp_ms / 1000, timezone.utc) if raw.timestamp_ms >= 0 else None
    if raw.record_type == CLASSIC_GROUP:
        return LogRecord(raw.offset, at, CLASSIC_GROUP, {}, None if raw.value is None else {})
    record = decode(raw.key, raw.value)
    return LogRecord(raw.offset, at, record.record_type, record.key, record.value)


def _take_back(events: list[Event], gone: Event) -> None:
    events[:] = [event for event in events if key(event) != key(gone)]
