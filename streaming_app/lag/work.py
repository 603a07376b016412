"""Whether work waits for a group, and whether the group does it: the input of verdicts and alerts, once a pass.

Partitions that the topology does not read are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import NO_TASKS, GroupPass, GroupTasks, LagRow
from streaming_app.lag.partition_progress import STALLED_SECONDS, Standing
from streaming_app.lag.statuses import LEFT_OVER, LOST, REWOUND, UNKNOWN

_FORGETS = 0.99  # the factor by which the longest time between records falls, each time that records come
_NAMED = 20


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions of a group that have the same alert."""

    since: float
    """Since when the first of them has it."""
    count: int
    offsets: int
    """How many offsets wait in them, or were lost."""
    named: Sequence[LagRow]
    """The first 20 by topic and partition: an order that does not change with the lag."""
    unowned: int = 0
    """How many of them belong to tasks that no member has."""
    tasks: frozenset[str | None] = frozenset()
    """The tasks of all of them."""
    newest: float = 0.0
    """Since when the last of them has it."""
    is_older: bool = False
    """Whether the alert may be older than `since`: it existed when the job first looked."""


@dataclass(frozen=True, slots=True)
class GroupWork:
    """The work of one group, as of a pass. Times are seconds, by the job's clock."""

    group_id: str
    known_at: float
    """The newest pass that knew about any partition: the other fields are of this pass. 0: there was none."""
    complete_at: float = 0.0
    """The newest pass that knew about every partition. 0: there was none."""
    is_blind: bool = False
    """Whether later passes knew about no partition, for example because the partitions have no leaders."""
    seen_again_at: float | None = None
    """The first pass that knew about a partition after such passes."""
    partitions: int = 0
    waiting: int = 0
    """The number of partitions where records wait."""
    offsets: int = 0
    """How many offsets wait, at least."""
    unknown: int = 0
    """The number of partitions where this pass does not know whether records wait."""
    has_commits: bool = False
    uncertain: int = 0
    """The number of partitions without a commit whose log has records: the group may or may not have to read them."""
    arrived_at: float | None = None
    """The newest pass that found new records."""
    arrival_gap: float = 0.0
    """The usual longest time without new records."""
    progressed_at: float | None = None
    """When an offset last moved."""
    waits_since: float | None = None
    """When the oldest waiting record was written, or an earlier time."""
    oldest: Mapping[str, float] = field(default_factory=dict)
    """Topic -> when its oldest waiting record was written."""
    stalled: Partitions | None = None
    restoring: Partitions | None = None
    rewound: Partitions | None = None
    lost: Partitions | None = None
    """The partitions whose offsets were deleted before the group read them."""
    held: Mapping[TopicPartition, float] = field(default_factory=dict)
    """The partitions where it has read everything before an open transaction -> when that began there."""
    without_status: frozenset[TopicPartition] = frozenset()
    """The partitions with a commit and with status UNKNOWN."""
    catch_up_seconds: float | None = None
    """In how many seconds nothing waits in the partitions whose oldest record is late, if the rate stays the same. None
    if that is not known for all of them."""
    progress: Mapping[TopicPartition, Standing] = field(default_factory=dict)
    tasks: GroupTasks = NO_TASKS
    patience: float = STALLED_SECONDS
    """How many seconds an offset may stay the same while records wait."""


NO_WORK = GroupWork("", 0.0)


def group_work(
    group_id: str, standings: Iterable[Standing], one_pass: GroupPass, before: GroupWork
) -> GroupWork | None:
    """Return the work of a group after a pass, from that after the pass before. None: the group reads nothing."""
    now, tasks, patience = one_pass.now, one_pass.tasks, one_pass.patience
    found = [one for one in standings if one.row.offset_status != LEFT_OVER]
    if not found:
        return None
    unknown = sum(one.waits is None for one in found)
    is_blind = unknown == len(found)
    if is_blind and before is not NO_WORK:  # this pass knows nothing, so the values of the last one stay
        return before if before.is_blind else replace(before, is_blind=True)
    committed = [one for one in found if one.row.committed_offset is not None]
    never = [one for one in found if one.row.committed_offset is None and one.waits_since is None]
    working = [one for one in found if one.waits_since is not None]
    restoring = [one for one in working if one.may_restore(tasks.stateful)]
    stalled = [one for one in working if one.is_stalled(patience) and not one.may_restore(tasks.stateful)]
    written: dict[str, float] = {}
    for row in (one.row for one in working):
        if row.lag_seconds is not None:
            written[row.topic] = min(written.get(row.topic, now), now - row.lag_seconds)
    arrived_at, gap = max((one.arrived_at for one in found if one.arrived_at), default=None), before.arrival_gap
    if arrived_at is None or (before.arrived_at is not None and arrived_at <= before.arrived_at):
        arrived_at = before.arrived_at
    elif before.arrived_at is not None:
        gap = max(arrived_at - before.arrived_at, gap * _FORGETS)
    catch_up = [one.row.catch_up_seconds for one in working if one.late_since is not None]
    return GroupWork(
        group_id,
        0.0 if is_blind else now,
        complete_at=before.complete_at if unknown else now,
        is_blind=is_blind,
        seen_again_at=now if before.is_blind else before.seen_again_at,
        partitions=len(found),
        waiting=len(working),
        offsets=sum(one.unread for one in working),
        unknown=unknown,
        has_commits=bool(committed),
        uncertain=sum((one.row.log_end_offset or 0) > (one.row.log_start_offset or 0) for one in never),
        arrived_at=arrived_at,
        arrival_gap=gap,
        progressed_at=max((one.moved_at for one in found if one.offset is not None), default=None),
        waits_since=min(written.values() or (one.waits_since or 0.0 for one in working), default=None),
        oldest=written,
        stalled=_partitions(stalled, "unmoved_since"),
        restoring=_partitions(restoring, "unmoved_since"),
        rewound=_partitions([one for one in found if one.row.offset_status == REWOUND], "rewound_at"),
        lost=_partitions([one for one in found if one.row.offset_status == LOST], "status_since", "lost"),
        held={one.row[1:3]: one.held_since for one in found if one.held_since is not None},
        without_status=frozenset(one.row[1:3] for one in committed if one.row.offset_status == UNKNOWN),
        catch_up_seconds=max(filter(None, catch_up), default=None) if all(catch_up) else None,
        progress={one.row[1:3]: one for one in found},
        tasks=tasks,
        patience=patience,
    )


def _partitions(found: Sequence[Standing], since: str, offsets: str = "unread") -> Partitions | None:
    """Return a summary of these partitions. `since` and `offsets` are names of attributes of `Standing`."""
    if not found:
        return None
    rows, since_of = [one.row for one in found], attrgetter(since)
    first = min(found, key=since_of)
    return Partitions(
        since_of(first),
        len(found),
        sum(map(attrgetter(offsets), found)),
        sorted(rows, key=lambda row: (row.topic, row.partition))[:_NAMED],
        sum(row.is_unowned for row in rows),
        frozenset(row.task_id for row in rows),
        max(map(since_of, found)),
        first.is_older(since_of(first)),
    )


def retention_seconds(facts: Iterable[tuple[str, str, str | None]]) -> dict[str, float]:
    """Return topic -> retention in seconds, from (topic, config name, value). Topics without `delete` have none."""
    values = {(topic, name): value for topic, name, value in facts}
    return {
        topic: float(value) / 1000
        for (topic, name), value in values.items()
        if name == "retention.ms" and value and float(value) > 0
        if "delete" in (values.get((topic, "cleanup.policy")) or "delete")
    }
