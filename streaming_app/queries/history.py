"""The answers of `history`: events of a group, which member had a task at which time, and a group at a past time.

All come from `group_events` alone, so they also work for deleted groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from streaming_app.errors import WarehouseError
from streaming_app.queries.groups import find_groups
from streaming_app.tables.reader import Row, WarehouseReader, of_group, quote, time_literal
from streaming_app.text import EPOCH, utc_iso

Event = Row
"""A row of `group_events`."""

_ASSIGNMENT, _JOINED, _LEFT, _DELETED = "assignment", "member_joined", "member_left", "deleted"
_GROUP_VALUES = (
    "state",
    "group_epoch",
    "assignment_epoch",
    "topology_epoch",
    "description_status",
    "not_ready_reason",
)
_COLUMNS = "at, kind, member_id, client_host, instance_id, old, new, cause"


@dataclass
class MemberAt:
    """A member of a group at a time, as far as the events say."""

    member_id: str
    client_id: str | None = None
    client_host: str | None = None
    instance_id: str | None = None
    joined_at: datetime | None = None
    tasks: str | None = None
    """As in `group_events`: ``active 0_0,0_1; standby 1_2``; None for no tasks."""
    tasks_since: datetime | None = None


@dataclass
class GroupAt:
    """A group at a time; a value is None if there was none, or no event has it."""

    values: dict[str, str | None] = field(default_factory=lambda: dict.fromkeys(_GROUP_VALUES))
    members: dict[str, MemberAt] = field(default_factory=dict)
    deleted_at: datetime | None = None
    unowned: Sequence[str] = ()
    """The tasks that no member had as active, as `unowned_tasks` returns them."""

    def apply(self, event: Event) -> None:
        """Change the group as the event says."""
        kind, member_id = event["kind"], event["member_id"]
        if kind in self.values:
            self.values[kind] = event["new"]
        elif kind == _DELETED:
            self.deleted_at = event["at"]
            self.members.clear()
        elif kind == "created":
            self.deleted_at = None
        elif kind == _JOINED:
            member = self._member(member_id)
            member.client_id, member.joined_at = event["new"], event["at"]
            member.client_host, member.instance_id = event["client_host"], event["instance_id"]
        elif kind == _LEFT:
            self.members.pop(member_id, None)
        elif kind == _ASSIGNMENT and (event["new"] is not None or member_id in self.members):
            member = self._member(member_id)
            member.tasks, member.tasks_since = event["new"], event["at"]

    def _member(self, member_id: str) -> MemberAt:
        return self.members.setdefault(member_id, MemberAt(member_id))


@dataclass
class TaskSpell:
    """A time for which a member had a task in a role; `until` is None if it still has it."""

    task: str
    role: str
    member_id: str
    client_host: str | None
    since: datetime | None
    until: datetime | None = None


def read_events(reader: WarehouseReader, cluster: str, group_id: str, *, until: datetime | None = None) -> list[Event]:
    """Return the events of a group, oldest first; with `until` those up to this time, which may be none.

    Raises WarehouseError if there is no such group, or, without `until`, if it has no events.
    """
    limit = f"AND (at IS NULL OR at <= {time_literal(until)})" if until else ""
    events = reader.rows(
        f"SELECT {_COLUMNS} FROM group_events e WHERE {of_group(cluster, group_id)} "  # noqa: S608 - quoted
        f"AND void IS NOT TRUE {limit} ORDER BY at NULLS FIRST, e.offset, kind <> 'created', kind"
    )
    if not events and until is None:
        find_groups(reader, cluster, [group_id])
        raise WarehouseError(f"There are no events of group {group_id!r} within the retention")
    return events


MAX_ASSIGNMENTS = 5_000
"""The most events of a group that `read_assignments` returns."""


def read_assignments(
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime
) -> list[Event] | None:
    """Return the events that say who had which task from `begin` to `end`, oldest first, and the last ones before.

    None if there are more than `MAX_ASSIGNMENTS`. Raises WarehouseError.
    """
    kinds = ", ".join(map(quote, (_ASSIGNMENT, _LEFT, _DELETED)))
    own = f"FROM group_events e WHERE {of_group(cluster, group_id)} AND void IS NOT TRUE AND kind IN ({kinds})"
    columns = f'{_COLUMNS}, e."offset" AS number'
    newest = 'row_number() OVER (PARTITION BY member_id ORDER BY at DESC, e."offset" DESC, kind) AS newest'
    events = reader.rows(
        f"SELECT {columns}, 1 AS newest {own} AND at >= {time_literal(begin)} AND at <= {time_literal(end)} "  # noqa: S608 - quoted
        f"UNION ALL SELECT * FROM (SELECT {columns}, {newest} {own} AND at < {time_literal(begin)}) AS before "
        f"WHERE newest = 1 ORDER BY at, number, kind LIMIT {MAX_ASSIGNMENTS + 1}"
    )
    return events if len(events) <= MAX_ASSIGNMENTS else None


@dataclass
class Owned:
    """Which members had a task as active, by the events."""

    member_id: str | None = None
    """The last member."""
    since: datetime | None = None
    """When the last member got it."""
    unowned: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    """The times for which no member had it, after the first one did; if the last one still lasts, its end is None."""
    owners: dict[str, datetime] = field(default_factory=dict)
    """The members that have it at the end, with the time since when."""


def owned_tasks(events: Iterable[Event]) -> dict[str, Owned]:
    """Return by task id which members had it; `events` as from `read_assignments`."""
    held: dict[str, set[str]] = {}
    found: dict[str, Owned] = {}
    for event in events:
        member_id, at = event["member_id"], event["at"]
        if event["kind"] == _DELETED:
            members, tasks = list(held), set[str]()
        else:
            is_new = event["kind"] == _ASSIGNMENT
            members = [member_id]
            tasks = (
                {f"{one}_{n}" for role, one, n in parse_tasks(event["new"]) if role == "active"} if is_new else set()
            )
        for member in members:
            before = held.get(member, set())
            held[member] = tasks
            for task in tasks - before:
                _begin_owning(found.setdefault(task, Owned()), member, at)
            for task in before - tasks:
                del found[task].owners[member]
                if not found[task].owners:
                    found[task].unowned.append((at, None))
    return found


def _begin_owning(owned: Owned, member: str, at: datetime) -> None:
    if not owned.owners and owned.unowned:
        begin, _ = owned.unowned.pop()
        if begin < at:
            owned.unowned.append((begin, at))
    owned.owners[member] = at
    owned.member_id, owned.since = member, at


def group_at(events: Sequence[Event], time: datetime) -> GroupAt:
    """Return the group at a time. Raises WarehouseError if no event is as old."""
    group = GroupAt()
    known = [event for event in events if event["at"] is None or event["at"] <= time]
    if not known:
        asked, earliest = utc_iso(time, "seconds"), utc_iso(events[0]["at"], "seconds")
        raise WarehouseError(f"Nothing is known about the group at {asked}: see --at {earliest}")
    for event in known:
        group.apply(event)
    group.unowned = unowned_tasks(known)
    return group


def unowned_tasks(events: Sequence[Event]) -> list[str]:
    """Return the tasks that no member has after these events, but that one had after the last topology change.

    A task from before that change may no longer be in the topology.
    """
    dated = [{**event, "at": event["at"] or EPOCH} for event in events]
    changed = max((one["at"] for one in dated if one["kind"] in {"topology_epoch", "created"}), default=EPOCH)
    owned = owned_tasks(one for one in dated if one["kind"] in {_ASSIGNMENT, _LEFT, _DELETED})
    return [
        task
        for task, one in owned.items()
        if one.unowned and one.unowned[-1][1] is None and (one.since or EPOCH) >= changed
    ]


def task_spells(events: Sequence[Event], task: str) -> list[TaskSpell]:
    """Return which members had a task such as `0_3`, in which role and when, oldest first."""
    spells: list[TaskSpell] = []
    open_spells: dict[str, TaskSpell] = {}
    hosts: dict[str, str | None] = {}
    for event in events:
        member_id, kind = event["member_id"], event["kind"]
        if kind == _JOINED:
            hosts[member_id] = event["client_host"]
        role = role_of(event["new"], task) if kind == _ASSIGNMENT else None
        ends = [member_id] if kind in {_ASSIGNMENT, _LEFT} else list(open_spells) if kind == _DELETED else []
        for member in ends:
            spell = open_spells.get(member)
            if spell is not None and spell.role != role:
                open_spells.pop(member).until = event["at"]
        if role is not None and member_id not in open_spells:
            spell = TaskSpell(task, role, member_id, hosts.get(member_id), event["at"])
            open_spells[member_id] = spell
            spells.append(spell)
    return spells


def role_of(tasks: str | None, task: str) -> str | None:
    """Return the role in which `tasks`, as in `group_events`, contains a task; None if it does not."""
    for part in (tasks or "").split("; "):
        role, _, ids = part.partition(" ")
        if task in ids.split(","):
            return role
    return None


def parse_tasks(tasks: str | None) -> Iterator[tuple[str, str, int]]:
    """Yield role, subtopology id and partition of each task in `tasks`, which has the form of `group_events`.

    Subtopology ids that contain separators are skipped; only a client other than Kafka's may send such an id.
    """
    for part in (tasks or "").split("; "):
        role, _, ids = part.partition(" ")
        for one in filter(None, ids.split(",")):
            subtopology_id, _, partition = one.rpartition("_")
            if partition.isascii() and partition.isdigit():
                yield role, subtopology_id, int(partition)


def check_task(text: str) -> str:
    """Return the id of a task. Raises ValueError unless it is SUBTOPOLOGY_PARTITION."""
    subtopology_id, _, partition = text.partition("_")
    if not (subtopology_id.isdecimal() and partition.isdecimal()):
        raise ValueError(f"must be SUBTOPOLOGY_PARTITION, such as 0_3, not {text!r}")
    return text


def events_of_member(events: Sequence[Event], member: str) -> list[Event]:
    """Return the events of the members with this member id or instance id."""
    ids = {event["member_id"] for event in events if member in {event["member_id"], event["instance_id"]}}
    return [event for event in events if event["member_id"] in ids and event["member_id"] is not None]


def event_rows(events: Sequence[Event]) -> list[Row]:
    """Return the output lines for events; columns that all of them lack are omitted."""
    names = ("at", "kind", "member_id", "client_host", "old", "new", "cause")
    used = [name for name in names if name in {"at", "kind"} or any(event[name] is not None for event in events)]
    return [{_title(name): event[name] for name in used} for event in events]


def spell_rows(spells: Iterable[TaskSpell]) -> list[Row]:
    """Return the output lines about the members that had a task."""
    return _rows_of(spells, ("task", "role", "member_id", "client_host", "since", "until"))


def group_rows(group: GroupAt) -> Row:
    """Return the output line about a group at a time."""
    return {_title(name): value for name, value in group.values.items()} | {
        "MEMBERS": len(group.members),
        **({"DELETED-AT": group.deleted_at} if group.deleted_at else {}),
    }


def member_rows(members: Iterable[MemberAt]) -> list[Row]:
    """Return the output lines about the members at a time."""
    names = ("member_id", "client_id", "client_host", "instance_id", "joined_at", "tasks", "tasks_since")
    return _rows_of(members, names)


def _rows_of(found: Iterable[TaskSpell | MemberAt], names: Sequence[str]) -> list[Row]:
    return [{_title(name): getattr(one, name) for name in names} for one in found]


def _title(name: str) -> str:
    return {"member_id": "MEMBER", "client_host": "HOST"}.get(name, name.upper().replace("_", "-"))
