"""Compares every group of a cluster with the tables, while the job runs and groups change.

Theory of operation
-------------------
The job lags behind the log, and groups change during the comparison. So

1. the broker describes a group,
2. the job processes the end offset of the group's partition as of then, so that the tables contain what was described,
3. the tables are read, and compared with the description.

They may contain something newer. So a difference counts once two comparisons in a row have found the same values: what
changes meanwhile differs otherwise, or not at all. A group that cannot be compared before the timeout is reported as
such.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets, read_checkpoint_offsets
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote

_COLUMNS = (
    "group_id, state, readiness_recorded, group_epoch, assignment_epoch, assigned_at, topology_epoch, "
    "members, assignments, subtopologies"
)

_NAMED_GROUPS = 100  # more are read by their range: ids may be long
_PAUSE_SECONDS = 0.5
_CHUNK_SIZE = 5_000  # groups: bounds memory, and the time between lines of progress


class VerifyError(UserError):
    """Nothing can be compared. The message is one line."""


class Brokers(Protocol):
    """What the comparison requests from the cluster."""

    def list_groups(self) -> Iterable[str]:
        """Return the ids of all streams groups."""

    def describe(self, group_ids: Iterable[str]) -> Iterable[GroupDescription]:
        """Describe these groups, in this order."""

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the end offset of each partition."""


class Tables(Protocol):
    """What the comparison reads from the warehouse."""

    def checkpoint_offsets(self) -> CheckpointOffsets | None:
        """Return the offsets that the job has processed; None before its first batch is done."""

    def group_ids(self) -> Iterable[str]:
        """Return the ids of all groups that are not Dead."""

    def partial_groups(self) -> Mapping[str, str]:
        """Return the groups whose rows are not meant to hold what the brokers describe, with the reason."""

    def rows(self, group_ids: Sequence[str]) -> Mapping[str, Row]:
        """Return the rows of these groups, sorted by id, by group id; others may be among them."""


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def now(self) -> float:
        """Return seconds since an arbitrary point in time."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return `time.monotonic()`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class NotCompared(NamedTuple):
    """A group that could not be compared, and why."""

    group_id: str
    reason: str
    is_missing_acl: bool = False
    """The principal may not describe the group, or a topic that it uses: another request would not help."""


@dataclass
class Report:
    """The result. `stateless` groups agree in everything but their state, which a 4.1 log does not contain."""

    agreeing: int = 0
    stateless: int = 0
    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Every group was compared, and nothing differs."""
        return not self.differences and not self.not_compared


def verify(  # noqa: PLR0913 - each is one thing it needs
    brokers: Brokers,
    tables: Tables,
    clock: Clock,
    timeout_seconds: float,
    progress: Callable[[str], None],
    *,
    group_ids: Iterable[str] | None = None,
) -> Report:
    """Compare all groups, or these, waiting up to the timeout for the job; `progress` is called with lines to show.

    The time that the brokers take to describe all groups once does not count towards the timeout.
    Raises VerifyError when the tables belong to another cluster or the job has not written any.
    """
    if group_ids is None:
        group_ids = {*tables.group_ids(), *brokers.list_groups()}
    return _Verification(brokers, tables, clock, clock.now() + timeout_seconds, progress).run(sorted(group_ids))


