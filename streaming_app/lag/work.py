"""Whether work waits for a group, and whether it is done: what verdicts and alerts need of the lag, once a pass.

Theory of operation
-------------------
A partition has work if a record lies beyond its committed offset. Markers of transactions and aborted records are none:
the rows say so by an age of exactly 0, and by none where it is not known what lies there. Where nothing was ever
committed, the records beyond the end that the log had when a member first had the task are work: whether those before
are is not in the log (`auto.offset.reset`).

Of each partition `Progress` is kept from pass to pass: since when it has had work at every pass, and when its offset
last moved. Neither a rebalance nor a partition whose lag is not known for a while changes that, so an outage is not
forgotten. What has not moved for longer than its patience is stalled; if its task has state and came to another member
since it last moved, it may restore that state first.

A partition that is BEHIND, or CATCHING_UP so slowly that it takes more than six hours, is slow once that has lasted for
two minutes, until it has caught up fast enough for three. While a group rebalances, the statuses that follow from
behaviour are held, and so is this: time counts again from the first pass after it (`settled_at`).

A run that begins knows no progress. It takes it from the first row of each partition: when its offset was committed,
and since when it is sure that a record waits. An outage in whose middle the job starts began at the later of the two.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streaming_app.lag.model import NO_TASKS, GroupTasks, LagRow, TopicPartition
from streaming_app.lag.status import (
    AHEAD,
    BEHIND,
    CATCHING_UP,
    LEFT_OVER,
    LOST,
    MARKER,
    RECREATED,
    REWOUND,
    STALLED,
    UNKNOWN,
)

STALLED_SECONDS = 300.0
RESTORE_SECONDS = 1800.0
_FORGETS = 0.99  # of the longest time between records, each time that records come
_NAMED = 20
_SLOW_CATCH_UP = 6 * 3600.0  # a lag that neither rises nor falls seems to fall so slowly every other time
_SLOW_SECONDS = 120.0
_CATCHES_UP_SECONDS = 180.0  # in a row, until that is believed


class SlowSince(NamedTuple):
    """How long a partition has not caught up fast enough."""

    at: float
    catches_up_since: float | None
    """It does now, and has since then; None if it does not."""


class Progress(NamedTuple):
    """What of a partition outlasts a pass. Times are seconds, by the job's clock."""

    offset: int | None
    """Committed."""
    moved_at: float
    """When it last moved; of the first one that is seen, when it was committed."""
    work_since: float | None
    """Since when there has been work at every pass; None if there is none."""
    baseline: int | None
    """Of a partition without a commit: the end of the log when a member first had it."""
    owner: str | None
    owner_since: float
    """When the first owner came since the offset last moved; before that, if there was none since."""
    first: int | None
    """The first committed offset that this run saw: the group did not begin beyond it."""
    end: int | None
    is_stalled: bool = False
    restores: bool = False
    slow: SlowSince | None = None
    """None unless it is BEHIND or CATCHING_UP, or was before its status became unknown."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions of a group with which the same is wrong."""

    since: float
    """Since when that is so of the first of them."""
    count: int
    offsets: int
    """How many offsets wait in them."""
    named: Sequence[LagRow]
    """The first of them, by topic and partition: an order that does not change with the lag."""
    lag_seconds: float | None = None
    """Of the one with the oldest lag; None if that of none is known."""
    unowned: int = 0
    """How many of them are of tasks that no member has."""
    tasks: frozenset[str | None] = frozenset()
    """Those of all of them."""


