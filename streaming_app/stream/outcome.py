"""The result of the records of one group in a batch: its folded row, its counts, and its records for quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from offsets_decoder import SHIPPED, DecodeError, decode
from streaming_app.groups.budget import DEFAULT, Budget, OverBudgetError
from streaming_app.groups.fold import CLASSIC_GROUP, Fold
from streaming_app.groups.group import LogRecord
from streaming_app.groups.row import to_row
from streaming_app.stream.epoch_chain import Chain, epoch_at
from streaming_app.stream.outputs import APPENDED, COUNTS, RETRACTED, TOPOLOGIES
from streaming_app.text import shorten

LogRow = tuple[bytes | None, int, int | None, datetime | None, bytes | None, bytes | None, dict[str, Any] | None]
"""Group bytes, offset, partition, timestamp, key and value of a log record; or a group's stored row, as the last field.

A plain tuple, since Python's garbage collector does not track it: a batch holds those of many groups at once.
"""


def size_of(row: LogRow) -> int:
    """Return the bytes of a record: key and value."""
    return len(row[4] or b"") + len(row[5] or b"")


_CLASSIC_KEY = CLASSIC_GROUP.to_bytes(2, "big")
_GROUP_LENGTH = slice(2, 4)  # in a key, after the type: the length of the group id, which follows it


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
    dialect: str = SHIPPED
    """The dialect of the tag numbers, see `offsets_decoder.decode`."""
    partitions: int | None = None
    """Number of partitions of the topic; None: not known, and every record counts."""
    partitions_grew: bool = False
    """The topic once had fewer partitions, so a record may be in a partition that no longer holds its group."""
    history_offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition, the offset up to which the table `group_events` has events: an earlier batch ended there."""
    chains: Mapping[int, Chain] = field(default_factory=dict)
    """By partition, the leader epochs of its log (see `log_positions`); the caller may change it later."""
    budget: Budget = DEFAULT
    """The limits for one group."""
    release: str = field(default_factory=partial(version, "streams-groups"))
    """The release of this project, noted for groups that are set aside."""

    def log_epoch(self, partition: int | None, offset: int) -> int | None:
        """Return the leader epoch of a record; None if not known."""
        return None if partition is None else epoch_at(self.chains.get(partition, ()), offset)


class GroupOutcome:
    """The results of a group's records besides its row: counts, and records for quarantine."""

    def __init__(self, options: FoldOptions) -> None:
        self._options = options
        self.decoded = self.drifted = self.undecodable_bytes = 0
        self.undecodable: list[dict[str, Any]] = []

    def decode(self, row: LogRow) -> LogRecord | None:
        """Return the decoded record; None if it goes to quarantine."""
        _, offset, _, at, key, value, _ = row
        if key is not None and key[:2] == _CLASSIC_KEY:  # the fold only needs to know whether it is a tombstone
            return LogRecord(offset, at, CLASSIC_GROUP, {}, None if value is None else {})
        try:
            record = decode(key, value, dialect=self._options.dialect)  # type: ignore[arg-type] # a null key is malformed
        except DecodeError as error:
            self._quarantine(error, row)
            return None
        self.decoded += 1
        self.drifted += record.drift
        return LogRecord(offset, at, record.record_type, record.key, record.value, size_of(row))

    def refuse(self, row: LogRow, error: Exception) -> None:
        """Put a record that cannot be folded into quarantine."""
        if not isinstance(error, LeftoverRecord):
            error = UnfoldableRecord(f"{type(error).__name__}: {error}")
        self._quarantine(error, row)

    def with_group(self, fold: Fold) -> dict[str, Any]:
        """Return the folded row of the group."""
        partition = fold.group.source_partition
        return {
            **to_row(self._options.cluster, fold.group),
            "log_epoch": self._options.log_epoch(partition, fold.group.last_offset),
            "events": [{"void": False, **self._nested(event._asdict(), partition)} for event in fold.events],
            RETRACTED: [{"void": False, **self._nested(event._asdict(), partition)} for event in fold.retracted],
            TOPOLOGIES.column: [self._nested(one, partition) for one in fold.topologies],
            "groups": 1,
            "emitted_events": len(fold.events),
            "retracted_events": len(fold.retracted),
            TOPOLOGIES.count_column: len(fold.topologies),
            **self._take(),
        }

    def set_aside(self, row: dict[str, Any], at: datetime | None, error: Exception) -> dict[str, Any]:
        """Return the row of a group that an error sets aside: its unchanged row, with the mark."""
        reason = str(error) if isinstance(error, OverBudgetError) else f"{type(error).__name__}: {error}"
        marks = {
            "set_aside_at": at,
            "set_aside_reason": shorten(reason, _REASON),
            "set_aside_release": self._options.release,
        }
        return {**self.without_group(), **row, **marks, "groups": 1}

    def without_group(self) -> dict[str, Any]:
        """Return a row with nothing but counts and records for quarantine."""
        empty: dict[str, list[Any]] = {output.column: [] for output in APPENDED}
        row: dict[str, Any] = {"group_id": None, **empty, RETRACTED: [], **dict.fromkeys(COUNTS, 0)}
        return {"cluster": self._options.cluster, **row, **self._take()}

    def _nested(self, row: Mapping[str, Any], partition: int) -> dict[str, Any]:
        log_epoch = self._options.log_epoch(partition, row["offset"])
        return {**row, "source_partition": partition, "log_epoch": log_epoch}

    def _quarantine(self, error: Exception, row: LogRow) -> None:
        _, offset, partition, timestamp, key, value, _ = row
        self.undecodable_bytes += size_of(row)
        self.undecodable.append(
            {
                "group_id": group_of_key(key),
                "topic": self._options.topic,
                "partition": partition,
                "offset": offset,
                "timestamp": timestamp,
                "key": key,
                "value": value,
                "error_kind": type(error).__name__,
                "message": str(error),
                "log_epoch": self._options.log_epoch(partition, offset),
                "void": False,
            }
        )

    def take_back(self, folded: Mapping[str, Any]) -> None:
        """Take back the counts and records of a folded row that cannot be written."""
        self.undecodable, self.decoded, self.drifted = (folded[name] for name in ("undecodable", "decoded", "drifted"))

    def _take(self) -> dict[str, Any]:
        taken = {
            "undecodable": self.undecodable,
            "quarantined": len(self.undecodable),
            "decoded": self.decoded,
            "drifted": self.drifted,
        }
        self.undecodable, self.decoded, self.drifted, self.undecodable_bytes = [], 0, 0, 0
        return taken
