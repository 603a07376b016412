"""A compact form of a group's row for verdicts, alert rules and metrics, with the members that a rebalance waits for.

Only data, and the functions that read it from a row of `groups`. No clock: callers pass the time.

Wrong clocks
------------
Records have timestamps of the coordinator's clock, and the clock of the next coordinator may differ. If it is an hour
behind, a restart of half a minute seems to take an hour. The job knows bounds: a record that it reads now was written
before now, and after the last time when it had read the whole log. A timestamp outside of these bounds is replaced by
the nearer bound. Rows that the job reads from the tables at its start have no lower bound: only timestamps in the
future are known to be wrong.

Newcomers
---------
Some resources are limited, such as series of metrics and notifications. Without a rule, a flood of new groups could
take the places of others. A tenant chooses the ids of its groups and their text, but not when they were first seen. So
the oldest groups keep their places, and the job counts newcomers beyond the limit. If the log does not prove the
creation of a group, the group counts as old.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

from typing_extensions import Self

from streaming_app.groups.group import CLASSIC, LASTING_ERRORS, STREAMS
from streaming_app.groups.state_rules import EMPTY, STABLE_MEMBER
from streaming_app.text import EPOCH, first_of, host_of

T = TypeVar("T")

NEW_FOR = timedelta(days=1)
_STEPS = 20  # a minute or two of evaluations
_TOLERANCE = timedelta(minutes=2)  # for long batches, and for clocks that are slightly wrong
REBALANCING = ("Assigning", "Reconciling")
AWAY_EPOCH = -2
NOT_REVOKING, AWAY, BEHIND, WAITING = "UNREVOKED_TASKS", "AWAY", "BEHIND", "UNRELEASED_TASKS"
_NAMED_MEMBERS = 20  # the members with the oldest records are named, up to this number
_NAMED_TASKS = 50  # named tasks of one member
_TASKS_IN_TEXT = 5

_OBLIGATIONS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    NOT_REVOKING: ("has not revoked {}", lambda task: task["pending_revocation"]),
    AWAY: ("left temporarily and still owns {}", lambda task: task["current"]),
    BEHIND: ("has not taken the newest assignment, which concerns {}", lambda task: task["current"] != task["target"]),
    WAITING: ("waits for {}, which no other member still owns", lambda task: task["target"] and not task["current"]),
}
"""State of an unsettled member -> what it has not done, and whether a task is one that it delays or waits for.

Members are named in the order of these states.
"""
_ORDER = tuple(_OBLIGATIONS)


class UnsettledMember(NamedTuple):
    """A member because of which a group is not Stable, and the tasks that it delays or waits for."""

    member_id: str
    state: str
    """UNREVOKED_TASKS: it has to revoke tasks. AWAY: a static member that left temporarily. BEHIND: it has not taken
    the newest assignment yet. UNRELEASED_TASKS: it waits for tasks that other members still own."""
    client_id: str | None
    client_host: str | None
    process_id: str | None
    instance_id: str | None
    updated_at: datetime | None
    rebalance_timeout_ms: int | None
    tasks: tuple[str, ...]
    """Tasks in the notation of Kafka's logs, such as 0_3; at most 50."""
    task_count: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group of Kafka Streams. The fields are columns of `groups`, except the last three.

    With the classic protocol what only streams groups have is None, and the state is Unknown while it has members.

    `unsettled` and `unsettled_count` come from the row's members, only while the group is in a `REBALANCING` state.
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
    metadata_at: datetime | None = None
    readiness_recorded: bool = False
    set_aside_at: datetime | None = None
    set_aside_reason: str | None = None
    missing_topics: Sequence[str] | None = None
    """The source topics that were missing when it was last NotReady; None once it is ready."""
    protocol: str = STREAMS
    assignment_error: int | None = None
    unsettled: tuple[UnsettledMember, ...] = ()
    """At most 20 members that are not settled, in the order of `_OBLIGATIONS`, those with the oldest records first."""
    unsettled_count: int = 0
    """The number of all members that are not settled."""
    moved_times: tuple[tuple[datetime, datetime], ...] = field(default=(), compare=False)
    """Pairs of a time that a wrong clock wrote, and the corrected time. Also those of a time that was written so, and
    that another one was corrected to."""

    @property
    def is_of_other_type(self) -> bool:
        """Whether a group of other clients has its id now."""
        return self.group_type != self.protocol


