"""Lag summed by group, subtopology, task, member, process, host, topic or partition.

Topics that the topology of the group does not read are in no sum. A sum leaves out partitions whose lag is not known,
and counts them (`unknown_partitions`): it is then a lower bound. It is None if the lag of none is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from streaming_app.lag.model import LagRow
from streaming_app.lag.status import LEFT_OVER, OK, RANK, UNKNOWN

Key = tuple[str | float | None, ...]


@dataclass(slots=True)
class LagSum:
    """The lag of one subject, such as a task. `key` are its values of the columns in `KEYS`."""

    key: Key
    lag: int | None = None
    max_lag: int | None = None
    worst: tuple[str, int] | None = None
    """Topic and partition with that lag."""
    lag_seconds: float | None = None
    """Of the partition with the oldest lag."""
    is_lower_bound: bool = False
    """Whether it may be older: the age of one of the partitions is not known, or only a lower bound."""
    unknown_partitions: int = 0
    """Those whose lag is not known, while there may be some: lag and seconds are then lower bounds."""
    partitions: int = 0
    partitions_without_commit: int = 0
    partitions_behind: int = 0
    """With a status other than OK."""
    known_until: float | None = None
    """The oldest of its partitions; None if it never was known of any."""
    min_partition_time: float | None = None
    """Stream time: the lowest and the highest of its partitions; None if it is known of none."""
    max_partition_time: float | None = None
    status: str = UNKNOWN
    """The worst of its partitions with a commit; UNKNOWN if none has one."""

    def add(self, row: LagRow) -> None:
        """Add a partition."""
        is_first = self.partitions == self.partitions_without_commit  # with a commit
        self.partitions += 1
        if row.known_until is not None:
            self.known_until = min(self.known_until or row.known_until, row.known_until)
        if is_unknown(row):
            self.unknown_partitions += 1
            self.is_lower_bound = True
        if row.committed_offset is None:
            self.partitions_without_commit += 1
            return
        self.partitions_behind += row.status != OK
        if is_first or RANK.get(row.status, 0) < RANK.get(self.status, 0):  # a later release may have written others
            self.status = row.status
        if (time := row.partition_time) is not None:
            self.min_partition_time = time if self.min_partition_time is None else min(time, self.min_partition_time)
            self.max_partition_time = time if self.max_partition_time is None else max(time, self.max_partition_time)
        if row.lag is not None:
            self.lag = (self.lag or 0) + row.lag
            if self.max_lag is None or row.lag > self.max_lag:
                self.max_lag, self.worst = row.lag, (row.topic, row.partition)
        if row.lag_seconds is not None:
            self.lag_seconds = max(row.lag_seconds, self.lag_seconds or 0.0)
            self.is_lower_bound |= bool(row.lag_seconds_is_lower_bound)


def is_unknown(row: LagRow) -> bool:
    """Return whether the lag is not known, and may not be 0: it is of a log without records."""
    is_empty = row.committed_offset is None and row.log_end_offset is not None
    return row.lag is None and not (is_empty and row.log_end_offset == row.log_start_offset)


KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "group": ("group_id",),
        "subtopology": ("group_id", "subtopology_id"),
        "task": ("group_id", "task_id", "member_id", "client_host"),
        "member": ("group_id", "member_id", "client_host"),
        "process": ("group_id", "process_id", "client_host"),
        "host": ("client_host",),
        "topic": ("group_id", "topic"),
        "partition": ("group_id", "topic", "partition"),
    }
)
"""What lag can be summed by, and the columns of a subject; of one such as a task, some follow from the others."""

_OF_TASKS = KEYS.keys() - {"group", "topic", "partition"}
"""Of rows without a task there is no sum by these; of a task without an owner, member, process and host are None."""


def lag_sums(rows: Iterable[LagRow], by: str) -> list[LagSum]:
    """Return the sums, the largest first: by offsets, then by seconds. Raises KeyError if `by` is not in `KEYS`."""
    names, needs_task = KEYS[by], by in _OF_TASKS
    positions = [LagRow._fields.index(name) for name in names]
    sums: dict[Key, LagSum] = {}
    for row in rows:
        if row.status == LEFT_OVER or (needs_task and row.task_id is None):
            continue
        key = tuple(row[position] for position in positions)
        found = sums.get(key)
        if found is None:
            found = sums[key] = LagSum(key)
        found.add(row)
    return sorted(sums.values(), key=_order)


def _order(one: LagSum) -> tuple[float, float, tuple[tuple[bool, str], ...]]:
    lag = -1 if one.lag is None else one.lag
    return -lag, -(one.lag_seconds or 0.0), tuple((value is None, str(value)) for value in one.key)
