"""What an operation changed in a group: values before and after, the events of the change, and why it happened. Pure.

The values of a group and its members are compared before and after an operation; each difference is an event.

Causes of a new epoch and a new assignment
------------------------------------------
The broker raises the group epoch (record 17) in the operation that makes a new assignment necessary, and that operation
also holds the reason: the records of members that join and leave, another metadata hash, other assignment configs. The
assignment (record 20) follows in the same operation or in a later one, after the initial rebalance delay or the
assignment interval, and then for all epochs since the last one. So the causes are collected in the group's row until
there is an assignment (`StreamsGroupHeartbeat` and `replaceStreamsMember` in `GroupMetadataManager`, Kafka 4.4.0).

What the log does not show is `unknown`: whatever later releases may start a rebalance for. Kafka 4.5 raises both epochs
to refine warm-ups; such an assignment moves no active or standby task, and says that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from streaming_app.groups.group import ROLES, WARMUP, Change, Event, Group, GroupState, Tasks
from streaming_app.text import digest

UNKNOWN_STATE = "Unknown"
"""Never in an event: the records that determine the state have not been read yet."""
TOPOLOGY_CONTENT = "topology"
JOINED, LEFT = "member_joined", "member_left"
EVENTS_LEFT_OUT = "events_left_out"
"""The kind of the event that says in `new` how many events of a batch are left out, see `budget`."""
NOT_READY_REASON = "not_ready_reason"
OF_OPERATION = ("causes_since_assignment", "replacing")
"""What the comparison of an operation gives for later ones: no event tells that it changed."""
_TARGET_CHARACTERS = 8
_MOST_CHARACTERS = 200  # of a value that is kept to be compared: the tenant chooses it

# Until record 17 is read, these hold defaults and not what the group has.
_OF_METADATA = (
    "validated_topology_epoch",
    "stored_description_epoch",
    "failed_description_epoch",
    "description_status",
    "metadata_hash",
    "assignment_configs",
)
_NAMES = ("group_epoch", "assignment_epoch", "topology_epoch", *_OF_METADATA, "state")
_VALUES = attrgetter("group_epoch", "reported_assignment_epoch", "topology_epoch", *_OF_METADATA, "state")
"""The attributes of a group that are compared before and after an operation."""

# The kinds of events of what was added, and of what was not; that of any other event is the name of what changed.
_KINDS = {"group": ("created", "deleted"), "member": (JOINED, LEFT), "assignment_configs": ("config_changed",) * 2}
_IDENTITY = ("client_host", "instance_id", "rack", "tags", "process")
_WITHOUT_EVENT = frozenset({"metadata_hash", TOPOLOGY_CONTENT, *OF_OPERATION, "joined_at", "target", *_IDENTITY})
"""Compared only for the causes and deployments, and to describe a member that joined or left."""

_CAUSE_OF_VALUE = {
    "metadata_hash": "topics_changed",
    "assignment_configs": "config_changed",
    "topology_epoch": "topology_changed",
}
_MOVED = ("rack", "tags", "process")
"""Of a member that stays, what may have changed; it is then also the cause."""
REPLACED, UNKNOWN_CAUSE = "member_replaced", "unknown"
NO_TASK_MOVED = "no_task_moved"
"""Of an assignment that nothing explains, and that gives no member another active or standby task."""
_CAUSES = (JOINED, LEFT, REPLACED, *_MOVED, *_CAUSE_OF_VALUE.values(), UNKNOWN_CAUSE)
"""In the order in which they are written, joined by commas."""
OF_MEMBERS = frozenset({JOINED, LEFT, REPLACED, *_MOVED})

Values = dict[str, str | None]


class MemberValues(NamedTuple):
    """What is compared of a member; all None for one that is not in the group."""

    member: str | None = None
    """Its client id; empty where that is not known."""
    assignment: str | None = None
    joined_at: str | None = None
    client_host: str | None = None
    instance_id: str | None = None
    rack: str | None = None
    tags: str | None = None
    process: str | None = None
    target: str | None = None
    """A hash over the active and standby tasks that it is to have."""

    @property
    def exists(self) -> bool:
        """Whether the member is in the group."""
        return self.member is not None


class Changes(NamedTuple):
    """The values before and after an operation: of the group, by name, and all of each member that it changed."""

    group: Mapping[str, tuple[str | None, str | None]]
    members: Mapping[str, tuple[MemberValues, MemberValues]]

    def each(self) -> Iterator[tuple[str, str | None, str | None, str | None]]:
        """Yield the name of each value that changed, the member that it belongs to, if any, and both values."""
        for what, (old, new) in self.group.items():
            yield what, None, old, new
        for member_id, pair in self.members.items():
            for what, old, new in zip(MemberValues._fields, *pair, strict=True):
                if old != new:
                    yield what, member_id, old, new


def group_values(group: Group, topology_hash: str | None, *, exists: bool) -> Values:
    """Return the values of the group; None where no record has been read."""
    values: Values = {"group": group.group_type if exists and not group.deleted else None}
    values[TOPOLOGY_CONTENT] = topology_hash
    values.update(zip(_NAMES, map(_to_text, _VALUES(group)), strict=True))
    return values if group.group_epoch is not None else values | dict.fromkeys(_OF_METADATA)


def member_values(group: Group, member_id: str) -> MemberValues:
    """Return the values of a member, which may not exist: its target may come first."""
    member = group.members.get(member_id)
    moved = sorted(task for task in group.targets.get(member_id, ()) if task[0] != WARMUP)
    target = digest(str(moved), _TARGET_CHARACTERS) if moved else None
    if member is None:
        return MemberValues(target=target)
    return MemberValues(
        member.client_id or "",
        _format_tasks(member.current) if member.current else None,
        member.joined_at.isoformat() if member.joined_at else None,
        member.client_host,
        member.instance_id,
        _shortened(member.rack_id),
        _shortened(str(sorted(member.client_tags.items()))) if member.client_tags else None,
        _shortened(member.process_id),
        target,
    )


def split_causes(text: str | None) -> frozenset[str]:
    """Return the causes that are written in a column, joined by commas; none for None."""
    return frozenset(text.split(",")) if text else frozenset()


def collect_causes(state: GroupState, changes: Changes) -> tuple[str | None, str | None]:
    """Return the causes of the operation's new group epoch, and those of its new assignment; None for no new one.

    It also updates the causes that are kept for the next assignment.
    """
    group = state.group
    if group.deleted:
        state.causes_since_assignment = None
        return None, None
    old_epoch, epoch = changes.group.get("group_epoch", (None, None))
    of_epoch: str | None = None
    if epoch is not None:
        of_epoch = _join_causes(_causes_of(changes)) or (UNKNOWN_CAUSE if old_epoch is not None else None)
        pending = split_causes(state.causes_since_assignment) | split_causes(of_epoch)
        state.causes_since_assignment = _join_causes(pending)
    if None in changes.group.get("assignment_epoch", (None,)):
        return of_epoch, None
    of_assignment = state.causes_since_assignment
    if of_assignment == UNKNOWN_CAUSE and all(old.target == new.target for old, new in changes.members.values()):
        of_assignment = NO_TASK_MOVED
    if group.assignment_epoch_or_first >= (group.group_epoch or 0):
        state.causes_since_assignment = None
    return of_epoch, of_assignment or UNKNOWN_CAUSE


def make_events(
    at: datetime | None, offset: int, changes: Changes, causes: tuple[str | None, str | None]
) -> Iterator[Event]:
    """Yield an event for each change that has one; `causes` as `collect_causes` returns them."""
    cause_of = dict(zip(("group_epoch", "assignment_epoch"), causes, strict=True))
    for what, member_id, old, new in changes.each():
        if what in _WITHOUT_EVENT or (what == "member" and None not in (old, new)):
            continue  # that a member's client id was read later is no event
        if what == "assignment_configs" and not (old and new):
            continue  # they were read for the first time
        event = Event(at, _event_kind(what, old), member_id, old, new, offset, cause_of.get(what))
        if what == "member" and member_id is not None:
            before, after = changes.members[member_id]
            host, instance = before.client_host or after.client_host, before.instance_id or after.instance_id
            event = event._replace(client_host=host, instance_id=instance)
        yield event


def retract(at: datetime | None, changes: Iterable[Change]) -> list[Event]:
    """Return the events that were emitted for these changes; of their values only those that identify them are set."""
    return [
        Event(at, _event_kind(change.what, change.old), change.member_id, change.old, None, change.offset)
        for change in changes
        if change.what not in _WITHOUT_EVENT
    ]


def _to_text(value: object) -> str | None:
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in sorted(value.items()))
    return None if value in (None, UNKNOWN_STATE) else str(value)


def _format_tasks(tasks: Tasks) -> str:
    """Return tasks in the notation of Kafka's logs: ``active 0_0,0_1; standby 1_2``."""
    by_role = ((role, sorted((s, p) for r, s, p in tasks if r == role)) for role in ROLES)
    return "; ".join(f"{role} " + ",".join(f"{s}_{p}" for s, p in ids) for role, ids in by_role if ids)


