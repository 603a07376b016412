"""Checks the chain of a group's events: no duplicates, each starts from the last value, the last equals the row.

Each subject has its own chain: a column of the group, a member, or a member's tasks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streaming_app.groups.group import GroupEvent

_COLUMNS = (
    "state",
    "group_epoch",
    "assignment_epoch",
    "topology_epoch",
    "validated_topology_epoch",
    "stored_description_epoch",
    "failed_description_epoch",
    "description_status",
)
_SUBJECTS = {
    **{name: name for name in _COLUMNS},
    "created": "group",
    "deleted": "group",
    "member_joined": "member",
    "member_left": "member",
    "assignment": "assignment",
}
_COMPARED_BY_PRESENCE = ("group", "member")  # the value may change: a later record may have another client id


def event_key(event: GroupEvent) -> tuple[Any, ...]:
    """Return the key of an event within its group, as in the key of `group_events`."""
    return event.kind, event.member_id, event.offset


def gaps(group_id: str, events: Iterable[GroupEvent], row: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield duplicate events, events that do not continue the previous one, and last events unlike the row."""
    events = sorted(events, key=lambda event: event.offset)
    for key, count in Counter(map(event_key, events)).items():
        if count > 1:
            yield f"{group_id}: {key} occurs {count} times"
    last: dict[tuple[str, str | None], str | None] = {}
    for event in events:
        subject = _SUBJECTS.get(event.kind), event.member_id
        if subject[0] is None:
            continue
        before = last.get((subject[0], event.member_id))
        if _comparable(subject[0], event.old) != _comparable(subject[0], before):
            yield f"{group_id}: {event} follows {before}"
        last[subject[0], event.member_id] = event.new
    if row:
        yield from _compare_with_row(group_id, last, row)


def _comparable(subject: str, value: str | None) -> str | bool | None:
    return value is not None if subject in _COMPARED_BY_PRESENCE else value


def _compare_with_row(
    group_id: str, last: Mapping[tuple[str, str | None], str | None], row: Mapping[str, Any]
) -> Iterator[str]:
    for name in _COLUMNS:
        now = None if row[name] in {None, "Unknown"} else str(row[name])
        if last.get((name, None)) != now:
            yield f"{group_id}: {name} is {last.get((name, None))} in the last event, and {now} in the row"
    joined = {member_id for (subject, member_id), new in last.items() if subject == "member" and new is not None}
    members = {member["member_id"] for member in row["members"]}
    if joined != members:
        yield f"{group_id}: joined and not left are {sorted(map(str, joined))}, and the row has {sorted(members)}"
