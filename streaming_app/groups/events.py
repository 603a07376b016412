"""Compares a group before and after an operation, makes an event for each difference, and finds the cause. Pure.

Causes of a new epoch and a new assignment
------------------------------------------
The broker raises the group epoch (record 17) in the operation that makes a new assignment necessary. The same operation
holds the cause: records of members that join or leave, another metadata hash, or other assignment configs. The
assignment (record 20) follows in this operation or in a later one, after the initial rebalance delay or the assignment
interval. It then serves all group epochs since the last assignment. So the row of the group collects the causes until
the next assignment (`StreamsGroupHeartbeat` and `replaceStreamsMember` in `GroupMetadataManager`, Kafka 4.4.0).

A cause that the log does not show is `unknown`: later releases may start rebalances for other reasons. Such an
assignment that moves no active or standby task has the cause `warmup` if the group has warm-ups: when one has caught
up, Kafka 4.5 raises both epochs and leaves the target as it is (KAFKA-20665). Else it is `no_task_moved`.

A coordinator of another release may know one assignment config more, or less, and raises the epoch when it first sees
the group (KAFKA-20896). So a config that only one of two records has, at its default, is no change of the
configuration, and neither is one whose default this release does not know.

Deployments of the application
------------------------------
A deployment is another topology, or replaces every member by another one within `_WITHIN`: one after the other, all at
once, or with new members that join before the old ones leave. A member that joins again under its own id, as after a
network failure, is not replaced. Members that stayed for less than `_WITHIN` do not count as replaced: so an
application that crashes and restarts again and again shows at most one deployment. The column `replacing` of the row
keeps what the next operation needs: a start time, and hashes of the ids of members that left since then.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter, itemgetter

from streaming_app.groups.group import SINCE, WARMUP, Group, GroupEvent, LastChange, Tasks
from streaming_app.text import digest

UNKNOWN_STATE = "Unknown"
"""The state before the records that determine it are read; events show None instead."""
TOPOLOGY_CONTENT = "topology"
JOINED, LEFT = "member_joined", "member_left"
EVENTS_LEFT_OUT = "events_left_out"
"""The kind of the event that says in `new` how many events of a batch are left out, see `budget`."""
TYPE_CHANGED, OFFSETS_RESET, OFFSETS_DELETED = "group_type", "offsets_reset", "offsets_deleted"
OF_COMMITS = (TYPE_CHANGED, OFFSETS_RESET, OFFSETS_DELETED)
"""The kinds of the events that the query of the committed offsets writes."""
OF_TOPICS = TOPIC_DELETED, TOPIC_RECREATED, TOPIC_GROWN = ("topic_deleted", "topic_recreated", "topic_grown")
"""Those that the lag service writes. They come from no record, and have no offset."""
NOT_READY_REASON = "not_ready_reason"
OF_OPERATION = (*SINCE.values(), "causes_since_assignment", "replacing", NOT_READY_REASON)
"""Fields of a group that later operations need. They are compared so that `Fold` can undo a part of an operation."""
DEPLOYMENT, PROCESSES = "deployment", "processes"
"""The kind of the event, and the `what` of its change. `old` is when the deployment began, `new` what it replaced."""
_WITHIN = timedelta(minutes=15)
_IDS = 100  # ids of members that left, which are kept at most
_ID_CHARACTERS = 8  # of the hash of a member's id, or of its target
_MOST_CHARACTERS = 200  # longer values are compared by a hash: the tenant chooses how long they are

OF_METADATA = (
    "validated_topology_epoch",
    "stored_description_epoch",
    "failed_description_epoch",
    "description_status",
    "metadata_hash",
    "assignment_configs",
)
"""Fields from record 17, without the epoch. They hold defaults until that record is read."""
_NAMES = (TOPOLOGY_CONTENT, "group_epoch", "assignment_epoch", "topology_epoch", *OF_METADATA)
_VALUES = attrgetter("topology_hash", "group_epoch", "reported_assignment_epoch", "topology_epoch", *OF_METADATA)
"""The compared attributes of a group, without the derived ones (`Group.derive`)."""

# Kinds of events, for a value that was None before and for one that was not; any other event has the value's name.
PROTOCOL_CHANGED = "protocol_changed"
"""The kind of the event for a group that the broker converted to another protocol; its committed offsets stay."""
_KINDS = {
    "group": ("created", "deleted"),
    "protocol": (PROTOCOL_CHANGED,) * 2,
    "member": (JOINED, LEFT),
    "assignment_configs": ("config_changed",) * 2,
}
_IDENTITY = ("client_host", "instance_id", "rack", "tags", "process")
_COMPARED = {"metadata_hash", TOPOLOGY_CONTENT, *OF_OPERATION, "joined_at", "target", *_IDENTITY}
_WITHOUT_EVENT = frozenset(_COMPARED - {NOT_READY_REASON})
"""Values without an event of their own: they serve to find causes and deployments, and to describe a member."""

_CAUSE_OF_VALUE = {
    "protocol": PROTOCOL_CHANGED,
    "metadata_hash": "topics_changed",
    "assignment_configs": "config_changed",
    "topology_epoch": "topology_changed",
}
_MOVED = ("rack", "tags", "process")
"""Values of a member that stays. Such a value is also the name of the cause if it changed."""
REPLACED, UNKNOWN_CAUSE = "member_replaced", "unknown"
FOLLOW_UP = "follow_up"
"""The cause of a generation of a classic group that the one before announced: tasks changed hands, or warm-ups."""
NO_TASK_MOVED = "no_task_moved"
"""The cause of an assignment with unknown cause that gives no member another active or standby task."""
QUIET_CAUSES = frozenset({FOLLOW_UP, NO_TASK_MOVED, WARMUP})
"""The causes of assignments that move no active or standby task, or whose move was announced before."""
_CAUSES = (JOINED, LEFT, REPLACED, *_MOVED, *_CAUSE_OF_VALUE.values(), FOLLOW_UP, UNKNOWN_CAUSE)
"""All causes, in the order in which a column lists them, separated by commas."""
OF_MEMBERS = frozenset({JOINED, LEFT, REPLACED, *_MOVED})

_DEFAULTS = {"num.standby.replicas": "0", "rack.aware.assignment.tags": ""}
"""The assignment configs of Kafka 4.4.0 (`GroupMetadataManager.streamsGroupAssignmentConfigs`) at their defaults."""

_NO_MEMBER = dict.fromkeys(("member", "assignment", "joined_at", *_IDENTITY, "target"))

Values = dict[str, str | None]
"""Name -> value as text, of a group or a member, at one time."""
Changes = dict[str | None, tuple[Values, Values]]
"""Member id, or None for the group itself -> values before and after an operation. Has only members that it changed."""


def group_values(group: Group, derived: Mapping[str, str]) -> Values:
    """Return the values of the group, without those in `OF_OPERATION`. None: no record of it has been read."""
    group_type = group.group_type if group.is_known else None
    values: Values = {"group": group_type, "protocol": group_type}
    values.update(zip(_NAMES, map(_to_text, _VALUES(group)), strict=True))
    values.update((name, _to_text(value)) for name, value in derived.items())
    has_metadata = group.group_epoch is not None and not group.is_classic
    return values if has_metadata else values | dict.fromkeys(OF_METADATA)


def operation_values(group: Group) -> Values:
    """Return the values of the fields in `OF_OPERATION`."""
    return {name: _to_text(getattr(group, name)) for name in OF_OPERATION}


def member_values(group: Group, member_id: str) -> Values:
    """Return the values of a member. If it is not in the group, only its target, which may come first, can be set."""
    member = group.members.get(member_id)
    moved = sorted(task for task in group.targets.get(member_id, ()) if task[0] != WARMUP)
    target = digest(str(moved), _ID_CHARACTERS) if moved else None
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
    """Yield (name, member id or None, old, new) for each value that changed."""
    for member_id, (before, now) in changes.items():
        for what, new in now.items():
            if before[what] != new:
                yield what, member_id, before[what], new


def is_replaced(changes: Changes, what: str) -> bool:
    """Return whether a value of the group changed from one known value to another."""
    old, new = (values[what] for values in changes[None])
    if what == "assignment_configs":
        return bool(old and new) and _differ(str(old), str(new))
    return None not in (old, new) and old != new


def _differ(old: str, new: str) -> bool:
    """Return whether an assignment config has another value, if those that are missing are at their defaults."""
    before, now = (_DEFAULTS | _configs(text) for text in (old, new))
    return any(before[name] != now[name] for name in before.keys() & now.keys())


def _configs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        name, is_pair, value = part.partition("=")
        if is_pair:
            found[name] = value
        elif found:  # of a value with commas: `rack.aware.assignment.tags=zone,cluster`
            found[next(reversed(found))] += f",{part}"
    return found


def split_causes(text: str | None) -> frozenset[str]:
    """Return the causes in a column, which separates them by commas. An empty set for None."""
    return frozenset(text.split(",")) if text else frozenset()


def collect_causes(group: Group, changes: Changes) -> dict[str, str | None]:
    """Return the causes of the operation's new group epoch and of its new assignment: kind of event -> causes.

    Also updates `group.causes_since_assignment`.
    """
    before, now = changes[None]
    causes: dict[str, str | None] = {}
    if group.is_deleted:
        group.causes_since_assignment = None
        return causes
    if now["group_epoch"] not in (None, before["group_epoch"]):
        found = _causes_of(changes) or (split_causes(group.causes_since_assignment) if group.is_classic else set())
        found = found or ({UNKNOWN_CAUSE} if before["group_epoch"] is not None else set())
        causes["group_epoch"] = _join_causes(found)
        group.causes_since_assignment = _join_causes(found | split_causes(group.causes_since_assignment))
    if is_replaced(changes, "assignment_epoch") and group.assignment_epoch is not None:  # no tombstone of record 20
        cause = group.causes_since_assignment or UNKNOWN_CAUSE
        moves = any(old["target"] != new["target"] for one, (old, new) in changes.items() if one is not None)
        if group.causes_since_assignment == UNKNOWN_CAUSE and not moves:
            has = (*group.targets.values(), *(member.current for member in group.members.values()))
            cause = WARMUP if any(role == WARMUP for tasks in has for role, *_ in tasks) else NO_TASK_MOVED
            if cause == WARMUP and "group_epoch" in causes:
                causes["group_epoch"] = cause
        causes["assignment_epoch"] = cause
    if group.is_classic or group.assignment_epoch_or_first >= (group.group_epoch or 0):
        group.causes_since_assignment = None
    return causes


def note_deployment(group: Group, changes: Changes) -> GroupEvent | None:
    """Return the event of a deployment that this operation completed, or None. Also updates `group.replacing`."""
    at = group.updated_at
    if group.is_deleted or at is None:
        group.replacing = None
        return None
    began = _processes_replaced_since(group, changes, at)
    # With the classic protocol a topology has the topics that match a pattern: those may change by themselves.
    is_other = not group.is_classic and is_replaced(changes, TOPOLOGY_CONTENT)
    replaced = [PROCESSES] * (began is not None) + [TOPOLOGY_CONTENT] * is_other
    old = (began or at).isoformat()
    return GroupEvent(at, DEPLOYMENT, None, old, ", ".join(replaced), group.last_offset) if replaced else None


def _processes_replaced_since(group: Group, changes: Changes, at: datetime) -> datetime | None:
    joined, replaced = set(), set()
    for member_id, (old, new) in changes.items():
        if member_id is not None and (old["member"] is None) != (new["member"] is None):
            if new["member"] is not None:
                joined.add(member_id)
            elif old["joined_at"] and at - datetime.fromisoformat(old["joined_at"]) >= _WITHIN:
                replaced.add(digest(member_id, _ID_CHARACTERS))
    text, *known = (group.replacing or "").split(" ")
    since, ids = datetime.fromisoformat(text) if text else None, set(known)
    if since is not None and (at - since > _WITHIN or any(digest(one, _ID_CHARACTERS) in ids for one in joined)):
        since, ids = None, set()
    if replaced:
        since, ids = since or at, ids | replaced
    oldest = next(iter(group.members.values()), None)  # members are in the order in which they joined
    began = None
    if since is not None and oldest and oldest.joined_at and timedelta(0) <= at - oldest.joined_at < _WITHIN:
        began, since = min(since, oldest.joined_at), None
    group.replacing = None if since is None else " ".join((since.isoformat(), *sorted(ids)[:_IDS]))
    return began


def make_events(
    at: datetime | None, offset: int, changes: Changes, causes: Mapping[str, str | None]
) -> Iterator[GroupEvent]:
    """Yield an event for each change, except of values without events. `causes` is what `collect_causes` returned."""
    for what, member_id, old, new in each_change(changes):
        if what in _WITHOUT_EVENT or (what in {"member", "group"} and None not in (old, new)):
            continue  # the client id of a known member was read, or the group was converted
        if what == "assignment_configs" and not is_replaced(changes, what):
            continue  # the configs were read for the first time, or of a coordinator of another release
        if what == "protocol" and not (old and new):
            continue  # it was read for the first time, or the group was deleted
        if what == "assignment_epoch" and old and what not in causes:
            continue  # its record was deleted: Describe reports the first epoch, but nothing was assigned
        host = instance = None
        if what == "member":
            before, after = changes[member_id]
            host, instance = (before[name] or after[name] for name in ("client_host", "instance_id"))
        yield GroupEvent(at, _event_kind(what, old), member_id, old, new, offset, causes.get(what), host, instance)


def retract(at: datetime | None, changes: Iterable[LastChange]) -> list[GroupEvent]:
    """Return the events that were emitted for these changes. Only the columns that identify an event are set."""
    return [
        GroupEvent(at, _event_kind(what, change["old"]), change["member_id"], change["old"], None, change["offset"])
        for change in changes
        if (what := change["what"]) not in _WITHOUT_EVENT
    ]


def _to_text(value: object) -> str | None:
    if value is None or value == UNKNOWN_STATE:
        return None
    return ",".join(f"{k}={v}" for k, v in sorted(value.items())) if isinstance(value, dict) else str(value)


def _format_tasks(tasks: Tasks) -> str:
    """Return tasks in the notation of Kafka's logs: ``active 0_0,0_1; standby 1_2``."""
    by_role = groupby(sorted(tasks), key=itemgetter(0))  # in the order of `ROLES`, which is that of the alphabet
    return "; ".join(f"{role} " + ",".join([f"{s}_{p}" for _, s, p in ids]) for role, ids in by_role)


def _shortened(value: str | None) -> str | None:
    """Return a value that is only compared: the value itself, or a hash of a long one."""
    return value if value is None or len(value) <= _MOST_CHARACTERS else digest(value)


def _event_kind(what: str, old: str | None) -> str:
    return _KINDS.get(what, (what, what))[old is not None]


def _causes_of(changes: Changes) -> set[str]:
    pairs = [pair for member_id, pair in changes.items() if member_id is not None]
    # A member has joined once its record 19 was read, which always has a host.
    joined = [new for old, new in pairs if new["client_host"] is not None and old["member"] is None]
    if changes[None][0]["group"] is None:  # the group is new: the members that left belonged to another group
        return {JOINED} if joined else set()
    left = [old for old, new in pairs if old["member"] is not None and new["member"] is None]
    instances_left = {old["instance_id"] for old in left} - {None}
    replaced = sum(new["instance_id"] in instances_left for new in joined)
    # If the host of a member was unknown before, the member is read for the first time.
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
    known = set(causes)
    return ",".join(cause for cause in _CAUSES if cause in known) or None
