"""The answers of `history`: events of a group, which member had a task at which time, and a group at a past time.

All come from `group_events` alone, so they also work for deleted groups; only what waited for a group when it was
deleted is from `lag_history`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from streaming_app.errors import WarehouseError
from streaming_app.groups.events import PROTOCOL_CHANGED, TOPIC_DELETED
from streaming_app.groups.group import ACTIVE
from streaming_app.groups.state_rules import NOT_READY
from streaming_app.queries.behind import lag_at
from streaming_app.queries.described import find_groups
from streaming_app.queries.output import title
from streaming_app.tables.reader import Row, WarehouseReader, of_group, time_literal
from streaming_app.text import EPOCH, count, first_of, utc, utc_iso

Event = Row
"""A row of `group_events`."""

_ASSIGNMENT, _JOINED, _LEFT, _DELETED = "assignment", "member_joined", "member_left", "deleted"
_OTHER_TASKS = {"topology_epoch", "created", PROTOCOL_CHANGED}  # after such an event the tasks may be others
_GROUP_VALUES = ("state", "group_epoch", "assignment_epoch", "topology_epoch", "description_status", "not_ready_reason")
_COLUMNS = "at, kind, member_id, client_host, instance_id, old, new, cause, topic, partition"
_ACT, _NAMED = itemgetter("at", "kind", "cause"), 3
FOLDED = """(SELECT *, count(*) OVER (PARTITION BY at, kind) AS places,
  row_number() OVER (PARTITION BY at, kind ORDER BY topic, "partition") AS place FROM group_events WHERE {where}
  AND void IS NOT TRUE) AS e WHERE (topic IS NULL OR place = 1)"""
"""SQL for the events of a group; of the partitions or topics of one act only the first, of so many `places`."""
_OF_MEMBER = ("client_id", "client_host", "instance_id", "joined_at", "tasks", "tasks_since")


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
        find_groups(reader, cluster, [group_id], with_classic=True)
        raise WarehouseError(f"There are no events of group {group_id!r} within the retention")
    return events


def group_at(events: Sequence[Event], time: datetime) -> Row:
    """Return the group at a time; a value is None if there was none, or no event has it.

    It has the state, the epochs and `deleted_at`; its `members`, by id, whose `tasks` have the form of
    `group_events`, ``active 0_0,0_1; standby 1_2``; and `unowned`, the tasks that no member had as active, as
    `unowned_tasks` returns them. Raises WarehouseError if no event is as old.
    """
    known = [event for event in events if event["at"] is None or event["at"] <= time]
    if not known:
        asked, earliest = utc_iso(time, "seconds"), utc_iso(events[0]["at"], "seconds")
        raise WarehouseError(f"Nothing is known about the group at {asked}: see --at {earliest}")
    group: dict[str, Any] = dict.fromkeys((*_GROUP_VALUES, "deleted_at"))
    members = dict[str, dict[str, Any]]()
    for event in known:
        if event["kind"] in _GROUP_VALUES:
            group[event["kind"]] = event["new"]
        elif event["kind"] == "created":
            group["deleted_at"] = None
        elif event["kind"] == _DELETED:
            group["deleted_at"] = event["at"]
            members.clear()
        else:
            _apply_to_members(members, event)
    if group["state"] != NOT_READY:
        group["not_ready_reason"] = None  # no event says that a reason is over
    return {**group, "members": dict(sorted(members.items())), "unowned": unowned_tasks(known)}


def _apply_to_members(members: dict[str, dict[str, Any]], event: Event) -> None:
    kind, member_id, new = event["kind"], event["member_id"], event["new"]
    if kind == _LEFT:
        members.pop(member_id, None)
    elif kind == _JOINED or (kind == _ASSIGNMENT and (new is not None or member_id in members)):
        member = members.setdefault(member_id, {"member_id": member_id, **dict.fromkeys(_OF_MEMBER)})
        if kind == _ASSIGNMENT:
            member |= {"tasks": new, "tasks_since": event["at"]}
        else:
            place = {name: event[name] for name in ("client_host", "instance_id")}
            member |= {"client_id": new, "joined_at": event["at"], **place}


def unowned_tasks(events: Sequence[Event]) -> list[str]:
    """Return the tasks that no member has after these events, but that one had after the last topology change.

    A task from before that change may no longer be in the topology.
    """
    dated = [{**event, "at": event["at"] or EPOCH} for event in events]
    changed = max((one["at"] for one in dated if one["kind"] in _OTHER_TASKS), default=EPOCH)
    active = [one for one in task_spells(dated) if one["role"] == ACTIVE]
    owned = {one["task"] for one in active if one["until"] is None}
    last = {one["task"]: one["since"] or EPOCH for one in active}
    return [task for task, since in last.items() if task not in owned and since >= changed]


def task_spells(events: Iterable[Event]) -> list[Row]:
    """Return which members had which task, in which role and when, oldest first; `until` is None for now."""
    spells = list[Row]()
    held = dict[str, dict[str, Row]]()
    hosts: dict[str, str | None] = {}
    for event in events:
        member_id, kind = event["member_id"], event["kind"]
        if kind == _JOINED:
            hosts[member_id] = event["client_host"]
        if kind not in {_ASSIGNMENT, _LEFT, _DELETED}:
            continue
        tasks = event["new"] if kind == _ASSIGNMENT else None
        roles = {f"{part}_{number}": role for role, part, number in parse_tasks(tasks)}
        for member in list(held) if kind == _DELETED else [member_id]:
            own = held.setdefault(member, {})
            for task in [one for one, spell in own.items() if roles.get(one) != spell["role"]]:
                own.pop(task)["until"] = event["at"]
        for task, role in roles.items():
            if task not in held[member_id]:
                owner = {"member_id": member_id, "client_host": hosts.get(member_id)}
                spells.append({"task": task, "role": role, **owner, "since": event["at"], "until": None})
                held[member_id][task] = spells[-1]
    return spells


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


def events_of_member(events: Sequence[Event], member: str) -> list[Event]:
    """Return the events of the members with this member id or instance id."""
    ids = {event["member_id"] for event in events if member in {event["member_id"], event["instance_id"]}}
    return [event for event in events if event["member_id"] in ids and event["member_id"] is not None]


def add_waited(reader: WarehouseReader, cluster: str, group_id: str, events: Sequence[Event]) -> list[Event]:
    """Return the events; each deletion of the group has in `waited` how many offsets waited then, if that is known."""
    found = []
    for event in events:
        is_deletion = event["kind"] == _DELETED and event["at"]
        lags = [row["lag"] for row in lag_at(reader, cluster, group_id, event["at"])] if is_deletion else []
        found.append({**event, "waited": sum(filter(None, lags))} if any(one is not None for one in lags) else event)
    return found


def _place(event: Mapping[str, Any]) -> str:
    return event["topic"] if event["partition"] is None else f"{event['topic']}-{event['partition']}"


def act_text(event: Mapping[str, Any]) -> str:
    """Return on what somebody acted, from which value to which. Of so many `places` the event has one."""
    what, more = ("topic" if event["partition"] is None else "partition"), event["places"] - 1
    change = f" from {event['old'] or 'an offset that is not known'}" if event["kind"] != TOPIC_DELETED else ""
    change += f" to {event['new']}" if event["new"] else ""
    return f"{_place(event)}{change}" + (f" and {count(more, f'more {what}')}" if more else "")


def act_line(reader: WarehouseReader, cluster: str, group_id: str, since: datetime) -> str | None:
    """Return a line about the last act on the offsets or topics of a group since a time; None if there was none."""
    where = f"{of_group(cluster, group_id)} AND topic IS NOT NULL AND at >= {time_literal(since)}"
    last = f"{FOLDED.format(where=where)} ORDER BY at DESC, e.offset DESC LIMIT 1"
    for row in reader.rows(f"SELECT {_COLUMNS}, places FROM {last}"):  # noqa: S608 - quoted
        cause = f" ({row['cause'].replace('_', ' ').replace(',', ', ')})" if row["cause"] else ""
        return f"  {row['kind'].replace('_', ' ').capitalize()} at {utc(row['at'])}{cause}: {act_text(row)}."
    return None


def _fold_acts(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the events; one for all partitions or topics of an act, which `old` and `new` name."""
    for act, some in groupby(events, lambda one: _ACT(one) if one["topic"] else None):
        if act is None:
            yield from some
            continue
        rows = sorted(some, key=itemgetter("topic", "partition"))
        texts = {name: [f"{_place(row)}={row[name]}" for row in rows if row[name]] for name in ("old", "new")}
        yield {**rows[0], **{name: first_of(those, _NAMED) or None for name, those in texts.items()}}


def event_rows(events: Sequence[Event], limit: int) -> list[Row]:
    """Return the newest output lines for events; columns that all of them lack are omitted."""
    names = ("at", "kind", "member_id", "client_host", "old", "new", "cause", "waited")
    events = [{"waited": None, **event} for event in _fold_acts(events)][-limit:]
    used = [name for name in names if name in {"at", "kind"} or any(event[name] is not None for event in events)]
    return titled({name: event[name] for name in used} for event in events)


def group_rows(group: Row) -> list[Row]:
    """Return the output line about a group at a time."""
    values = {name: group[name] for name in _GROUP_VALUES}
    deleted = {"deleted_at": group["deleted_at"]} if group["deleted_at"] else {}
    return titled([{**values, "members": len(group["members"]), **deleted}])


def titled(rows: Iterable[Row]) -> list[Row]:
    """Return rows with the titles of the output lines about them."""
    return [{title(name): value for name, value in row.items()} for row in rows]