COLUMNS = tuple(f.name for f in fields(GroupSnapshot) if f.name not in ("unsettled", "unsettled_count", "moved_times"))
"""The columns of `groups` that `group_snapshot` needs. For groups in a `REBALANCING` state it also needs `members` and
`assignments`: of unsettled members only, and of `members` only the fields `MEMBER_FIELDS`."""
_TIMES = tuple(one.name for one in fields(GroupSnapshot) if str(one.type).startswith("datetime"))
_KEPT_FIELDS = tuple(name for name in UnsettledMember._fields if name not in ("state", "tasks", "task_count"))
MEMBER_FIELDS = (*_KEPT_FIELDS, "member_state", "member_epoch")


class WrittenBetween(NamedTuple):
    """Bounds of the time when records were written, by the job's clock; `earliest` is None if it is not known."""

    earliest: datetime | None
    latest: datetime

    def correct(self, time: datetime) -> datetime:
        """Return the time, or the nearer bound if the time is outside of the bounds by more than the tolerance."""
        if time > self.latest + _TOLERANCE:
            return self.latest
        if self.earliest is not None and time < self.earliest - _TOLERANCE:
            return self.earliest
        return time


def correct_snapshot(written: GroupSnapshot, before: GroupSnapshot | None, bounds: WrittenBetween) -> GroupSnapshot:
    """Return `written` with corrected times. A time that the corrected snapshot `before` has keeps its correction."""
    known = dict(before.moved_times) if before else {}
    corrected = set(known.values())
    known = {time: time for time in (_times(before) if before else ()) if time not in corrected} | known
    new = {time: known.get(time) or bounds.correct(time) for time in _times(written)}
    moved = {time: one for time, one in new.items() if one != time}
    if not moved:
        return written
    changes: dict[str, Any] = {name: moved[time] for name in _TIMES if (time := getattr(written, name)) in moved}
    members = (
        one._replace(updated_at=one.updated_at and moved.get(one.updated_at, one.updated_at))
        for one in written.unsettled
    )
    written_so = {time: time for time in new if time in moved.values() and time not in moved}
    pairs = tuple((moved | written_so).items())
    return replace(written, **changes, unsettled=tuple(members), moved_times=pairs)


def _times(snapshot: GroupSnapshot) -> Iterator[datetime]:
    own = (getattr(snapshot, name) for name in _TIMES)
    return filter(None, (*own, *(member.updated_at for member in snapshot.unsettled)))


class Versions(dict[str, T]):
    """A mapping that nobody changes. `after` returns the next one, which knows in which keys it differs from this one.

    So nobody compares a million groups to find the fifty of a batch.
    """

    __slots__ = ("number", "steps")

    def __init__(self, values: Mapping[str, T] | Iterable[tuple[str, T]] = ()) -> None:
        super().__init__(values)
        self.number = object()
        self.steps: tuple[tuple[object, Collection[str]], ...] = ()
        """Of the last mappings before, the oldest first: the number, and the keys in which the next one differs."""

    def __setitem__(self, key: str, value: T) -> NoReturn:
        """Raise TypeError."""
        raise TypeError("a mapping that nobody changes: call after")

    def after(self, changes: Mapping[str, T], removed: Iterable[str] = ()) -> Self:
        """Return a mapping with these changes, without the removed keys."""
        new = type(self)(self)
        new.update(changes)
        gone = [key for key in removed if new.pop(key, None) is not None]
        new.steps = (*self.steps[1 - _STEPS :], (self.number, [*changes, *gone]))
        return new

    def keys_since(self, before: object) -> Collection[str] | None:
        """Return all keys that may differ from those of another mapping; None if that is not known."""
        numbers = [number for number, _ in self.steps]
        if not isinstance(before, Versions) or before.number not in numbers:
            return None
        return dict.fromkeys(key for _, keys in self.steps[numbers.index(before.number) :] for key in keys)


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    """Yield the keys whose values are not the same objects as before; removed keys come last.

    If both mappings are the same object, or `Versions` of which one came from the other a short time before, this takes
    no time, also for a million groups.
    """
    if before is now:
        return
    known = before.get
    if (keys := now.keys_since(before) if isinstance(now, Versions) else None) is not None:
        yield from [key for key in keys if key in now and known(key) is not now[key]]
        yield from sorted(key for key in keys if key not in now and key in before)
        return
    found = [key for key, value in now.items() if known(key) is not value]
    yield from found
    if len(now) - sum(key not in before for key in found) < len(before):
        yield from sorted(before.keys() - now.keys())


