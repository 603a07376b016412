"""Compares every group of a cluster with the tables, while the job runs and groups change.

Theory of operation
-------------------
The job lags behind the log, and groups change during the comparison. So the comparison has these steps:

1. The broker describes a group.
2. The job reads up to the end offset that the group's partition has then, so the tables contain the described state.
3. The tables are read, and compared with the description.

The tables may contain a newer state. So a difference counts if two comparisons in a row find the same values: a group
that changes in between has other differences, or none. A group that cannot be compared before the timeout is reported.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from streaming_app.checks.compare import (
    GROUP_ID_NOT_FOUND,
    NO_ERROR,
    Difference,
    GroupDescription,
    Row,
    differences,
    has_known_state,
)
from streaming_app.chunks import chunks
from streaming_app.errors import UserError
from streaming_app.groups.partition import partition_of
from streaming_app.kafka import AUTHORIZATION_CODES
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, error_name
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets, read_checkpoint_offsets
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote

_COLUMNS = (
    "group_id, state, readiness_recorded, group_epoch, assignment_epoch, assigned_at, topology_epoch, "
    "members, assignments, subtopologies"
)
_NAMED_GROUPS = 100  # the rows of more groups are selected by a range of ids, because ids may be long
_PAUSE_SECONDS = 0.5
_CHUNK_SIZE = 5_000  # groups: bounds memory, and the time between lines of progress


class VerifyError(UserError):
    """The tables cannot be compared. The message is one line."""


class NotCompared(NamedTuple):
    """A group that could not be compared, and why."""

    group_id: str
    reason: str


@dataclass
class Comparison:
    """The result. `stateless` counts agreeing groups whose state is not compared: a 4.1 log does not show it."""

    agreeing: int = 0
    stateless: int = 0
    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every group was compared and nothing differs."""
        return not self.differences and not self.not_compared


class WarehouseTables:
    """The groups of one cluster in a warehouse. Every call reads the newest version of the tables."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse = warehouse
        self._cluster = cluster

    def checkpoint_offsets(self) -> CheckpointOffsets:
        """Return the offsets that the job has processed. Raises VerifyError before its first batch has completed."""
        offsets = read_checkpoint_offsets(self._warehouse, self._cluster)
        if offsets is None:
            raise VerifyError("The job has not finished a batch yet: there is nothing to compare")
        return offsets

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that are not Dead. Raises WarehouseError if there is no warehouse."""
        return [row["group_id"] for row in self._select("group_id", "state <> 'Dead'")]

    def partial_groups(self) -> dict[str, str]:
        """Return group that is set aside -> the reason. Its row is older than the brokers' description."""
        rows = self._select("group_id, set_aside_reason", "set_aside_reason IS NOT NULL")
        return {row["group_id"]: f"it is set aside: {row['set_aside_reason']}" for row in rows}

    def rows(self, group_ids: Sequence[str]) -> dict[str, Row]:
        """Return group id -> row. `group_ids` must be sorted; for many groups, the result has others in their range."""
        if len(group_ids) <= _NAMED_GROUPS:
            condition = f"group_id IN ({', '.join(map(quote, group_ids))})"
        else:
            condition = f"group_id BETWEEN {quote(group_ids[0])} AND {quote(group_ids[-1])}"
        return {row["group_id"]: row for row in self._select(_COLUMNS, condition)}

    def _select(self, columns: str, condition: str) -> list[dict[str, Any]]:
        condition = f"cluster = {quote(self._cluster)} AND coalesce(protocol, 'streams') = 'streams' AND {condition}"
        return WarehouseReader(self._warehouse).rows(f"SELECT {columns} FROM groups WHERE {condition}")  # noqa: S608 - quoted


