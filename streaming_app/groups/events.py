"""What an operation changed in a group: values before and after, the events of the change, and why it happened. Pure.

The values of a group and its members are compared before and after an operation; each difference is an event.

Causes of a new epoch and a new assignment
------------------------------------------
The broker raises the group epoch (record 17) in the operation that makes a new assignment necessary, and that operation
also holds the reason: the records of members that join and leave, another metadata hash, other assignment configs. The
assignment (record 20) follows in the same operation or in a later one, after the initial rebalance delay or the
assignment interval, and then for all epochs since the last one. So the causes are collected in the group's row until
there is an assignment (`StreamsGroupHeartbeat` and `replaceStreamsMember` in `GroupMetadataManager`, Kafka 4.4.0).

What the log does not show is `unknown`: whatever later releases may start a rebalance for, such as a warm-up that has
caught up (4.4.0 does nothing then).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter

from streaming_app.groups.deployments import DEPLOYMENT, JOINED_AT, TOPOLOGY_CONTENT
from streaming_app.groups.group import ROLES, Change, Event, Group, Member, Tasks
from streaming_app.text import digest

Subject = tuple[str, str | None]
"""The name of a value that can change, and the member that it belongs to, if any."""
Values = dict[Subject, str | None]
ValueChanges = Mapping[Subject, tuple[str | None, str | None]]
"""The values before and after an operation, for what it changed."""

UNKNOWN_STATE = "Unknown"
"""Never in an event: the records that determine the state have not been read yet."""
CLIENT_HOST, INSTANCE_ID = "client_host", "instance_id"
RACK, TAGS, PROCESS = "rack", "tags", "process"
_MOVED = (RACK, TAGS, PROCESS)
"""Of a member that stays, what may have changed; it is then also the cause."""
_MOST_CHARACTERS = 200  # of a value that is kept to be compared: the tenant chooses it
CAUSES, REPLACING = "causes", "replacing"
"""The `what` of the changes of `causes_since_assignment` and `replacing`."""
EVENTS_LEFT_OUT = "events_left_out"
"""The kind of the event that says in `new` how many events of a batch are left out, see `budget`."""
NOT_READY_REASON = "not_ready_reason"
"""The `what` of the change of `not_ready_reason`."""

# The attributes compared before and after an operation, besides the members.
_GROUP_VALUES: Mapping[str, Callable[[Group], object]] = {
    "group_epoch": attrgetter("group_epoch"),
    "assignment_epoch": attrgetter("reported_assignment_epoch"),
    "topology_epoch": attrgetter("topology_epoch"),
    "validated_topology_epoch": attrgetter("validated_topology_epoch"),
    "stored_description_epoch": attrgetter("stored_description_epoch"),
    "failed_description_epoch": attrgetter("failed_description_epoch"),
    "description_status": attrgetter("description_status"),
    "state": attrgetter("state"),
    "metadata_hash": attrgetter("metadata_hash"),
    "assignment_configs": lambda group: ",".join(f"{k}={v}" for k, v in sorted(group.assignment_configs.items())),
}
# Of these the ones that come from record 17: until it is read, they hold defaults and not what the group has.
_OF_METADATA = frozenset(
    {
        "validated_topology_epoch",
        "stored_description_epoch",
        "failed_description_epoch",
        "description_status",
        "metadata_hash",
        "assignment_configs",
    }
)
_OF_IDENTITY: Mapping[str, Callable[[Member], str | None]] = {
    CLIENT_HOST: attrgetter("client_host"),
    INSTANCE_ID: attrgetter("instance_id"),
    RACK: lambda member: _shortened(member.rack_id),
    TAGS: lambda member: _shortened(str(sorted(member.client_tags.items())) if member.client_tags else None),
    PROCESS: lambda member: _shortened(member.process_id),
}
"""The values of a member that only record 19 changes."""
_WITHOUT_EVENT = frozenset({"metadata_hash", TOPOLOGY_CONTENT, JOINED_AT, CAUSES, REPLACING, *_OF_IDENTITY})
"""Compared only for the causes and deployments, and to describe a member that joined or left."""
NOT_COMPARED = frozenset({NOT_READY_REASON, DEPLOYMENT, CAUSES, REPLACING})
"""The `what` of changes that are made of the comparison, or after it."""

# (what changed, how) -> kind of event; the kind of any other event is the name of what changed
_EVENT_KINDS = {
    ("group", "added"): "created",
    ("group", "removed"): "deleted",
    ("member", "added"): "member_joined",
    ("member", "removed"): "member_left",
}
_CONFIGS = "assignment_configs"
MEMBER_JOINED, MEMBER_LEFT, MEMBER_REPLACED = "member_joined", "member_left", "member_replaced"
TOPICS_CHANGED, CONFIG_CHANGED, TOPOLOGY_CHANGED = "topics_changed", "config_changed", "topology_changed"
UNKNOWN_CAUSE = "unknown"
_CAUSES = (
    *(MEMBER_JOINED, MEMBER_LEFT, MEMBER_REPLACED, *_MOVED),
    *(TOPICS_CHANGED, CONFIG_CHANGED, TOPOLOGY_CHANGED, UNKNOWN_CAUSE),
)
"""In the order in which they are written, joined by commas."""
OF_MEMBERS = frozenset({MEMBER_JOINED, MEMBER_LEFT, MEMBER_REPLACED, *_MOVED})

# value of the group that changed -> cause
_CAUSE_OF_VALUE = {
    "metadata_hash": TOPICS_CHANGED,
    "assignment_configs": CONFIG_CHANGED,
    "topology_epoch": TOPOLOGY_CHANGED,
}


def group_values(group: Group, topology_hash: str | None, *, exists: bool) -> Values:
    """Return the values of the group; None where no record has been read."""
    values: Values = {("group", None): group.group_type if exists and not group.deleted else None}
    values[TOPOLOGY_CONTENT, None] = topology_hash
    for name, value_of in _GROUP_VALUES.items():
        is_read = group.group_epoch is not None or name not in _OF_METADATA
        values[name, None] = _to_text(value_of(group)) if is_read else None
    return values


def member_values(member_id: str, member: Member | None, *, with_identity: bool) -> Values:
    """Return the values of a member, which may not exist; `with_identity` also those that only record 19 changes."""
    values: Values = {
        ("member", member_id): (member.client_id or "") if member else None,
        ("assignment", member_id): _format_tasks(member.current) if member and member.current else None,
        (JOINED_AT, member_id): member.joined_at.isoformat() if member and member.joined_at else None,
    }
    if with_identity:
        values |= {(name, member_id): value_of(member) if member else None for name, value_of in _OF_IDENTITY.items()}
    return values


def values_changed(before: Mapping[Subject, str | None], after: Mapping[Subject, str | None]) -> ValueChanges:
    """Return what differs, as values before and after."""
    return {subject: (old, after[subject]) for subject, old in before.items() if old != after[subject]}


def split_causes(text: str | None) -> frozenset[str]:
    """Return the causes that are written in a column, joined by commas; none for None."""
    return frozenset(text.split(",")) if text else frozenset()


def collect_causes(group: Group, changes: ValueChanges) -> tuple[str | None, str | None]:
    """Return the causes of the operation's new group epoch, and those of its new assignment; None for no new one.

    It also updates the causes that the group keeps for the next assignment.
    """
    _, epoch = changes.get(("group_epoch", None), (None, None))
    was_assigned, assigned = changes.get(("assignment_epoch", None), (None, None))
    if group.deleted:
        group.causes_since_assignment = None
        return None, None
    of_epoch: str | None = None
    if epoch is not None:
        was_known = changes["group_epoch", None][0] is not None
        of_epoch = _join_causes(_causes_of(changes)) or (UNKNOWN_CAUSE if was_known else None)
        pending = split_causes(group.causes_since_assignment) | split_causes(of_epoch)
        group.causes_since_assignment = _join_causes(pending)
    if None in (was_assigned, assigned):
        return of_epoch, None
    of_assignment = group.causes_since_assignment or UNKNOWN_CAUSE
    if group.assignment_epoch_or_first >= (group.group_epoch or 0):
        group.causes_since_assignment = None
    return of_epoch, of_assignment


def make_events(
    at: datetime | None, offset: int, changes: ValueChanges, causes: tuple[str | None, str | None]
) -> Iterator[Event]:
    """Yield an event for each change that has one; `causes` as `collect_causes` returns them."""
    cause_of = dict(zip(("group_epoch", "assignment_epoch"), causes, strict=True))
    for (what, member_id), (old, new) in changes.items():
        if what in _WITHOUT_EVENT or (what == "member" and None not in (old, new)):
            continue  # that a member's client id was read later is no event
        if what == _CONFIGS and not (old and new):
            continue  # they were read for the first time
        event = Event(at, _event_kind(what, old, new), member_id, old, new, offset, cause_of.get(what))
        if what == "member":
            host, instance = (changes.get((name, member_id), (None, None)) for name in (CLIENT_HOST, INSTANCE_ID))
            event = event._replace(client_host=host[0] or host[1], instance_id=instance[0] or instance[1])
        yield event


def retract(at: datetime | None, changes: Iterable[Change]) -> list[Event]:
    """Return the events that were emitted for these changes; of their values only those that identify them are set."""
    return [
        Event(at, _event_kind(change.what, change.old, None), change.member_id, change.old, None, change.offset)
        for change in changes
        if change.what not in _WITHOUT_EVENT
    ]


def _to_text(value: object) -> str | None:
    return None if value in (None, UNKNOWN_STATE) else str(value)


def _format_tasks(tasks: Tasks) -> str:
    """Return tasks in the notation of Kafka's logs: ``active 0_0,0_1; standby 1_2``."""
    by_role = ((role, sorted((s, p) for r, s, p in tasks if r == role)) for role in ROLES)
    return "; ".join(f"{role} " + ",".join(f"{s}_{p}" for s, p in ids) for role, ids in by_role if ids)


