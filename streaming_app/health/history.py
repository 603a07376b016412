"""What happened to each group lately, from its events: what the conditions about rates, spells and causes look at.

Theory of operation
-------------------
The caller adds the events of each batch, and after a start those that the table `group_events` holds. They are kept for
`WINDOW`; that the members of a NotReady group gave up, and why it was NotReady, is kept for `GAVE_UP_KEPT_FOR`: the
group is Down for that reason until it has members again. An event that a later batch retracts is removed again; one
that is added twice is kept once.

Times are the broker's. They never go back within a group: a change of the coordinator to one whose clock is behind
would otherwise give spells of negative length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.groups.state_rules import EMPTY, NOT_READY
from streaming_app.text import host_of

GAVE_UP_KEPT_FOR = timedelta(days=15)
WINDOW = timedelta(hours=2)
"""How long other events are looked at: longer than any time over which interruptions are counted."""
_KEPT = 600  # events of one kind and group: enough for any sensible threshold
_PRUNE_EVERY = timedelta(seconds=60)
STATE, ASSIGNED, JOINED, LEFT, REASON = "state", "assignment_epoch", "member_joined", "member_left", "not_ready_reason"
_LISTS: Mapping[str, str] = {
    STATE: "states",
    ASSIGNED: "assignments",
    **dict.fromkeys((JOINED, LEFT), "members"),
    REASON: "reasons",
}
KINDS = tuple(_LISTS)
"""The kinds of events that are kept."""
COLUMNS = ("at", "kind", "member_id", "old", "new", "offset", "cause", "client_host", "instance_id")
"""The columns of `group_events` that a `Row` needs."""
_INITIAL_EPOCH = 1  # of a group without assignments; 0 before Kafka 4.3

Row = Mapping[str, Any]
"""An event with the columns `COLUMNS`."""


class Event(NamedTuple):
    """An event; what its kind does not have is None. Of a state, `old` is None where it is the first one known."""

    at: datetime
    offset: int
    kind: str
    old: str | None = None
    new: str | None = None
    member_id: str | None = None
    place: str | None = None
    """Where a member was: its static instance id, or else its host, or else its client id."""
    cause: str | None = None
    """Of an assignment: as in `group_events`, None where it was written without one."""

    @property
    def key(self) -> tuple[int, str, str]:
        """What identifies it within a group: the order of the log."""
        return self.offset, self.kind, self.member_id or ""

    @property
    def gave_up(self) -> bool:
        """Whether the last members left while the group was NotReady."""
        return self.kind == STATE and self.old == NOT_READY and self.new == EMPTY

    def is_recent(self, since: datetime, gave_up_since: datetime) -> bool:
        """Tell whether it is kept: a gave-up, or the reason of one, is kept since another time."""
        return self.at >= (gave_up_since if self.kind == REASON or self.gave_up else since)


class GroupHistory(NamedTuple):
    """The recent events of one group, in the order of the log.

    It never changes: with each event the group gets another one, so it is the same history as long as it is the same
    object, and whoever was judged by it may keep it.
    """

    states: Sequence[Event] = ()
    assignments: Sequence[Event] = ()
    members: Sequence[Event] = ()
    reasons: Sequence[Event] = ()
    """Why the group was NotReady."""


NO_HISTORY = GroupHistory()
"""Of a group to which nothing happened lately."""


def _event(row: Row) -> Event | None:
    """Return an event of a kind that is kept; None if it says that nothing happened."""
    kind, old, new = row["kind"], row["old"], row["new"]
    if row["at"] is None or kind not in _LISTS or (kind == REASON and not new):
        return None
    if kind == ASSIGNED and None in {old, new}:
        return None  # the first value, or that of a group that is gone
    if kind == ASSIGNED and int(new) <= _INITIAL_EPOCH < int(old):
        return None  # the group was deleted: there is no assignment any more
    place = None
    if kind in {JOINED, LEFT}:
        place = intern(row.get("instance_id") or host_of(row.get("client_host")) or new or old or "")
    return Event(row["at"], row["offset"], kind, old, new, row["member_id"], place, row.get("cause"))


class GroupHistories:
    """The recent events of all groups. Not safe in several threads."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupHistory] = {}
        self._pruned_at: datetime | None = None

    def groups(self) -> Mapping[str, GroupHistory]:
        """Return the history of each group that has one; the mapping changes with the next event."""
        return MappingProxyType(self._groups)

    def add(self, group_id: str, row: Row, now: datetime) -> bool:
        """Add an event. Return whether it is new: of a kept kind, recent, and not there yet."""
        event = _event(row)
        if event is None or not event.is_recent(now - WINDOW, now - GAVE_UP_KEPT_FOR):
            return False
        events, position = self._find(group_id, event)
        if events[position : position + 1] and events[position].key == event.key:
            return False
        if position == 0 and len(events) >= _KEPT:
            return False  # it is older than all that are kept
        if position:
            event = event._replace(at=max(event.at, events[position - 1].at))
        self._set(group_id, event, (*events[:position], event, *events[position:])[-_KEPT:])
        return True

    def retract(self, group_id: str, row: Row) -> None:
        """Remove an event that was added; of `row` only what identifies it is used: kind, member and offset."""
        if group_id not in self._groups or row["kind"] not in _LISTS:
            return
        event = Event(row["at"], row["offset"], row["kind"], member_id=row["member_id"])
        events, position = self._find(group_id, event)
        if events[position : position + 1] and events[position].key == event.key:
            self._set(group_id, event, (*events[:position], *events[position + 1 :]))

    def _find(self, group_id: str, event: Event) -> tuple[Sequence[Event], int]:
        """Return the events with which an event is kept, and its place among them."""
        events = getattr(self._groups.get(group_id, NO_HISTORY), _LISTS[event.kind])
        return events, bisect_left(events, event.key, key=lambda one: one.key)

    def _set(self, group_id: str, event: Event, events: Sequence[Event]) -> None:
        history = self._groups.get(group_id, NO_HISTORY)
        self._groups[group_id] = history._replace(**{_LISTS[event.kind]: events})

    def prune(self, known: Collection[str], now: datetime) -> None:
        """Remove what is too old, about once a minute; of groups that are not in `known` all that is out of the window.

        A group that was deleted may come back: then its outage goes on.
        """
        if self._pruned_at is not None and abs(now - self._pruned_at) < _PRUNE_EVERY:
            return
        self._pruned_at = now
        since = now - WINDOW
        for group_id, history in list(self._groups.items()):
            gave_up_since = now - GAVE_UP_KEPT_FOR if group_id in known else since
            if any(history) and not any(events and events[0].at < since for events in history):
                continue
            kept = GroupHistory(
                *(tuple(one for one in events if one.is_recent(since, gave_up_since)) for events in history)
            )
            if not any(kept):
                del self._groups[group_id]
            elif kept != history:
                self._groups[group_id] = kept