def is_newcomer(group: GroupSnapshot, now: datetime) -> bool:
    """Return whether a group was first seen less than a day ago."""
    return group.first_seen_at is not None and now - group.first_seen_at < NEW_FOR


def age(group: GroupSnapshot) -> tuple[datetime, str]:
    """Return a sort key: the oldest group first."""
    return group.first_seen_at or EPOCH, group.group_id


def select(groups: Iterable[GroupSnapshot], most: int) -> list[GroupSnapshot]:
    """Return the oldest groups, at most `most`."""
    chosen = list(groups)
    return chosen if len(chosen) <= most else sorted(chosen, key=age)[:most]


def ranks(groups: Mapping[str, GroupSnapshot], group_ids: Iterable[str], now: datetime) -> dict[str, int]:
    """Return the rank of each newcomer among these groups, from 1 on, the oldest first. Older groups have none."""
    wanted = (groups[one] for one in group_ids if one in groups)
    new = sorted((group for group in wanted if is_newcomer(group, now)), key=age)
    return {group.group_id: place for place, group in enumerate(new, 1)}


def group_snapshot(row: Mapping[str, Any]) -> GroupSnapshot:
    """Return the snapshot of a row of `groups`, which may lack `members` and `assignments`.

    If the row has only some of the members, its key `unsettled_count` is the number of all that are unsettled.
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
        **{name: row[name] for name in COLUMNS} | {"protocol": row["protocol"] or STREAMS},
        unsettled=tuple(unsettled[:_NAMED_MEMBERS]),
        unsettled_count=row.get("unsettled_count") or len(unsettled),
    )


def shown_at(group: GroupSnapshot) -> datetime | None:
    """Return when a record showed the state that the group has: it may have it for longer.

    Brokers rewrite the other records of a group without members, when they clean up its description.
    """
    return (group.metadata_at if group.state == EMPTY else None) or group.updated_at


def gave_up(group: GroupSnapshot) -> bool:
    """Return whether the last members left while the group was NotReady: an Empty group keeps the epochs of then.

    With the classic protocol: after their leader had told them an error that does not end by itself.
    """
    if group.protocol == CLASSIC:
        return group.state == EMPTY and group.assignment_error in LASTING_ERRORS
    epochs = group.topology_epoch, group.validated_topology_epoch
    return group.state == EMPTY and group.readiness_recorded and None not in epochs and epochs[0] != epochs[1]


def awaited_members(group: GroupSnapshot) -> tuple[UnsettledMember, ...]:
    """Return the members that the rebalance waits for, those with the oldest records first.

    Members that wait for tasks themselves are returned only if there are no others.
    """
    return tuple(member for member in group.unsettled if member.state != WAITING) or group.unsettled


def describe_obligation(member: UnsettledMember) -> str:
    """Return what the member has not done, such as `has not revoked tasks 0_1, 0_2`."""
    names = first_of(member.tasks, _TASKS_IN_TEXT, member.task_count)
    text, _ = _OBLIGATIONS[member.state]
    return text.format(f"{'task' if member.task_count == 1 else 'tasks'} {names or 'none'}")


def member_details(member: UnsettledMember) -> dict[str, object]:
    """Return all known facts about the member as JSON values without null, for the evidence of a verdict."""
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
