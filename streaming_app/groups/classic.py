"""Kafka Streams applications with the classic protocol: the effect of a record 2 on a group, and its copies of tasks.

Theory of operation
-------------------
The coordinator of a classic group knows no tasks. But the record that it writes at the end of each rebalance holds the
bytes with which the members and their leader agreed: what each member reported when it joined, and its assignment
(`offsets_decoder.streams_protocol`). One record has the whole group, so it is an operation of its own, and everything
here is as of the last rebalance. Nothing is written while a rebalance goes on: of a group with members the log does not
contain the state.

Who has which task (`StreamsPartitionAssignor`, Kafka 2.4 to 4.4):

- An active task that changes hands is in no member until the rebalance that follows at once. Its next owner may have it
  as a standby meanwhile. If only one member has it so, this is the next owner, and the row has the task as its target.
- Releases up to 2.5 assign standbys of tasks without state, and clients do not create them. So there a standby of a
  subtopology of which no member reported offsets is no copy; from 2.6 on, a standby proves that the task has state.
- While a probing rebalance is set, a task with more copies than the least of the tasks with state has warm-ups. The
  record does not name them. Of several copies, those that are the least far are the warm-ups.

The source topics of a subtopology are those of its tasks. While tasks change hands, what earlier records proved stays.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from offsets_decoder.streams_protocol import Assignment, Subscription, decode_assignment, decode_subscription
from streaming_app.groups.events import FOLLOW_UP
from streaming_app.groups.group import ACTIVE, CLASSIC, STANDBY, WARMUP, Group, Member, Tasks

AT_END = -2
"""The sum that a client reports for a running active task: `Task.LATEST_OFFSET`, at the end of its changelogs."""
_CONSUMER, _STREAM = "consumer", "stream"  # protocol type; name of the assignor, which clients cannot configure
_NOT_FLEXIBLE = 3  # the highest version of the value in which lengths have a fixed size
_OVERFLOW = (1 << 63) - 1
_STATEFUL_STANDBYS = 7  # the version of AssignmentInfo from which on leaders (2.6) assign only standbys with state
_SOON = timedelta(minutes=15)  # a rebalance that fails leaves no record: after so long, compaction may have removed one
_RELEASES = "2.0", "2.1 to 2.3", "2.4", "2.5", "2.6", "2.6 or 2.7", "2.8", "3.0 or 3.1", "3.2 or newer"
RELEASES = dict(enumerate(_RELEASES, start=3))
"""Newest version of SubscriptionInfo that a client supports -> its releases (`StreamsAssignmentProtocolVersions`)."""
_OF_RECORD = {"instance_id": "group_instance_id", "client_id": "client_id", "client_host": "client_host"}
_OF_SUBSCRIPTION = ("process_id", "user_endpoint", "client_tags")
_REPARTITION = "-repartition"

Task = tuple[str, int]  # subtopology id, partition
T = TypeVar("T")


def may_be_streams(value: bytes) -> bool:
    """Return whether a value of record 2 is worth decoding: of Kafka Streams, or of a group without a protocol.

    Other values may have a megabyte. In versions 0 to 3, which brokers write, positions are fixed (Kafka 4.4): protocol
    type, generation, protocol.
    """
    if int.from_bytes(value[:2], "big", signed=True) > _NOT_FLEXIBLE:
        return True
    return value[2:12] == b"\x00\x08consumer" and (is_of_assignor(value) or value[16:18] == b"\xff\xff")


def is_of_assignor(value: bytes) -> bool:
    """Return whether a value of record 2 is of members that agreed on the assignor of Kafka Streams."""
    is_flexible = int.from_bytes(value[:2], "big", signed=True) > _NOT_FLEXIBLE
    return value[15:22] == b"\x07stream" if is_flexible else value[16:24] == b"\x00\x06stream"


def is_streams(value: Mapping[str, Any] | None) -> bool:
    """Return whether a value of record 2 is of members that agreed on the assignor of Kafka Streams."""
    return value is not None and (value.get("protocol_type"), value.get("protocol")) == (_CONSUMER, _STREAM)


def has_no_members(value: Mapping[str, Any] | None) -> bool:
    """Return whether a value of record 2 is of a group without members: then it has no protocol."""
    return value is not None and value.get("protocol") is None and value.get("members") == []


def created_at(value: Mapping[str, Any], at: datetime | None) -> datetime | None:
    """Return when the group of a first known record was created; None if the log does not prove it.

    The first generation is 1. A static member that is back writes the record again, with the time of the generation.
    """
    entered = entered_at(value)
    return min(entered, at) if value["generation"] <= 1 and entered and at else None


def entered_at(value: Mapping[str, Any]) -> datetime | None:
    """Return when the group entered the state that it had when the record was written; None before Kafka 2.1."""
    return time_of(value.get("current_state_timestamp", -1))


def apply(group: Group, value: Mapping[str, Any], at: datetime | None) -> bool:
    """Give a group the content of a record 2; `group.updated_at` is the time of the record before.

    Return whether the record proves the whole topology: who has each task.
    """
    entries = {one["member_id"]: one for one in value["members"]}
    joined_at = _joined_at(group, value["generation"], at)
    group.group_epoch, before = value["generation"], dict(group.members)
    group.members, group.targets = {}, {}
    group.members_in.clear()
    assigned, undecoded = dict[str, Assignment](), 0
    previous_standbys = set[Task]()
    for member_id in dict.fromkeys((*(one for one in before if one in entries), *entries)):  # as they joined
        entry, old = entries[member_id], before.get(member_id)
        sent, assignment = decode_subscription(entry["subscription"]), decode_assignment(entry["assignment"])
        if assignment:
            assigned[member_id] = assignment
        if sent:
            previous_standbys |= sent.previous_standby
        undecoded += sent is None or (assignment is None and bool(entry["assignment"]))
        joined = old.joined_at if old else joined_at
        group.add_member(_member(entry, sent, assignment, group.group_epoch, joined, at))
    hosts = (one.client_host for one in group.members.values() if one.client_host)
    group.client_host = group.client_host or next(hosts, None)
    group.causes_since_assignment = FOLLOW_UP if group.tasks_moving or group.probing_rebalance_at else None
    times = [one.next_rebalance_ms for one in assigned.values() if one.next_rebalance_ms is not None]
    group.undecoded_members, group.tasks_moving = undecoded, 0 in times
    group.probing_rebalance_at = min(filter(None, map(time_of, filter(None, times))), default=None)
    errors = {one.error_code for one in assigned.values() if one.error_code}
    group.assignment_error = max(errors, default=None) if group.members else group.assignment_error
    is_whole = bool(assigned) and not (undecoded or group.tasks_moving or errors)
    _set_subtopologies(group, assigned, previous_standbys, is_whole=is_whole)
    _set_tasks(group, assigned, before)
    return is_whole


def proven(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row proves of a group that is read again, and its newest record perhaps does not."""
    joined = [{name: one[name] for name in ("member_id", "joined_at")} for one in row["members"] or ()]
    return {"protocol": CLASSIC, "joined": joined, **{name: row[name] for name in ("subtopologies", "topology_hash")}}


