"""Compares every group of a cluster with the tables, while both go on living.

Theory of operation
-------------------
A job lags, and groups change while one looks. A group counts as compared when

1. the broker described it,
2. the job has passed the end that the group's partition had after that, so that the tables show everything described,
3. the tables were read,
4. and they say the same, or the broker describes the group as before, so that they cannot show anything newer.

A difference seen so is looked at once more before it is told: between 1 and 4 a group may have gone somewhere and come
back. What cannot be compared before time is up is told as such, unless it agrees anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streaming_app.core.partition import partition_of
from streaming_app.serve.position import Position
from streaming_app.verify.compare import (
    GROUP_ID_NOT_FOUND,
    NO_ERROR,
    Described,
    Difference,
    Row,
    differences,
    facts_of_described,
    tells_state,
)

_PAUSE_SECONDS = 0.5
_AT_ONCE = 5_000  # groups: bounds memory, and how long there is nothing to say


class VerifyError(Exception):
    """Nothing can be compared. Its text is one clear line."""


class Brokers(Protocol):
    """What the comparison asks the cluster."""

    def list_groups(self) -> Iterable[str]:
        """The ids of all streams groups."""

    def describe(self, group_ids: Iterable[str]) -> Iterable[Described]:
        """These groups, in this order."""

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """The end of each partition."""


class Tables(Protocol):
    """What the comparison asks the warehouse."""

    def position(self) -> Position | None:
        """What offsets the job has passed."""

    def alive(self) -> Iterable[str]:
        """The ids of all groups that the tables know, but for those that are Dead."""

    def rows(self, first: str, last: str) -> Mapping[str, Row]:
        """The rows of the groups that the tables know from id `first` to id `last`, by group id."""


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def now(self) -> float:
        """Seconds since any moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class NotCompared(NamedTuple):
    """A group about which nothing can be said, and why."""

    group_id: str
    reason: str


@dataclass
class Report:
    """What came out. `stateless` groups agree in everything but their state, which a 4.1 log does not tell."""

    agreeing: int = 0
    stateless: int = 0
    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Every group was compared, and nothing differs."""
        return not self.differences and not self.not_compared


def verify(
    brokers: Brokers, tables: Tables, clock: Clock, timeout_seconds: float, progress: Callable[[str], None]
) -> Report:
    """Compare all groups, waiting for the job up to the timeout; `progress` gets a line whenever there is news.

    What the brokers take to describe all groups once does not count as waiting.
    Raises VerifyError when the tables are not of this cluster or nothing was ever read into them.
    """
    return _Verification(brokers, tables, clock, clock.now() + timeout_seconds, progress).run()


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
        self._suspected: dict[str, list[Difference]] = {}
        self._all_seen = False

    @property
    def _in_time(self) -> bool:
        return self._clock.now() < self._deadline

    def run(self) -> Report:
        pending = sorted({*self._tables.alive(), *self._brokers.list_groups()})
        self._check_topic()
        left = self._round(pending)
        self._all_seen = True
        while left and self._in_time:
            self._progress(f"{len(left):,} of {len(pending):,} groups left to compare")
            self._clock.sleep(_PAUSE_SECONDS)
            left = self._round([one.group_id for one in left])
        for group_id, found in self._suspected.items():
            self._report.differences += found
            left = [one for one in left if one.group_id != group_id]
        self._report.not_compared += left
        self._report.differences.sort(key=lambda one: (one.group_id, one.field))
        return self._report

    def _check_topic(self) -> None:
        """Before anything is compared: a position beyond the topic's end is of another topic."""
        position = self._position()  # read first: the ends can only grow
        ends = self._brokers.end_offsets(position.topic)
        beyond = [partition for partition, offset in position.offsets.items() if offset > ends.get(partition, 0)]
        if beyond:
            raise VerifyError(
                f"The tables hold offsets of {position.topic} that this cluster does not have (partition {beyond[0]}): "
                "they are of another cluster, or the topic was created anew"
            )

    def _position(self) -> Position:
        position = self._tables.position()
        if position is None:
            raise VerifyError("The job has not finished a batch yet: there is nothing to compare")
        return position

    def _round(self, group_ids: list[str]) -> list[NotCompared]:
        """Compare these groups, which are in order, once; those that could not be, or of which too little is seen."""
        left: list[NotCompared] = []
        for start in range(0, len(group_ids), _AT_ONCE):
            if start:
                self._progress(f"{start:,} of {len(group_ids):,} groups looked at")
            left += self._look(group_ids[start : start + _AT_ONCE])
        return left

    def _look(self, group_ids: list[str]) -> Iterator[NotCompared]:
        asked_at = self._clock.now()
        before = self._described(group_ids)
        if not self._all_seen:
            self._deadline += self._clock.now() - asked_at
        ends = self._brokers.end_offsets(self._position().topic)
        behind = self._wait(ends, group_ids)
        rows = self._tables.rows(group_ids[0], group_ids[-1])
        differing = [one for one in group_ids if not self._agrees(one, rows.get(one), before[one])]
        after = self._described(differing)
        for group_id in differing:
            described = before[group_id], after[group_id]
            lag = sum(behind.values()) if partition_of(group_id, len(ends)) in behind else 0
            if again := self._compare(group_id, rows.get(group_id), described, lag):
                yield NotCompared(group_id, again)

    def _described(self, group_ids: list[str]) -> dict[str, Described]:
        return dict(zip(group_ids, self._brokers.describe(group_ids), strict=True))

    def _wait(self, ends: Mapping[int, int], group_ids: list[str]) -> dict[int, int]:
        """Wait until the job has passed the ends of these groups' partitions; what is left of them when time is up."""
        needed = {partition_of(group_id, len(ends)) for group_id in group_ids}
        ends = {partition: end for partition, end in ends.items() if partition in needed}
        behind = self._position().behind(ends)
        while behind and self._in_time:
            self._progress(f"waiting for the job, which is {sum(behind.values()):,} offsets behind")
            self._clock.sleep(_PAUSE_SECONDS)
            behind = self._position().behind(ends)
        return behind

    def _agrees(self, group_id: str, row: Row | None, described: Described) -> bool:
        """Whether both sides say the same of a group; if so, it is counted."""
        if not _is_answer(described) or differences(group_id, row, described):
            return False
        self._suspected.pop(group_id, None)
        self._count(row, described)
        return True

    def _compare(
        self, group_id: str, row: Row | None, described: tuple[Described, Described], behind: int
    ) -> str | None:
        """Why the group has to be looked at again, if it has to."""
        before, after = described
        if not _is_answer(after):
            return f"the broker answered error {after['error_code']}: {after['error_message'] or 'no reason given'}"
        suspected = self._suspected.pop(group_id, None)
        found = differences(group_id, row, after)
        if not found:
            self._count(row, after)
            return None
        if behind:
            return f"the job is {behind:,} offsets behind"
        if facts_of_described(before) != facts_of_described(after):
            return "it changed whenever it was compared"
        if found == suspected:
            self._report.differences += found
            return None
        self._suspected[group_id] = found
        return "a difference was seen only once"

    def _count(self, row: Row | None, described: Described) -> None:
        self._report.agreeing += 1
        if row is not None and described["error_code"] == NO_ERROR and not tells_state(row):
            self._report.stateless += 1


def _is_answer(described: Described) -> bool:
    """It tells of the group, or that there is none; any other error tells nothing."""
    return described["error_code"] in {NO_ERROR, GROUP_ID_NOT_FOUND}