def _shortened(value: str | None) -> str | None:
    """Return a value that is only compared: itself, or a hash where it is long."""
    return value if value is None or len(value) <= _MOST_CHARACTERS else digest(value)


def _event_kind(what: str, old: str | None) -> str:
    return _KINDS.get(what, (what, what))[old is not None]


def _causes_of(changes: Changes) -> set[str]:
    """Return the causes that the changes of one operation prove; empty if they prove none."""
    pairs = changes.members.values()
    # That a member joined is known once its record 19 was read, which always has a host.
    joined = [new for old, new in pairs if new.client_host is not None and not old.exists]
    if changes.group.get("group", ("", ""))[0] is None:  # it is created: members that left were those of another group
        return {JOINED} if joined else set()
    left = [old for old, new in pairs if old.exists and not new.exists]
    instances_left = {old.instance_id for old in left} - {None}
    replaced = sum(new.instance_id in instances_left for new in joined)
    found = {cause for name, cause in _CAUSE_OF_VALUE.items() if None not in changes.group.get(name, (None,))}
    found |= {JOINED} if len(joined) > replaced else set()
    found |= {LEFT} if len(left) > replaced else set()
    found |= {REPLACED} if replaced else set()
    # A member whose host was not known before is read for the first time.
    stay = [(old, new) for old, new in pairs if old.client_host is not None and new.exists]
    return found | {name for name in _MOVED if any(getattr(old, name) != getattr(new, name) for old, new in stay)}


def _join_causes(causes: Iterable[str]) -> str | None:
    """Return the causes as they are written, None for none."""
    known = set(causes)
    return ",".join(cause for cause in _CAUSES if cause in known) or None
