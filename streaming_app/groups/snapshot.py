"""A compact form of a group's row, for the alert rules and the metrics, and whom its rebalance waits for.

Only data, and the functions that read it from a row of `groups`. No clock: callers pass the time.

Wrong clocks
------------
The records of a group have the times of its coordinator's clock, and the next coordinator may have another one. With a
clock that is an hour behind, a restart of half a minute looks like one of an hour. The job knows better: what it reads
now was written before now, and after the last time that it had read everything. A time outside of these bounds is moved
to the nearer one. What was read from the tables after a start has no bounds; only times ahead of now are known to be
wrong.

Newcomers
---------
Everything that has a limit, such as series of metrics and notifications, is a place where a flood of groups could push
out others. A tenant chooses the ids of its groups and the text in them, but not when they were first seen. So the
oldest groups keep their places, and newcomers beyond the limits are counted. A group whose creation the log does not
prove was there before, and counts as old.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.groups.state_rules import STABLE_MEMBER
from streaming_app.text import EPOCH, first_of, host_of

NEW_FOR = timedelta(days=1)
_TOLERANCE = timedelta(minutes=2)  # for batches that take long, and clocks that are a little off: nobody notices
REBALANCING = ("Assigning", "Reconciling")
AWAY_EPOCH = -2
NOT_REVOKING, AWAY, BEHIND, WAITING = "UNREVOKED_TASKS", "AWAY", "BEHIND", "UNRELEASED_TASKS"
_NAMED_MEMBERS = 20  # at most, those with the oldest records
_NAMED_TASKS = 50  # of one member
_TASKS_IN_TEXT = 5

_OBLIGATIONS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    NOT_REVOKING: ("has not revoked {}", lambda task: task["pending_revocation"]),
    AWAY: ("left temporarily and still owns {}", lambda task: task["current"]),
    BEHIND: (
        "has not taken the newest assignment, which concerns {}",
        lambda task: task["current"] != task["target"],
    ),
    WAITING: (
        "waits for {}, which no unsettled member owns",
        lambda task: task["target"] and not task["current"],
    ),
}
"""State of an unsettled member -> what it has not done, and whether it holds up, or waits for, this task of its.