def fill(group: Group, before: Mapping[str, Any]) -> None:
    """Fill a group that is read again from `proven` facts of its old row."""
    for one in before["joined"]:
        if (member := group.members.get(one["member_id"])) and member.joined_at is None:
            member.joined_at = one["joined_at"]
    known = {one["subtopology_id"]: one for one in group.subtopologies}
    group.topology_hash = group.topology_hash or before["topology_hash"]
    for row in before["subtopologies"] or ():
        if now := known.get(row["subtopology_id"]):
            now["has_state"] = now["has_state"] or row["has_state"]
        elif group.tasks_moving or not group.members:
            group.subtopologies.append(row)


def _joined_at(group: Group, generation: int, at: datetime | None) -> datetime | None:
    """Return when members that are new in this record joined; None if an earlier record may have had them."""
    if group.group_epoch is None:
        return group.first_seen_at
    is_soon = None not in (at, group.updated_at) and at - group.updated_at <= _SOON  # type: ignore[operator]
    return at if generation <= group.group_epoch + 1 or is_soon else None


def _member(  # noqa: PLR0913, PLR0917 - each is a part of the record
    entry: Mapping[str, Any],
    sent: Subscription | None,
    assignment: Assignment | None,
    generation: int,
    joined_at: datetime | None,
    at: datetime | None,
) -> Member:
    member = Member(entry["member_id"], joined_at, generation, updated_at=at)
    for name, source in _OF_RECORD.items():
        setattr(member, name, entry.get(source) or None)
    for name in ("rebalance_timeout", "session_timeout"):
        timeout = entry.get(name, -1)
        setattr(member, f"{name}_ms", timeout if timeout >= 0 else None)
    if sent:
        for name in _OF_SUBSCRIPTION:
            setattr(member, name, getattr(sent, name))
        member.rack_id, member.client_version = sent.rack_id, sent.latest_version
        member.task_sums = {task: known for task, one in sent.offset_sums.items() if (known := _known(one)) is not None}
    member.assignment_error = (assignment.error_code or None) if assignment else None
    return member


def _known(offset: int | None) -> int | None:
    """Return a sum, or `AT_END`; None if the client did not know it (2^63-1 is an overflow)."""
    return offset if offset is not None and (offset == AT_END or 0 <= offset < _OVERFLOW) else None


