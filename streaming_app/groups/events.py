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

from streaming_app.groups.group import ROLES, SINCE, WARMUP, Change, Event, Group, Tasks
from streaming_app.text import digest

UNKNOWN_STATE = "Unknown"
"""Never in an event: the records that determine the state have not been read yet."""
TOPOLOGY_CONTENT = "topology"
JOINED, LEFT = "member_joined", "member_left"
EVENTS_LEFT_OUT = "events_left_out"
"""The kind of the event that says in `new` how many events of a batch are left out, see `budget`."""
NOT_READY_REASON = "not_ready_reason"
OF_OPERATION = (*SINCE.values(), "causes_since_assignment", "replacing", NOT_READY_REASON)
"""Fields of a group that an operation gives for later ones: of what it changed no event tells."""
_TARGET_CHARACTERS = 8
_MOST_CHARACTERS = 200  # of a value that is kept to be compared: the tenant chooses it

OF_METADATA = (
    "validated_topology_epoch",
    "stored_description_epoch",
    "failed_description_epoch",
    "description_status",
    "metadata_hash",
    "assignment_configs",
)
"""What record 17 says apart from the epoch: until it is read, these hold defaults and not what the group has."""
_NAMES = (TOPOLOGY_CONTENT, "group_epoch", "assignment_epoch", "topology_epoch", *OF_METADATA)
_VALUES = attrgetter("topology_hash", "group_epoch", "reported_assignment_epoch", "topology_epoch", *OF_METADATA)
"""The attributes of a group that are compared before and after an operation, besides what is derived."""

# The kinds of events of what was added, and of what was not; that of any other event is the name of what changed.
_KINDS = {"group": ("created", "deleted"), "member": (JOINED, LEFT), "assignment_configs": ("config_changed",) * 2}
_IDENTITY = ("client_host", "instance_id", "rack", "tags", "process")
_COMPARED = {"metadata_hash", TOPOLOGY_CONTENT, *OF_OPERATION, "joined_at", "target", *_IDENTITY}
_WITHOUT_EVENT = frozenset(_COMPARED - {NOT_READY_REASON})
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

_NO_MEMBER = dict.fromkeys(("member", "assignment", "joined_at", *_IDENTITY, "target"))

Values = dict[str, str | None]
"""What is compared of a group, or of a member, before and after an operation, as text."""
Changes = dict[str | None, tuple[Values, Values]]
"""Values before and after an operation: of the group, under None, and by id those of each member that it changed."""


def group_values(group: Group, derived: Mapping[str, str]) -> Values:
    """Return the values of the group but those in `OF_OPERATION`; None where no record has been read."""
    values: Values = {"group": group.group_type if group.is_known else None}
    values.update(zip(_NAMES, map(_to_text, _VALUES(group)), strict=True))
    values.update((name, _to_text(value)) for name, value in derived.items())
    return values if group.group_epoch is not None else values | dict.fromkeys(OF_METADATA)


def operation_values(group: Group) -> Values:
    """Return the values of the fields in `OF_OPERATION`."""
    return {name: _to_text(getattr(group, name)) for name in OF_OPERATION}


def member_values(group: Group, member_id: str) -> Values:
    """Return the values of a member; all but its target, which may come first, are None if it is not in the group."""
    member = group.members.get(member_id)
    moved = sorted(task for task in group.targets.get(member_id, ()) if task[0] != WARMUP)
    target = digest(str(moved), _TARGET_CHARACTERS) if moved else None
    if member is None:
        return {**_NO_MEMBER, "target": target}
    return {
        "member": member.client_id or "",
        "assignment": _format_tasks(member.current) if member.current else None,
        "joined_at": member.joined_at.isoformat() if member.joined_at else None,
        "client_host": member.client_host,
        "instance_id": member.instance_id,
        "rack": _shortened(member.rack_id),
        "tags": _shortened(str(sorted(member.client_tags.items()))) if member.client_tags else None,
        "process": _shortened(member.process_id),
        "target": target,
    }