In the order in which members are named.
"""
_ORDER = tuple(_OBLIGATIONS)


class UnsettledMember(NamedTuple):
    """A member that keeps a group from being Stable, and the tasks that it holds up or waits for."""

    member_id: str
    state: str
    """UNREVOKED_TASKS: it is to revoke tasks; AWAY: a static member that left temporarily; BEHIND: it has not taken the
    newest assignment yet; UNRELEASED_TASKS: it waits for tasks that other members still own."""
    client_id: str | None
    client_host: str | None
    process_id: str | None
    instance_id: str | None
    updated_at: datetime | None
    """Time of its newest record."""
    rebalance_timeout_ms: int | None
    tasks: tuple[str, ...]
    """In the notation of Kafka's logs, such as 0_3; at most 50."""
    task_count: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A streams group as in its row of `groups`; the fields are columns of that table.

    The last two are computed from the row's members, and only while the group is in one of the `REBALANCING` states.
    """

    group_id: str
    group_type: str
    state: str
    state_since: datetime | None
    group_epoch: int | None
    assignment_epoch: int | None
    assigned_at: datetime | None
    topology_epoch: int | None
    validated_topology_epoch: int
    stored_description_epoch: int
    failed_description_epoch: int
    description_status: str
    description_since: datetime | None
    description_stale_since: datetime | None
    first_described_at: datetime | None
    not_ready_reason: str | None
    solicitable: bool
    unsolicited_pushes: int
    last_unsolicited_push_at: datetime | None
    member_count: int
    members_since: datetime | None
    stale_member_count: int
    first_seen_at: datetime | None
    updated_at: datetime | None
    last_offset: int
    stale_members_since: datetime | None = None
    set_aside_at: datetime | None = None
    set_aside_reason: str | None = None
    missing_topics: Sequence[str] | None = None
    """The source topics that were missing when it was last NotReady; None once it is ready."""
    unsettled: tuple[UnsettledMember, ...] = ()
    """The members that are not settled: those that others wait for first, those with the oldest records first."""
    unsettled_count: int = 0
    """How many there are: `unsettled` has at most 20."""
    moved_times: tuple[tuple[datetime, datetime], ...] = field(default=(), compare=False)
    """Of times that a wrong clock wrote, what was written and what it is here."""


COLUMNS = tuple(f.name for f in fields(GroupSnapshot) if f.name not in ("unsettled", "unsettled_count", "moved_times"))
"""The columns of `groups` that `group_snapshot` needs; also `members` and `assignments`, for groups in a `REBALANCING`
state: the fields `MEMBER_FIELDS` of unsettled members are enough, and the assignments of those."""
_TIMES = tuple(one.name for one in fields(GroupSnapshot) if str(one.type).startswith("datetime"))
_KEPT_FIELDS = tuple(name for name in UnsettledMember._fields if name not in ("state", "tasks", "task_count"))
MEMBER_FIELDS = (*_KEPT_FIELDS, "member_state", "member_epoch")


class WrittenBetween(NamedTuple):
    """When records were written, by the clock of the job; `earliest` is None where it is not known."""

    earliest: datetime | None
    latest: datetime

    def correct(self, time: datetime) -> datetime:
        """Return the time, or the nearer bound if the clock that wrote it is clearly wrong."""
        if time > self.latest + _TOLERANCE:
            return self.latest
        if self.earliest is not None and time < self.earliest - _TOLERANCE:
            return self.earliest
        return time


def correct_snapshot(written: GroupSnapshot, before: GroupSnapshot | None, bounds: WrittenBetween) -> GroupSnapshot:
    """Correct the times that are new since the corrected snapshot before; the others keep their correction."""
    known = {**{time: time for time in _times(before)}, **dict(before.moved_times)} if before else {}
    moved = {time: new for time in _times(written) if (new := known.get(time) or bounds.correct(time)) != time}
    if not moved:
        return written
    changes: dict[str, Any] = {name: moved[time] for name in _TIMES if (time := getattr(written, name)) in moved}
    members = (
        one._replace(updated_at=one.updated_at and moved.get(one.updated_at, one.updated_at))
        for one in written.unsettled
    )
    return replace(written, **changes, unsettled=tuple(members), moved_times=tuple(moved.items()))


def _times(snapshot: GroupSnapshot) -> Iterator[datetime]:
    own = (getattr(snapshot, name) for name in _TIMES)
    return filter(None, (*own, *(member.updated_at for member in snapshot.unsettled)))


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    """Yield the keys whose values are not the same objects as before, those that are gone last.

    A mapping that is the same object has not changed: of a million groups nothing is looked at.
    """
    if before is now:
        return
    known = before.get
    found = [key for key, value in now.items() if known(key) is not value]
    yield from found
    if len(now) - sum(key not in before for key in found) < len(before):
        yield from sorted(before.keys() - now.keys())


def is_newcomer(group: GroupSnapshot, now: datetime) -> bool:
    """Return whether a group is known for less than a day."""
    return group.first_seen_at is not None and now - group.first_seen_at < NEW_FOR


def age(group: GroupSnapshot) -> tuple[datetime, str]:
    """Return the key of the order in which groups come: the oldest first."""
    return group.first_seen_at or EPOCH, group.group_id


def select(groups: Iterable[GroupSnapshot], most: int) -> list[GroupSnapshot]:
    """Return so many of the groups at most: the oldest."""
    chosen = list(groups)
    return chosen if len(chosen) <= most else sorted(chosen, key=age)[:most]


def ranks(groups: Mapping[str, GroupSnapshot], group_ids: Iterable[str], now: datetime) -> dict[str, int]:
    """Return the place of each newcomer among these groups, from 1 on; older groups have none."""
    wanted = (groups[one] for one in group_ids if one in groups)
    new = sorted((group for group in wanted if is_newcomer(group, now)), key=age)
    return {group.group_id: place for place, group in enumerate(new, 1)}


def group_snapshot(row: Mapping[str, Any]) -> GroupSnapshot:
    """Return the snapshot of a row of `groups`, whose `members` and `assignments` may be missing.

    `unsettled_count` is how many members are unsettled, if the row has it and not all of them.
    """
    is_rebalancing, settled = row["state"] in REBALANCING, (STABLE_MEMBER, row["assignment_epoch"])
    tasks: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for task in (row.get("assignments") or ()) if is_rebalancing else ():
        tasks[task["member_id"]].append(task)
    unsettled = [
        _unsettled_member(member, tasks[member["member_id"]])
        for member in ((row.get("members") or ()) if is_rebalancing else ())
        if (member["member_state"], member["member_epoch"]) != settled
    ]
    unsettled.sort(key=lambda one: (_ORDER.index(one.state), one.updated_at or EPOCH, one.member_id))
    return GroupSnapshot(
        **{name: row[name] for name in COLUMNS},
        unsettled=tuple(unsettled[:_NAMED_MEMBERS]),
        unsettled_count=row.get("unsettled_count") or len(unsettled),
    )


def awaited_members(group: GroupSnapshot) -> tuple[UnsettledMember, ...]:
    """Return the members that the group waits for, those with the oldest records first.

    Members that only wait for tasks count if nobody else is there to wait for.
    """
    return tuple(member for member in group.unsettled if member.state != WAITING) or group.unsettled


def describe_obligation(member: UnsettledMember) -> str:
    """Return what the member has not done: `has not revoked tasks 0_1, 0_2`."""
    names = first_of(member.tasks, _TASKS_IN_TEXT, member.task_count)
    text, _ = _OBLIGATIONS[member.state]
    return text.format(f"{'task' if member.task_count == 1 else 'tasks'} {names or 'none'}")


def member_details(member: UnsettledMember) -> dict[str, object]:
    """Return everything known of the member, for the details of a finding and for JSON; nothing is null."""
    details = member._asdict() | {"tasks": list(member.tasks)}
    details["host"], updated_at = details.pop("client_host"), details.pop("updated_at")
    details["newest_record"] = updated_at and updated_at.isoformat()
    return {name: value for name, value in details.items() if value is not None}


def _unsettled_member(member: Mapping[str, Any], tasks: Iterable[Mapping[str, Any]]) -> UnsettledMember:
    state = AWAY if member["member_epoch"] == AWAY_EPOCH else member["member_state"]
    state = state if state in _OBLIGATIONS else BEHIND
    _, holds_up = _OBLIGATIONS[state]
    ids = sorted((task["subtopology_id"], task["partition"]) for task in tasks if holds_up(task))
    names = tuple(f"{subtopology_id}_{partition}" for subtopology_id, partition in ids[:_NAMED_TASKS])
    kept = {name: member[name] for name in _KEPT_FIELDS} | {"client_host": host_of(member["client_host"])}
    return UnsettledMember(**kept, state=state, tasks=names, task_count=len(ids))