def _set_subtopologies(
    group: Group, assigned: Mapping[str, Assignment], previous_standbys: Iterable[Task], *, is_whole: bool
) -> None:
    """Set the subtopologies, with their source topics; keep those of earlier records unless this one has all tasks."""
    topics = defaultdict[str, set[str]](set)
    for one in assigned.values():
        for (subtopology_id, _), partitions in (*one.active.items(), *one.standby.items()):
            topics[subtopology_id].update(topic for topic, _ in partitions)
    sums = (task for member in group.members.values() for task in member.task_sums)
    standbys = (task for one in assigned.values() if one.version >= _STATEFUL_STANDBYS for task in one.standby)
    stateful = {subtopology_id for subtopology_id, _ in (*sums, *previous_standbys, *standbys)}
    known = {row["subtopology_id"]: row for row in group.subtopologies}
    if not is_whole:
        for subtopology_id, row in known.items():
            topics[subtopology_id].update(_topics(row))
    group.subtopologies = [
        _subtopology(group.group_id, one, topics[one], has_state=one in stateful or known.get(one, {}).get("has_state"))
        for one in sorted(topics, key=lambda one: (len(one), one))
    ]


def _subtopology(
    group_id: str, subtopology_id: str, topics: Iterable[str], *, has_state: bool | None
) -> dict[str, Any]:
    """Return a row of `subtopologies`. What the log does not have is None."""
    internal = {one for one in topics if one.startswith(f"{group_id}-") and one.endswith(_REPARTITION)}
    unknown = dict.fromkeys(("partitions", "replication_factor", "topic_configs"))
    return {
        **dict.fromkeys(("topology_epoch", "source_topic_regex", "repartition_sink_topics")),
        **dict.fromkeys(("state_changelog_topics", "copartition_groups")),
        "subtopology_id": subtopology_id,
        "source_topics": sorted(set(topics) - internal),
        "repartition_source_topics": [{"name": one, **unknown} for one in sorted(internal)],
        "has_state": has_state or None,
    }


def _topics(row: Mapping[str, Any]) -> Iterator[str]:
    yield from row["source_topics"] or ()
    yield from (topic["name"] for topic in row["repartition_source_topics"] or ())


def _set_tasks(group: Group, assigned: Mapping[str, Assignment], before: Mapping[str, Member]) -> None:
    """Give each member its tasks. A task that it had in the same role keeps the generation of then."""
    stateful = {row["subtopology_id"] for row in group.subtopologies if row["has_state"]}
    active, held = set[Task](), defaultdict[Task, list[str]](list)
    found = {member_id: Tasks() for member_id in group.members}
    for member_id, one in assigned.items():
        active.update(one.active)
        found[member_id] = {(ACTIVE, *task): 0 for task in one.active}
        for task in one.standby:
            if task[0] in stateful:
                held[task].append(member_id)
    owner_to_be = dict[Task, str]()
    for task, role, member_id in _roles(group, active, held):
        if role == ACTIVE:
            owner_to_be[task] = member_id
        else:
            found[member_id][(role, *task)] = 0
    for member_id, tasks in found.items():
        old = before[member_id].current if member_id in before else {}
        group.members[member_id].current = {task: old.get(task, group.group_epoch or 0) for task in tasks}
        if tasks:
            group.targets[member_id] = dict.fromkeys(tasks, 0)
    for task, member_id in owner_to_be.items():
        group.targets.setdefault(member_id, {})[(ACTIVE, *task)] = 0


def _roles(group: Group, active: set[Task], held: Mapping[Task, list[str]]) -> Iterator[tuple[Task, str, str]]:
    """Yield (task, role, member id) of standbys; the role `active` of the next owner of a task that changes hands."""
    stateful = {row["subtopology_id"] for row in group.subtopologies if row["has_state"]}
    copies = {task: 1 + len(held.get(task, ())) for task in active if task[0] in stateful}
    least = min(copies.values(), default=0)
    sums = furthest((process_of(one), *told, one) for one in group.members.values() for told in one.task_sums.items())
    for task, members in held.items():
        if task not in active and group.tasks_moving:
            if len(members) == 1:  # else it is not known which of them is the next owner
                yield task, ACTIVE, members[0]
            continue
        warmups = copies.get(task, 0) - least if group.probing_rebalance_at else 0
        ordered = sorted(
            members, key=lambda one: _how_far(sums.get((process_of(group.members[one]), task), (None,))[0])
        )
        for place, member_id in enumerate(ordered):
            yield task, WARMUP if place < warmups else STANDBY, member_id


def process_of(member: Member) -> str:
    """Return the process of a member; the member itself if that is not known."""
    return member.process_id or member.member_id


def furthest(told: Iterable[tuple[str, Task, int, T]]) -> dict[tuple[str, Task], tuple[int, T]]:
    """Return by process and task the highest sum, and who told it: a thread tells those of tasks that another one has.

    `told` has a process, a task, its sum or `AT_END`, and the member.
    """
    found = dict[tuple[str, Task], tuple[int, T]]()
    for process, task, offset, member in told:
        if (key := (process, task)) not in found or _how_far(offset) >= _how_far(found[key][0]):
            found[key] = offset, member
    return found


def _how_far(offset: int | None) -> float:
    return -1 if offset is None else float("inf") if offset == AT_END else offset


def time_of(milliseconds: int) -> datetime | None:
    """Return a time in milliseconds since 1970; None for -1, and for a time that is no date."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc) if milliseconds >= 0 else None
    except (ValueError, OverflowError, OSError):
        return None