@dataclass(frozen=True, slots=True)
class GroupWork:
    """The work of one group, as of a pass. Times are seconds, by the job's clock."""

    group_id: str
    known_at: float
    """The newest pass that knew something of it; what is said here is true for then. 0: none."""
    is_blind: bool = False
    """Passes after that knew nothing, as while the partitions have no leaders."""
    seen_again_at: float | None = None
    """The first pass that knew something after those."""
    partitions: int = 0
    waiting: int = 0
    """Partitions with work."""
    offsets: int = 0
    """How many offsets wait, at least."""
    unknown: int = 0
    """Partitions of which it is not known at this pass."""
    has_commits: bool = False
    uncertain: int = 0
    """Partitions without a commit whose log has records: whether the group is to read them is not known."""
    arrived_at: float | None = None
    """When a pass last found that records had come."""
    arrival_gap: float = 0.0
    """How long it usually takes, at most, until records come again."""
    progressed_at: float | None = None
    """When an offset last moved."""
    committed_at: float | None = None
    """When the newest commit was written, by the broker's clock."""
    waits_since: float | None = None
    """When the oldest record that waits was written, or earlier."""
    oldest: Mapping[str, float] = field(default_factory=dict)
    """The same by topic."""
    stalled: Partitions | None = None
    restoring: Partitions | None = None
    slow: Partitions | None = None
    catches_up: bool = False
    """All partitions that are slow catch up fast enough just now."""
    may_be_slow: bool = False
    """Whether a partition that was slow, if only for seconds, catches up is not known, or it does not."""
    rewound: Partitions | None = None
    is_held: bool = False
    """The group rebalances."""
    settled_at: float = 0.0
    """When the first pass after the last rebalance was; 0 if this run saw none."""
    without_status: frozenset[TopicPartition] = frozenset()
    """The partitions with a commit of which the status is not known."""
    lost: int = 0
    """Offsets that the logs deleted before they were read."""
    lost_since: float | None = None
    lost_rows: Sequence[LagRow] = ()
    catch_up_seconds: float | None = None
    """Until nothing waits, if it goes on like that; None if that is not known of every partition."""
    progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    tasks: GroupTasks = NO_TASKS


def observe_work(  # noqa: PLR0913, PLR0917 - each is one thing it needs
    rows: Iterable[LagRow],
    groups: Mapping[str, GroupTasks],
    before: Mapping[str, GroupWork],
    now: float,
    allowed_lag: Callable[[str], int] = lambda _group_id: 0,
    patience: Callable[[str], float] = lambda _group_id: STALLED_SECONDS,
) -> dict[str, GroupWork]:
    """Return the work of each group that has rows; `before` is the result for the pass before.

    `patience` returns for how many seconds no offset of a partition with work may move.
    """
    by_group: defaultdict[str, list[LagRow]] = defaultdict(list)
    for row in rows:
        if row.status != LEFT_OVER:
            by_group[row.group_id].append(row)
    return {
        group_id: _group_work(
            group_id,
            those,
            groups.get(group_id, NO_TASKS),
            before.get(group_id),
            _Pass(now, allowed_lag(group_id), patience(group_id)),
        )
        for group_id, those in by_group.items()
    }


_Found = tuple[LagRow, Progress]
_SLOW = frozenset({BEHIND, CATCHING_UP})
_ANOTHER_LOG = frozenset({RECREATED, AHEAD})  # the log does not have the committed offset: what it has is work


class _Pass(NamedTuple):
    now: float
    allowed: int
    patience: float