@dataclass
class Verification:
    """Compares groups repeatedly, until each one has been compared or the timeout is over."""

    brokers: StreamsGroupClient
    tables: WarehouseTables
    timeout_seconds: float
    """How long to wait for the job. The time in which the brokers describe all groups once does not count."""
    progress: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    report: Comparison = field(default_factory=Comparison, init=False)
    unconfirmed: dict[str, list[Difference]] = field(default_factory=dict, init=False)
    is_first_pass: bool = field(default=True, init=False)
    deadline: float = field(default=0.0, init=False)

    def run(self) -> Comparison:
        """Compare all groups.

        Raises VerifyError if the tables belong to another cluster, or the job has not written them yet.
        """
        group_ids = sorted({*self.tables.group_ids(), *self.brokers.streams_groups()})
        self.deadline = self.now() + self.timeout_seconds
        self.check_topic()
        partial = self.tables.partial_groups()  # these are not described, because the answer may be too large
        self.report.not_compared += [NotCompared(one, partial[one]) for one in group_ids if one in partial]
        group_ids = [one for one in group_ids if one not in partial]
        remaining = self.compare(group_ids)
        while remaining and (self.now() < self.deadline or (self.is_first_pass and self.unconfirmed)):
            self.is_first_pass = False
            self.progress(f"{len(remaining):,} of {len(group_ids):,} groups left to compare")
            self.sleep(_PAUSE_SECONDS)
            remaining = self.compare([group.group_id for group in remaining])
        self.report.not_compared += remaining
        self.report.differences.sort(key=lambda difference: (difference.group_id, difference.field))
        return self.report

    def check_topic(self) -> None:
        """Raise VerifyError if the job's offsets are beyond the end of the topic: then it has read another topic."""
        offsets = self.tables.checkpoint_offsets()  # read before the end offsets, which only grow
        ends = self.brokers.end_offsets(offsets.topic)
        beyond = [partition for partition, offset in offsets.offsets.items() if offset > ends.get(partition, 0)]
        if beyond:
            raise VerifyError(
                f"The tables contain offsets of {offsets.topic} that this cluster does not have (partition "
                f"{beyond[0]}): they belong to another cluster, or the topic was recreated"
            )

    def compare(self, group_ids: Sequence[str]) -> list[NotCompared]:
        """Compare these groups once, in the order of their ids. Return those that must be compared again."""
        remaining: list[NotCompared] = []
        for number, some in enumerate(chunks(group_ids, _CHUNK_SIZE)):
            if number:
                self.progress(f"{number * _CHUNK_SIZE:,} of {len(group_ids):,} groups checked")
            started_at = self.now()
            descriptions = self.brokers.describe(some)
            if self.is_first_pass:
                self.deadline += self.now() - started_at
            ends = self.brokers.end_offsets(self.tables.checkpoint_offsets().topic)
            home = {group_id: partition_of(group_id, len(ends)) for group_id in some}
            ends = {partition: ends[partition] for partition in set(home.values()) & ends.keys()}
            while (behind := self.tables.checkpoint_offsets().offsets_behind(ends)) and self.now() < self.deadline:
                self.progress(f"waiting for the job, which is {sum(behind.values()):,} offsets behind")
                self.sleep(_PAUSE_SECONDS)
            rows = self.tables.rows(some)
            for group_id, description in zip(some, descriptions, strict=True):
                lag = sum(behind.values()) if home[group_id] in behind else 0
                if again := self.verify(group_id, rows.get(group_id), description, lag):
                    remaining.append(again)
        return remaining

    def verify(self, group_id: str, row: Row | None, description: GroupDescription, behind: int) -> NotCompared | None:
        """Compare a group, and add the result to the report. Return why it must be compared again, or None."""
        unconfirmed, code = self.unconfirmed.pop(group_id, None), description["error_code"]
        if code not in {NO_ERROR, GROUP_ID_NOT_FOUND}:  # no answer
            error, message = error_name(code), description["error_message"]
            if code not in AUTHORIZATION_CODES:
                return NotCompared(group_id, f"{error}: {message}" if message else error)
            reason = f"{error}; grant Describe on {'its topics' if code == TOPIC_AUTHORIZATION_FAILED else 'it'}"
            self.report.not_compared.append(NotCompared(group_id, reason))
            return None
        found = differences(group_id, row, description)
        if found and behind:
            return NotCompared(group_id, f"the job is {behind:,} offsets behind")
        if found and found != unconfirmed:
            self.unconfirmed[group_id] = found
            return NotCompared(group_id, "it changed during each comparison")
        self.report.differences += found
        if not found:
            self.report.agreeing += 1
            self.report.stateless += row is not None and code == NO_ERROR and not has_known_state(row)
        return None
