"""Whether the events of a group form a history: nothing twice, each takes up where the last left off, and ends at now.

"The same" means the same subject: one of the group's columns, or a member, or a member's tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streaming_app.core.life import Event

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
_COMES_AND_GOES = ("group", "member")  # what matters is whether it is there: a member's client id may come later


def key(event: Event) -> tuple[Any, ...]:
    """What tells an event from the others of its group, as the key of `group_events` does."""
    return event.kind, event.member_id, event.offset


def gaps(group_id: str, events: Iterable[Event], row: Mapping[str, Any] | None) -> Iterator[str]:
    """Every event that is there twice, or does not follow from the one before, and every end that is not the row's."""
    events = sorted(events, key=lambda one: one.offset)
    for known, count in Counter(map(key, events)).items():
        if count > 1:
            yield f"{group_id}: {known} is there {count} times"
    last: dict[tuple[str, str | None], str | None] = {}
    for event in events:
        subject = _SUBJECTS.get(event.kind), event.member_id
        if subject[0] is None:
            continue
        before = last.get((subject[0], event.member_id))
        if _shown(subject[0], event.old) != _shown(subject[0], before):
            yield f"{group_id}: {event} follows {before}"
        last[subject[0], event.member_id] = event.new
    if row:
        yield from _ends(group_id, last, row)


def _shown(subject: str, value: str | None) -> str | bool | None:
    return value is not None if subject in _COMES_AND_GOES else value


def _ends(group_id: str, last: Mapping[tuple[str, str | None], str | None], row: Mapping[str, Any]) -> Iterator[str]:
    for name in _COLUMNS:
        now = None if row[name] in {None, "Unknown"} else str(row[name])
        if last.get((name, None)) != now:
            yield f"{group_id}: the last {name} told is {last.get((name, None))}, and the row says {now}"
    told = {member_id for (subject, member_id), new in last.items() if subject == "member" and new is not None}
    members = {member["member_id"] for member in row["members"]}
    if told != members:
        yield f"{group_id}: joined and not left are {sorted(map(str, told))}, and the row has {sorted(members)}"