def _group_work(
    group_id: str, rows: list[LagRow], tasks: GroupTasks, before: GroupWork | None, seen: _Pass
) -> GroupWork:
    earlier = before.progress if before else {}
    found = [(row, _progress(row, tasks, earlier.get((row.topic, row.partition)), seen)) for row in rows]
    unknown = sum(_has_work(row, one, seen.allowed) is None for row, one in found)
    if unknown == len(found) and before is not None:  # nothing is known now: what was known stays
        return before if before.is_blind else replace(before, is_blind=True)
    working = [(row, one) for row, one in found if one.work_since is not None]
    lost = [row for row in rows if row.status == LOST]
    moved = [one.moved_at for _, one in found if one.offset is not None]
    ends_moved = any((old := earlier.get((row.topic, row.partition))) and old.end != one.end for row, one in found)
    ages = [row.lag_seconds for row, _ in working if row.lag_seconds is not None]
    oldest: dict[str, float] = {}
    for row, _ in working:
        if row.lag_seconds is not None:
            oldest[row.topic] = min(oldest.get(row.topic, seen.now), seen.now - row.lag_seconds)
    catch_up = [row.catch_up_seconds for row, _ in working]
    slow = [pair for pair in found if pair[0].status in _SLOW and seen.now - _slow_at(pair) >= _SLOW_SECONDS]
    without_status = frozenset((row.topic, row.partition) for row, _ in found if _is_unknown(row))
    is_held = any(row.held_since is not None for row, _ in found)
    return GroupWork(
        group_id,
        seen.now if unknown < len(found) else 0.0,
        is_blind=unknown == len(found),
        seen_again_at=seen.now if before and before.is_blind else before.seen_again_at if before else None,
        partitions=len(found),
        waiting=len(working),
        offsets=sum(_offsets(row, one) for row, one in working),
        unknown=unknown,
        has_commits=any(row.committed_offset is not None for row in rows),
        uncertain=sum(_is_uncertain(row, one) for row, one in found),
        arrived_at=seen.now if ends_moved else before.arrived_at if before else None,
        arrival_gap=_arrival_gap(before, seen.now, came=ends_moved),
        progressed_at=max(moved, default=None),
        committed_at=max((row.committed_at for row in rows if row.committed_at is not None), default=None),
        waits_since=seen.now - max(ages) if ages else min((one.work_since or 0.0 for _, one in working), default=None),
        oldest=oldest,
        stalled=_partitions([pair for pair in working if pair[1].is_stalled and not pair[1].restores], _unmoved_since),
        restoring=_partitions([pair for pair in working if pair[1].is_stalled and pair[1].restores], _unmoved_since),
        slow=_partitions(slow, _slow_at),
        catches_up=all(one.slow is not None and one.slow.catches_up_since is not None for _, one in slow),
        may_be_slow=bool(without_status)
        or any(one.slow is not None and one.slow.catches_up_since is None for _, one in found),
        rewound=_partitions(
            [pair for pair in found if pair[0].status == REWOUND], lambda pair: _status_since(pair[0], seen.now)
        ),
        is_held=is_held,
        settled_at=seen.now if before and before.is_held and not is_held else before.settled_at if before else 0.0,
        without_status=without_status,
        lost=sum(row.lost_offsets or 0 for row in lost),
        lost_since=min((row.status_since or seen.now for row in lost), default=None),
        lost_rows=tuple(lost[:_NAMED]),
        catch_up_seconds=max(filter(None, catch_up), default=None) if all(catch_up) else None,
        progress={(row.topic, row.partition): one for row, one in found},
        tasks=tasks,
    )


def _arrival_gap(before: GroupWork | None, now: float, *, came: bool) -> float:
    if before is None or not came or before.arrived_at is None:
        return before.arrival_gap if before else 0.0
    return max(now - before.arrived_at, before.arrival_gap * _FORGETS)


def _progress(row: LagRow, tasks: GroupTasks, before: Progress | None, seen: _Pass) -> Progress:
    now, offset, owner = seen.now, row.committed_offset, row.member_id
    if before is None:
        committed_at = now if row.committed_at is None else min(now, row.committed_at)
        if row.status == STALLED and row.status_since is not None:  # it was committed again, and has not moved
            committed_at = min(committed_at, row.status_since)
        owner_since = tasks.stable_since or tasks.rebalancing_since or now
        before = Progress(offset, committed_at, None, None, owner, min(now, owner_since), offset, None)
        work_since = _waits_since(row, now)
    else:
        work_since = now if before.work_since is None else before.work_since
    moved = offset is not None and offset != before.offset
    # One that restores, ends and is followed by others that restore again has the time of the first.
    is_first_owner = owner and owner != before.owner and before.owner_since <= before.moved_at
    one = Progress(
        offset=before.offset if offset is None else offset,
        moved_at=now if moved else before.moved_at,
        work_since=None,
        baseline=_baseline(row) if before.baseline is None else before.baseline,
        owner=owner or before.owner,
        owner_since=now if is_first_owner else before.owner_since,
        first=offset if before.first is None else before.first,
        end=before.end if row.log_end_offset is None else row.log_end_offset,
        slow=_slow_since(row, before.slow, now),
    )
    has_work = _has_work(row, one, seen.allowed, rests=before.end == row.log_end_offset)
    if has_work is None:  # not known at this pass: as it was
        return one._replace(
            moved_at=before.moved_at,
            work_since=before.work_since,
            is_stalled=before.is_stalled,
            restores=before.restores,
        )
    if not has_work:
        return one
    waits_since = max(work_since, one.moved_at)
    is_stateful = row.subtopology_id in tasks.stateful
    restores = is_stateful and one.owner_since >= one.moved_at and now - one.owner_since < RESTORE_SECONDS
    return one._replace(work_since=work_since, is_stalled=now - waits_since >= seen.patience, restores=restores)