class _Verification:
    def __init__(
        self, brokers: Brokers, tables: Tables, clock: Clock, deadline: float, progress: Callable[[str], None]
    ) -> None:
        self._brokers = brokers
        self._tables = tables
        self._clock = clock
        self._deadline = deadline
        self._progress = progress
        self._report = Report()
        self._unconfirmed: dict[str, list[Difference]] = {}
        self._is_first_pass = True

    @property
    def _has_time(self) -> bool:
        return self._clock.now() < self._deadline

    def run(self, group_ids: list[str]) -> Report:
        self._check_topic()
        partial = self._tables.partial_groups()  # which are not described: the answer may be too large
        self._report.not_compared += [NotCompared(one, partial[one]) for one in group_ids if one in partial]
        group_ids = [one for one in group_ids if one not in partial]
        remaining = self._compare_groups(group_ids)
        while remaining and (self._has_time or (self._is_first_pass and self._unconfirmed)):
            self._is_first_pass = False
            self._progress(f"{len(remaining):,} of {len(group_ids):,} groups left to compare")
            self._clock.sleep(_PAUSE_SECONDS)
            remaining = self._compare_groups([group.group_id for group in remaining])
        self._report.not_compared += remaining
        self._report.differences.sort(key=lambda difference: (difference.group_id, difference.field))
        return self._report

    def _check_topic(self) -> None:
        """Raise VerifyError if the job's offsets are beyond the topic's end: then it has read another topic."""
        offsets = self._checkpoint_offsets()  # read before the end offsets, which only grow
        ends = self._brokers.end_offsets(offsets.topic)
        beyond = [partition for partition, offset in offsets.offsets.items() if offset > ends.get(partition, 0)]
        if beyond:
            raise VerifyError(
                f"The tables contain offsets of {offsets.topic} that this cluster does not have (partition "
                f"{beyond[0]}): they belong to another cluster, or the topic was recreated"
            )

    def _checkpoint_offsets(self) -> CheckpointOffsets:
        offsets = self._tables.checkpoint_offsets()
        if offsets is None:
            raise VerifyError("The job has not finished a batch yet: there is nothing to compare")
        return offsets

    def _compare_groups(self, group_ids: list[str]) -> list[NotCompared]:
        """Compare these groups, in order of their ids, once; return those that must be compared again."""
        remaining: list[NotCompared] = []
        for number, some in enumerate(chunks(group_ids, _CHUNK_SIZE)):
            if number:
                self._progress(f"{number * _CHUNK_SIZE:,} of {len(group_ids):,} groups checked")
            remaining += self._compare_chunk(some)
        return remaining

    def _compare_chunk(self, group_ids: list[str]) -> Iterator[NotCompared]:
        started_at = self._clock.now()
        descriptions = dict(zip(group_ids, self._brokers.describe(group_ids), strict=True))
        if self._is_first_pass:
            self._deadline += self._clock.now() - started_at
        ends = self._brokers.end_offsets(self._checkpoint_offsets().topic)
        behind = self._wait_for_job(ends, group_ids)
        rows = self._tables.rows(group_ids)
        for group_id, description in descriptions.items():
            lag = sum(behind.values()) if partition_of(group_id, len(ends)) in behind else 0
            if description["error_code"] in AUTHORIZATION_CODES:
                denied = NotCompared(group_id, _error_reason(description), is_missing_acl=True)
                self._report.not_compared.append(denied)
            elif reason := self._reason_to_repeat(group_id, rows.get(group_id), description, lag):
                yield NotCompared(group_id, reason)

    def _wait_for_job(self, ends: Mapping[int, int], group_ids: list[str]) -> dict[int, int]:
        """Wait until the job has processed the ends of these groups' partitions; return what remains at the timeout."""
        needed = {partition_of(group_id, len(ends)) for group_id in group_ids}
        ends = {partition: end for partition, end in ends.items() if partition in needed}
        behind = self._checkpoint_offsets().offsets_behind(ends)
        while behind and self._has_time:
            self._progress(f"waiting for the job, which is {sum(behind.values()):,} offsets behind")
            self._clock.sleep(_PAUSE_SECONDS)
            behind = self._checkpoint_offsets().offsets_behind(ends)
        return behind

    def _reason_to_repeat(
        self, group_id: str, row: Row | None, description: GroupDescription, behind: int
    ) -> str | None:
        """Compare a group, and report the result; return why it must be compared again, if it must."""
        unconfirmed = self._unconfirmed.pop(group_id, None)
        if description["error_code"] not in {NO_ERROR, GROUP_ID_NOT_FOUND}:  # no answer
            return _error_reason(description)
        found = differences(group_id, row, description)
        if not found:
            self._report.agreeing += 1
            if row is not None and description["error_code"] == NO_ERROR and not has_known_state(row):
                self._report.stateless += 1
            return None
        if behind:
            return f"the job is {behind:,} offsets behind"
        if found == unconfirmed:
            self._report.differences += found
            return None
        self._unconfirmed[group_id] = found
        return "it changed during each comparison"


def _error_reason(description: GroupDescription) -> str:
    return f"the broker returned error {description['error_code']}: {description['error_message'] or 'no message'}"


# --- The tables -------------------------------------------------------------------------------------------------------


class WarehouseTables:
    """One cluster's groups in a warehouse; every call reads the newest version of the tables."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse = warehouse
        self._cluster = cluster

    def checkpoint_offsets(self) -> CheckpointOffsets | None:
        """Return the offsets that the job has processed; None before its first batch is done."""
        return read_checkpoint_offsets(self._warehouse, self._cluster)

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that are not Dead. Raises WarehouseError if there is no warehouse."""
        return [row["group_id"] for row in self._select("group_id", "state <> 'Dead'")]

    def partial_groups(self) -> dict[str, str]:
        """Return the groups that are set aside, with the reason."""
        rows = self._select("group_id, set_aside_reason", "set_aside_reason IS NOT NULL")
        return {row["group_id"]: f"it is set aside: {row['set_aside_reason']}" for row in rows}

    def rows(self, group_ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these groups, sorted by id, by group id; of many groups also of those between them."""
        if len(group_ids) <= _NAMED_GROUPS:
            condition = f"group_id IN ({', '.join(map(quote, group_ids))})"
        else:
            condition = f"group_id BETWEEN {quote(group_ids[0])} AND {quote(group_ids[-1])}"
        return {row["group_id"]: row for row in self._select(_COLUMNS, condition)}

    def _select(self, columns: str, condition: str) -> list[dict[str, Any]]:
        condition = f"cluster = {quote(self._cluster)} AND {condition}"
        return WarehouseReader(self._warehouse).rows(f"SELECT {columns} FROM groups WHERE {condition}")  # noqa: S608 - quoted
