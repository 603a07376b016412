"""Reads the log of a broker without Spark, and folds its records with `groups.fold`, as the job does."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from typing_extensions import Self

from offsets_decoder import decode
from streaming_app.checks.compare import Difference, Row, differences
from streaming_app.groups.fold import CLASSIC_GROUP, Fold
from streaming_app.groups.group import GroupEvent, LogRecord
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.groups.row import from_row, to_row
from streaming_app.kafka.protocol import Fields
from tests.support.event_chain import event_key

TOPIC = "__consumer_offsets"


class RawRecord(NamedTuple):
    """A record of the log; a value of None is a tombstone. Sorted records are in the order of the log."""

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
        """The key of every group record starts with the record type and the group id."""
        return self.key[4 : 4 + int.from_bytes(self.key[2:4], "big")].decode()


class LogReader:
    """Reads the offsets topic to its end; each `read` continues where the previous one ended."""

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
        """Continue with a new connection, after the broker was restarted."""
        self.close()
        self._open()

    def _open(self) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=self._server.split(","), enable_auto_commit=False)
        partitions = self._consumer.partitions_for_topic(TOPIC) or set()
        self._partitions = [TopicPartition(TOPIC, partition) for partition in sorted(partitions)]
        self._consumer.assign(self._partitions)
        if new := [partition for partition in self._partitions if partition not in self._positions]:
            self._consumer.seek_to_beginning(*new)
        for partition, offset in self._positions.items():
            self._consumer.seek(partition, offset)

    def read(self) -> list[RawRecord]:
        """Return the new records, in the order of each partition."""
        if not self._partitions:  # brokers create the topic with the first group
            self.reopen()
        ends = self._consumer.end_offsets(self._partitions)
        records: list[Any] = []
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            for batch in self._consumer.poll(timeout_ms=100).values():
                records += batch
        self._positions = {partition: self._consumer.position(partition) for partition in self._partitions}
        return [RawRecord(one.partition, one.offset, one.timestamp, one.key, one.value) for one in records]


def read_log(bootstrap_server: str, group_id: str | None = None) -> list[RawRecord]:
    """Return all records, or those of one group, ordered by partition and offset."""
    with LogReader(bootstrap_server) as reader:
        records = sorted(reader.read())
    named = None if group_id is None else len(group_id.encode()).to_bytes(2, "big") + group_id.encode()
    return [one for one in records if named is None or one.key[2:].startswith(named)]


class FoldedLog:
    """The rows and events that result from a log; every `add` corresponds to a batch of the job."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[GroupEvent]] = {}

    def add(self, records: Iterable[RawRecord]) -> None:
        folds: dict[str, Fold] = {}
        for raw in records:
            if raw.record_type != CLASSIC_GROUP and raw.record_type not in RECORD_TYPES:
                continue
            group_id = raw.group_id
            if group_id not in folds:
                stored = self.rows.get(group_id)
                if stored is None and raw.record_type == CLASSIC_GROUP:
                    continue
                folds[group_id] = Fold.of(group_id, raw.partition, stored and from_row(stored))
            folds[group_id].add([log_record(raw)])
        for group_id, fold in folds.items():
            if fold.touched:
                fold.close()
                self.rows[group_id] = to_row("default", fold.group)
                retracted = set(map(event_key, fold.retracted))
                kept = [event for event in self.events.get(group_id, []) if event_key(event) not in retracted]
                self.events[group_id] = kept + fold.events


def log_record(raw: RawRecord) -> LogRecord:
    """Return a record of a group in the form for the fold."""
    at = datetime.fromtimestamp(raw.timestamp_ms / 1000, timezone.utc) if raw.timestamp_ms >= 0 else None
    if raw.record_type == CLASSIC_GROUP:
        return LogRecord(raw.offset, at, CLASSIC_GROUP, {}, None if raw.value is None else {})
    record = decode(raw.key, raw.value)
    return LogRecord(raw.offset, at, record.record_type, record.key, record.value)


def compare_rows(rows: Mapping[str, Row], descriptions: Iterable[Fields]) -> list[Difference]:
    """Return every difference between these groups' descriptions and their rows."""
    return [
        difference
        for description in descriptions
        for difference in differences(description["group_id"], rows.get(description["group_id"]), description)
    ]


def sort_list(value: Any) -> Any:
    """Return the value with lists sorted: members, tasks and changes have no order."""
    return sorted(value, key=str) if isinstance(value, list) else value