def _waits_since(row: LagRow, now: float) -> float:
    """Return since when a partition has had work, of which nothing but this row is known."""
    if row.status in _ANOTHER_LOG:
        return _status_since(row, now)
    return now - (row.lag_seconds or 0.0) if row.behind_since is None else min(now, row.behind_since)


def _slow_since(row: LagRow, known: SlowSince | None, now: float) -> SlowSince | None:
    if row.status not in _SLOW:
        return known if _is_unknown(row) else None
    if known is None:  # the job was restarted, or the partition has just become so
        known = SlowSince(_status_since(row, now), None)
    if row.status != CATCHING_UP or (row.catch_up_seconds or 0.0) > _SLOW_CATCH_UP:
        return SlowSince(known.at, None)
    since = now if known.catches_up_since is None else known.catches_up_since
    return SlowSince(now if now - since >= _CATCHES_UP_SECONDS else known.at, since)


def _is_unknown(row: LagRow) -> bool:
    return row.status == UNKNOWN and row.committed_offset is not None


def _status_since(row: LagRow, now: float) -> float:
    return now if row.status_since is None else min(row.status_since, now)


def _slow_at(pair: _Found) -> float:
    return pair[1].slow.at if pair[1].slow else math.inf


def _unmoved_since(pair: _Found) -> float:
    return max(pair[1].work_since or 0.0, pair[1].moved_at)


def _baseline(row: LagRow) -> int | None:
    return row.log_end_offset if row.committed_offset is None and row.member_id is not None else None


def _has_work(row: LagRow, one: Progress, allowed: int, *, rests: bool = True) -> bool | None:
    """Tell whether work waits; None: not known. `rests`: the end of the log did not move."""
    if row.log_end_offset is None:
        return None
    if row.status in _ANOTHER_LOG:
        return row.log_end_offset > (row.log_start_offset or 0)
    if row.committed_offset is None:
        if one.offset is not None:
            return None  # its offset was deleted, or has expired
        ahead = 0 if one.baseline is None else row.log_end_offset - one.baseline
    elif row.lag is None:
        return None
    else:
        return _is_work(row, allowed, rests=rests)
    return ahead > allowed and (ahead > MARKER or not rests)


def _is_work(row: LagRow, allowed: int, *, rests: bool) -> bool | None:
    if (row.lag or 0) <= allowed or (row.lag_seconds == 0 and row.lag_seconds_is_lower_bound is False):
        return False
    return None if row.lag_seconds is None and rests else True


def _is_uncertain(row: LagRow, one: Progress) -> bool:
    has_records = (row.log_end_offset or 0) > (row.log_start_offset or 0)
    return row.committed_offset is None and one.work_since is None and has_records


def _offsets(row: LagRow, one: Progress) -> int:
    if row.lag is not None:
        return row.lag
    return max(0, (one.end or 0) - (one.baseline or 0)) if one.offset is None else 0


def _partitions(found: Sequence[_Found], since: Callable[[_Found], float]) -> Partitions | None:
    if not found:
        return None
    return Partitions(
        min(map(since, found)),
        len(found),
        sum(_offsets(row, one) for row, one in found),
        tuple(row for row, _ in sorted(found, key=lambda pair: pair[0][1:3])[:_NAMED]),
        max((row.lag_seconds for row, _ in found if row.lag_seconds is not None), default=None),
        sum(row.is_unowned for row, _ in found),
        frozenset(row.task_id for row, _ in found),
    )


def retention_seconds(facts: Iterable[tuple[str, str, str | None]]) -> dict[str, float]:
    """Return the retention by topic from subjects, names and values; compacted topics delete nothing by its age."""
    values = {(topic, name): value for topic, name, value in facts}
    return {
        topic: float(value) / 1000
        for (topic, name), value in values.items()
        if name == "retention.ms" and value and float(value) > 0
        if "delete" in (values.get((topic, "cleanup.policy")) or "delete")
    }