def _shortened(value: str | None) -> str | None:
    """Return a value that is only compared: itself, or a hash where it is long."""
    if value is None or len(value) <= _MOST_CHARACTERS:
        return value
    return digest(value)


def _event_kind(what: str, old: str | None, new: str | None) -> str:
    if what == _CONFIGS:
        return CONFIG_CHANGED
    how = "added" if old is None else "removed" if new is None else "changed"
    return _EVENT_KINDS.get((what, how), what)


def _causes_of(changes: ValueChanges) -> set[str]:
    """Return the causes that the changes of one operation prove; empty if they prove none."""
    is_created = changes.get(("group", None), ("", ""))[0] is None
    if is_created:  # it has all values for the first time, and members that left were those of an earlier group
        return {MEMBER_JOINED} if _joined(changes) else set()
    changed = {
        cause for value, cause in _CAUSE_OF_VALUE.items() if None not in changes.get((value, None), (None, None))
    }
    return changed.union(_member_causes(changes))


def _joined(changes: ValueChanges) -> set[str | None]:
    """Return the members that joined: their record 19 was read, which always has a host."""
    return {
        member_id
        for (what, member_id), (old, new) in changes.items()
        if what == "member" and old is None and new is not None
        if changes.get(("client_host", member_id), (None, None))[1] is not None
    }


def _member_causes(changes: ValueChanges) -> Iterator[str]:
    joined = _joined(changes)
    left = {member_id for (what, member_id), (_, new) in changes.items() if what == "member" and new is None}
    instances_left = {changes.get(("instance_id", member_id), (None, None))[0] for member_id in left} - {None}
    replaced = {
        member_id for member_id in joined if changes.get(("instance_id", member_id), (None, None))[1] in instances_left
    }
    if joined - replaced:
        yield MEMBER_JOINED
    if len(left) > len(replaced):
        yield MEMBER_LEFT
    if replaced:
        yield MEMBER_REPLACED
    stay = {member_id for (what, member_id) in changes if what in _MOVED} - left - joined
    # A member whose host was not known before is read for the first time.
    known = {one for one in stay if changes.get((CLIENT_HOST, one), ("", ""))[0] is not None}
    yield from (name for name in _MOVED if any((name, one) in changes for one in known))


def _join_causes(causes: Iterable[str]) -> str | None:
    """Return the causes as they are written, None for none."""
    known = set(causes)
    return ",".join(cause for cause in _CAUSES if cause in known) or None