def each_change(changes: Changes) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    """Yield the name of each value that changed, the member that it belongs to, if any, and both values."""
    for member_id, (before, now) in changes.items():
        for what, new in now.items():
            if before[what] != new:
                yield what, member_id, before[what], new


def is_replaced(changes: Changes, what: str) -> bool:
    """Return whether a known value of the group became another one."""
    old, new = (values[what] for values in changes[None])
    return None not in (old, new) and old != new


def split_causes(text: str | None) -> frozenset[str]:
    """Return the causes that are written in a column, joined by commas; none for None."""
    return frozenset(text.split(",")) if text else frozenset()


def collect_causes(group: Group, changes: Changes) -> dict[str, str | None]:
    """Return the causes of the operation's new group epoch and of its new assignment, by kind of the event.

    It also updates the causes that are kept for the next assignment.
    """
    before, now = changes[None]
    causes: dict[str, str | None] = {}
    if group.is_deleted:
        group.causes_since_assignment = None
        return causes
    if now["group_epoch"] not in (None, before["group_epoch"]):
        found = _causes_of(changes) or ({UNKNOWN_CAUSE} if before["group_epoch"] is not None else set())
        causes["group_epoch"] = _join_causes(found)
        group.causes_since_assignment = _join_causes(found | split_causes(group.causes_since_assignment))
    if is_replaced(changes, "assignment_epoch"):
        cause = group.causes_since_assignment or UNKNOWN_CAUSE
        moves = any(old["target"] != new["target"] for one, (old, new) in changes.items() if one is not None)
        if group.causes_since_assignment == UNKNOWN_CAUSE and not moves:
            cause = NO_TASK_MOVED
        causes["assignment_epoch"] = cause
        if group.assignment_epoch_or_first >= (group.group_epoch or 0):
            group.causes_since_assignment = None
    return causes


def make_events(
    at: datetime | None, offset: int, changes: Changes, causes: Mapping[str, str | None]
) -> Iterator[Event]:
    """Yield an event for each change that has one; `causes` as `collect_causes` returns them."""
    for what, member_id, old, new in each_change(changes):
        if what in _WITHOUT_EVENT or (what == "member" and None not in (old, new)):
            continue  # that a member's client id was read later is no event
        if what == "assignment_configs" and not (old and new):
            continue  # they were read for the first time
        event = Event(at, _event_kind(what, old), member_id, old, new, offset, causes.get(what))
        if what == "member":
            before, after = changes[member_id]
            host, instance = (before[name] or after[name] for name in ("client_host", "instance_id"))
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
    if value is None or value == UNKNOWN_STATE:
        return None
    return ",".join(f"{k}={v}" for k, v in sorted(value.items())) if isinstance(value, dict) else str(value)


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
    pairs = [pair for member_id, pair in changes.items() if member_id is not None]
    # That a member joined is known once its record 19 was read, which always has a host.
    joined = [new for old, new in pairs if new["client_host"] is not None and old["member"] is None]
    if changes[None][0]["group"] is None:  # it is created: members that left were those of another group
        return {JOINED} if joined else set()
    left = [old for old, new in pairs if old["member"] is not None and new["member"] is None]
    instances_left = {old["instance_id"] for old in left} - {None}
    replaced = sum(new["instance_id"] in instances_left for new in joined)
    # A member whose host was not known before is read for the first time.
    stay = [(old, new) for old, new in pairs if old["client_host"] is not None and new["member"] is not None]
    found = {
        JOINED: len(joined) > replaced,
        LEFT: len(left) > replaced,
        REPLACED: replaced > 0,
        **{name: any(old[name] != new[name] for old, new in stay) for name in _MOVED},
        **{cause: is_replaced(changes, name) for name, cause in _CAUSE_OF_VALUE.items()},
    }
    return {cause for cause, is_so in found.items() if is_so}


def _join_causes(causes: Iterable[str]) -> str | None:
    """Return the causes as they are written, None for none."""
    known = set(causes)
    return ",".join(cause for cause in _CAUSES if cause in known) or None
