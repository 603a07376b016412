"""The result of the records of one group in a batch: its rows, by table, and counts of its records."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from offsets_decoder import DecodeError, UnknownRecordType, decode
from streaming_app.groups.budget import DEFAULT, Budget, OverBudgetError
from streaming_app.groups.classic import may_be_streams
from streaming_app.groups.fold import CLASSIC_GROUP, Fold
from streaming_app.groups.group import Group, GroupEvent, LogRecord
from streaming_app.groups.row import to_row
from streaming_app.stream.batch_rows import EVENTS, QUARANTINE, RETRACTED, TOPOLOGIES, HistoryOffsets, RowsByTable
from streaming_app.stream.epoch_chain import Chain, epoch_at
from streaming_app.text import shorten

LogRow = tuple[bytes | None, int, int | None, datetime | None, bytes | None, bytes | None, dict[str, Any] | None]
"""Group bytes, offset, partition, timestamp, key and value of a log record; or a group's stored row, as the last field.

A plain tuple, since Python's garbage collector does not track it: a batch holds those of many groups at once.
"""


def size_of(row: LogRow) -> int:
    """Return the bytes of a record: key and value."""
    return len(row[4] or b"") + len(row[5] or b"")


_GROUP_LENGTH = slice(2, 4)  # in a key, after the type: the length of the group id, which follows it


def record_type(key: bytes | None) -> int:
    """Return the type of a record; 0 if the key is too short for one."""
    return int.from_bytes((key or b"")[:2], "big")


def group_of_key(key: bytes | None) -> str | None:
    """Return the group id in a key, after the type; None if the key holds no such text."""
    start = _GROUP_LENGTH.stop
    if key is None or len(key) < start or len(key) < (end := start + int.from_bytes(key[_GROUP_LENGTH], "big")):
        return None
    try:
        return key[start:end].decode()
    except UnicodeDecodeError:
        return None


_REASON = 500  # the most characters of the reason why a group is set aside


class UnfoldableRecord(Exception):  # noqa: N818 - the name is the value of `quarantine.error_kind`
    """A record that can be decoded, but does not fit the state of its group."""


class LeftoverRecord(Exception):  # noqa: N818 - as above
    """A record in a partition that no longer holds its group, because partitions were added."""


@dataclass(frozen=True)
class FoldOptions:
    """The options that are the same for every batch of a run."""

    cluster: str
    topic: str
    partitions: int | None = None
    """Number of partitions of the topic; None: not known, and every record counts."""
    partitions_grew: bool = False
    """The topic once had fewer partitions, so a record may be in a partition that no longer holds its group."""
    history_offsets: HistoryOffsets = field(default_factory=dict)
    """Of the history that is there already, see `start`: an earlier batch ended where that of `group_events` ends."""
    chains: Mapping[int, Chain] = field(default_factory=dict)
    """By partition, the leader epochs of its log (see `log_positions`); the caller may change it later."""
    budget: Budget = DEFAULT
    classic_streams: bool = True
    """Whether groups of Kafka Streams with the classic protocol have rows."""
    sampled: set[int] = field(default_factory=set)
    """The unknown record types of which `quarantine` has a record: of all others of them only the number is kept."""
    release: str = field(default_factory=partial(version, "streams-groups"))
    """The release of this project, noted for groups that are set aside."""

    def log_epoch(self, partition: int | None, offset: int) -> int | None:
        """Return the leader epoch of a record; None if not known."""
        return None if partition is None else epoch_at(self.chains.get(partition, ()), offset)


def quarantine_row(  # noqa: PLR0913, PLR0917 - the columns of a record
    error: Exception,
    options: FoldOptions,
    offset: int,
    partition: int | None,
    timestamp: Any,  # noqa: ANN401 - in the form of the caller's rows
    key: bytes | None,
    value: bytes | None,
) -> dict[str, Any]:
    """Return the row in quarantine of a record that cannot be decoded or folded."""
    return {
        "cluster": options.cluster,
        "group_id": group_of_key(key),
        "topic": options.topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": key,
        "value": value,
        "error_kind": type(error).__name__,
        "message": str(error),
        "log_epoch": options.log_epoch(partition, offset),
        "void": False,
    }


class GroupResult:
    """The results of a group's records besides its row: counts, and records for quarantine."""

    def __init__(self, options: FoldOptions) -> None:
        self._options = options
        self.counts = Counter[str]()
        """How many records were decoded, how many of them have unknown tagged fields (drifted), and how many records of
        unknown types go to quarantine (samples)."""
        self.undecodable: list[dict[str, Any]] = []
        self.undecodable_bytes = 0

    def decode(self, row: LogRow) -> LogRecord | None:
        """Return the decoded record; None if it goes to quarantine."""
        _, offset, _, at, key, value, _ = row
        if record_type(key) == CLASSIC_GROUP:
            return self._decode_classic(row)
        try:
            record = decode(key, value)  # type: ignore[arg-type] # a null key is malformed
        except UnknownRecordType as error:
            if error.record_type not in self._options.sampled:
                self._options.sampled.add(error.record_type)
                self.counts["samples"] += 1
                self._quarantine(error, row)
            return None
        except DecodeError as error:
            self._quarantine(error, row)
            return None
        self.counts["decoded"] += 1
        self.counts["drifted"] += record.drift
        return LogRecord(offset, at, record.record_type, record.key, record.value, size_of(row))

    def _decode_classic(self, row: LogRow) -> LogRecord | None:
        """Return a record 2; its value only if the fold needs more than that it is no tombstone."""
        _, offset, _, at, key, value, _ = row
        key_data: dict[str, Any] = {}
        data: dict[str, Any] | None = None if value is None else {}
        if value and self._options.classic_streams and may_be_streams(value):
            try:
                record = decode(key, value)  # type: ignore[arg-type] # it begins with the type
            except DecodeError:
                return None  # the query of the commits puts it into quarantine
            key_data, data = {"group_id": record.key["group"]}, record.value
        return LogRecord(offset, at, CLASSIC_GROUP, key_data, data, size_of(row) if data else 0)

    def refuse(self, row: LogRow, error: Exception) -> None:
        """Put a record that cannot be folded into quarantine."""
        if not isinstance(error, LeftoverRecord):
            error = UnfoldableRecord(f"{type(error).__name__}: {error}")
        self._quarantine(error, row)

    def with_group(self, fold: Fold) -> RowsByTable:
        """Return the rows of the group, and of its records for quarantine."""
        group, cluster, partition = fold.group, self._options.cluster, fold.group.source_partition
        log_epoch = partial(self._options.log_epoch, partition)
        group.log_epoch = log_epoch(group.last_offset)
        own = {"cluster": cluster, "group_id": group.group_id, "source_partition": partition, "void": False}
        return {
            "groups": [to_row(cluster, group)],
            EVENTS: self._event_rows(group, fold.events),
            RETRACTED: self._event_rows(group, fold.retracted),
            TOPOLOGIES: [{**own, **one, "log_epoch": log_epoch(one["offset"])} for one in fold.topologies],
            QUARANTINE: self.undecodable,
        }

    def set_aside(self, row: dict[str, Any], at: datetime | None, error: Exception) -> RowsByTable:
        """Return the rows of a group that an error sets aside: its unchanged row, with the mark."""
        reason = str(error) if isinstance(error, OverBudgetError) else f"{type(error).__name__}: {error}"
        marks = {
            "set_aside_at": at,
            "set_aside_reason": shorten(reason, _REASON),
            "set_aside_release": self._options.release,
        }
        return {"groups": [row | marks], QUARANTINE: self.undecodable}

    def _event_rows(self, group: Group, events: Sequence[GroupEvent]) -> list[tuple[Any, ...]]:
        cluster, group_id, partition = self._options.cluster, group.group_id, group.source_partition
        epochs = {one: self._options.log_epoch(partition, one) for one in {event.offset for event in events}}
        return [(cluster, group_id, *event, partition, epochs[event.offset], False) for event in events]

    def _quarantine(self, error: Exception, row: LogRow) -> None:
        self.undecodable_bytes += size_of(row)
        self.undecodable.append(quarantine_row(error, self._options, *row[1:6]))
