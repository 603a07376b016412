"""What is wrong with the lag of each group, and since when: made from the rows of a pass and what was known before.

Made once for a pass, so that whoever looks at it every few seconds does not go through the rows of all partitions. A
group without anything wrong is left out.

Held: while a group rebalances, the statuses that follow from behaviour stay as they were, and so does what is said here
of them. Time counts again from the first pass after the rebalance (`settled_at`): a partition that was behind before a
deployment gets the time that others get after it.

Unknown: where the end of a log is not known, since a broker went away, nothing is known of what was wrong there. It is
not right for that reason, see `GroupLag.unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming_app.lag.model import LagRow, TopicPartition
from streaming_app.lag.status import BEHIND, CATCHING_UP, REWOUND, UNKNOWN

SLOW = "SLOW"
"""Partitions that are BEHIND, or CATCHING_UP so slowly that it takes more than six hours, for two minutes at least."""

_SLOW_CATCH_UP = 6 * 3600.0  # a lag that neither rises nor falls seems to fall so slowly every other time
_SLOW_SECONDS = 120.0
_CATCHES_UP_SECONDS = 180.0  # in a row, until that is believed
_KIND_OF = {BEHIND: SLOW, CATCHING_UP: SLOW, REWOUND: REWOUND}
_NAMED = 20


@dataclass(frozen=True, slots=True)
class WrongPartitions:
    """The partitions of one group with which the same is wrong."""

    since: float
    """Since when at least one of them has been so."""
    count: int
    named: Sequence[LagRow]
    """The first of them, by topic and partition: an order that does not change with the lag."""
    lag: int
    lag_seconds: float | None
    """Of the one with the oldest lag; None if that of none is known."""


class SlowSince(NamedTuple):
    """How long a partition has not caught up fast enough."""

    at: float
    catches_up_since: float | None
    """It does now, and has since then; None if it does not."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What is wrong with the lag of one group."""

    group_id: str
    wrong: Mapping[str, WrongPartitions] = field(default_factory=dict)
    """By what is wrong: SLOW or REWOUND."""
    is_held: bool = False
    """The group rebalances."""
    settled_at: float = 0.0
    """When the first pass after the last rebalance was; 0 if there was none since something has been wrong."""
    has_tasks: bool = False
    """Tasks are known of streams groups with a topology only."""
    catches_up: bool = False
    """All partitions that are SLOW catch up fast enough just now."""
    slow: Mapping[TopicPartition, SlowSince] = field(default_factory=dict)
    """Of each partition that is BEHIND or CATCHING_UP, or was before it became unknown."""
    unknown: frozenset[TopicPartition] = frozenset()
    """The partitions with a commit of which the status is not known."""


_NOTHING = GroupLag("")


def group_lags(rows: Iterable[LagRow], before: Mapping[str, GroupLag], now: float) -> dict[str, GroupLag]:
    """Return what is wrong with each group with which something is; `before` is the result for the pass before."""
    wrong: defaultdict[str, defaultdict[str, list[LagRow]]] = defaultdict(lambda: defaultdict(list))
    held, tasks = set(), set()
    unknown: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    for row in rows:
        group_id, kind = row.group_id, _KIND_OF.get(row.status)
        if kind is not None:
            wrong[group_id][kind].append(row)
        elif row.status == UNKNOWN and row.committed_offset is not None:
            unknown[group_id].add(_key(row))
        if row.held_since is not None:
            held.add(group_id)
        if row.task_id is not None:
            tasks.add(group_id)
    found: dict[str, GroupLag] = {}
    for group_id in wrong.keys() | unknown.keys():
        kinds, own_unknown = wrong[group_id], frozenset(unknown[group_id])
        earlier, is_held = before.get(group_id, _NOTHING), group_id in held
        slow = {_key(row): _slow_since(row, earlier, now) for row in kinds.get(SLOW, ())}
        kinds[SLOW] = [row for row in kinds.get(SLOW, ()) if now - slow[_key(row)].at >= _SLOW_SECONDS]
        found[group_id] = GroupLag(
            group_id,
            {kind: _summary(those, slow, now) for kind, those in kinds.items() if those},
            is_held,
            now if earlier.is_held and not is_held else earlier.settled_at,
            group_id in tasks,
            all(slow[_key(row)].catches_up_since is not None for row in kinds[SLOW]),
            {key: earlier.slow[key] for key in own_unknown if key in earlier.slow} | slow,
            own_unknown,
        )
    return found


def _key(row: LagRow) -> TopicPartition:
    return row.topic, row.partition


def _slow_since(row: LagRow, before: GroupLag, now: float) -> SlowSince:
    known = before.slow.get(_key(row))
    if known is None:  # the job was restarted, or the partition has just become so
        known = SlowSince(now if row.status_since is None else min(row.status_since, now), None)
    if row.status != CATCHING_UP or (row.catch_up_seconds or 0.0) > _SLOW_CATCH_UP:
        return SlowSince(known.at, None)
    since = now if known.catches_up_since is None else known.catches_up_since
    return SlowSince(now if now - since >= _CATCHES_UP_SECONDS else known.at, since)


def _summary(rows: list[LagRow], slow: Mapping[TopicPartition, SlowSince], now: float) -> WrongPartitions:
    return WrongPartitions(
        min(_since(row, slow, now) for row in rows),
        len(rows),
        tuple(sorted(rows, key=_key)[:_NAMED]),
        sum(row.lag or 0 for row in rows),
        max((row.lag_seconds for row in rows if row.lag_seconds is not None), default=None),
    )


def _since(row: LagRow, slow: Mapping[TopicPartition, SlowSince], now: float) -> float:
    if (known := slow.get(_key(row))) is not None:
        return known.at
    return now if row.status_since is None else min(row.status_since, now)
