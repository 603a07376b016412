"""The recent events of each group, for the conditions about repeated interruptions, assignments and causes.

Theory of operation
-------------------
The caller adds the events of each batch, and after a start those in the table `group_events`. They are kept for
`WINDOW`. Why the group was NotReady is kept for `REASONS_KEPT_FOR`: a group whose members gave up stays Down for this
reason until it has members again. If a later batch retracts an event, it is removed. An event that is added twice is
kept once.

A generation of a classic group is an assignment. While it has members, its state is Unknown, and events have None.

Times are the broker's, and never go back within a group. Otherwise a new coordinator with a slow clock could cause
periods of negative length.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from sys import intern
from typing import Any, NamedTuple

from streaming_app.groups.events import UNKNOWN_STATE
from streaming_app.groups.group import CLASSIC
from streaming_app.groups.snapshot import Versions
from streaming_app.text import host_of

REASONS_KEPT_FOR = timedelta(days=15)
WINDOW = timedelta(hours=2)
"""How long other events are kept: longer than every period over which conditions count events."""
_KEPT = 600  # events of one list and group, the newest: more than any condition counts
_PRUNE_EVERY = timedelta(seconds=60)
STATE, ASSIGNED, JOINED, LEFT, REASON = "state", "assignment_epoch", "member_joined", "member_left", "not_ready_reason"
_GENERATION = "group_epoch"
_LISTS: Mapping[str, str] = {
    STATE: "states",
    ASSIGNED: "assignments",
    **dict.fromkeys((JOINED, LEFT), "members"),
    REASON: "reasons",
}
KINDS = (*_LISTS, _GENERATION)
"""The kinds of events that are kept; generations only of classic groups."""
COLUMNS = ("at", "kind", "member_id", "old", "new", "offset", "cause", "client_host", "instance_id", "protocol")

Row = Mapping[str, Any]
"""An event with the columns `COLUMNS`."""


class Event(NamedTuple):
    """An event. Fields that its kind does not have are None. For the first known state, `old` is None."""

    at: datetime
    offset: int
    kind: str
    old: str | None = None
    new: str | None = None
    member_id: str | None = None
    place: str | None = None
    """The place of a member: its static instance id, or else its host, or else its client id."""
    cause: str | None = None
    """The causes of an assignment, as in `group_events`; None if the row has none."""

    @property
    def key(self) -> tuple[int, str, str]:
        """The identity of the event within its group; sorts in the order of the log."""
        return self.offset, self.kind, self.member_id or ""

    def is_recent(self, since: datetime, reasons_since: datetime) -> bool:
        """Return whether the event is kept."""
        return self.at >= (reasons_since if self.kind == REASON else since)


class GroupHistory(NamedTuple):
    """The recent events of one group, in the order of the log.

    Immutable: with each event the group gets a new history. So the same object means that nothing happened.
    """

    states: Sequence[Event] = ()
    assignments: Sequence[Event] = ()
    members: Sequence[Event] = ()
    reasons: Sequence[Event] = ()


NO_HISTORY = GroupHistory()


def _event(row: Row) -> Event | None:
    """Return the event in a row; None if its kind is not kept, or if it is not a real change."""
    kind, old, new = row["kind"], row["old"], row["new"]
    if row.get("protocol") == CLASSIC:
        if kind == STATE:
            old, new = old or UNKNOWN_STATE, new or UNKNOWN_STATE
        kind = ASSIGNED if kind == _GENERATION else kind
    if row["at"] is None or kind not in _LISTS or (kind == REASON and not new):
        return None
    if kind == ASSIGNED and None in {old, new}:
        return None  # the first known epoch, or the group was deleted
    place = None
    if kind in {JOINED, LEFT}:
        place = intern(row.get("instance_id") or host_of(row.get("client_host")) or new or old or "")
    return Event(row["at"], row["offset"], kind, old, new, row["member_id"], place, row.get("cause"))


class GroupHistories:
    """The recent events of all groups. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupHistory] = {}
        self._shown, self._changed = Versions[GroupHistory](), set[str]()
        self._pruned_at: datetime | None = None

    def groups(self) -> Mapping[str, GroupHistory]:
        """Return the history of each group that has one: the same object if nothing has changed since the last call."""
        if self._changed:
            changes = {one: self._groups[one] for one in sorted(self._changed) if one in self._groups}
            self._shown = self._shown.after(changes, sorted(self._changed - changes.keys()))
            self._changed = set()
        return self._shown

    def add(self, group_id: str, row: Row, now: datetime) -> bool:
        """Add an event. Return whether it is new: of a kept kind, recent, and not added before."""
        event = _event(row)
        if event is None or not event.is_recent(now - WINDOW, now - REASONS_KEPT_FOR):
            return False
        events, position = self._find(group_id, event)
        if events[position : position + 1] and events[position].key == event.key:
            return False
        if position == 0 and len(events) >= _KEPT:
            return False  # it is older than all kept events
        if position:
            event = event._replace(at=max(event.at, events[position - 1].at))
        self._set(group_id, event, (*events[:position], event, *events[position:])[-_KEPT:])
        return True

    def retract(self, group_id: str, row: Row) -> None:
        """Remove an event that was added. Only kind, member and offset of `row` are used."""
        if group_id not in self._groups or row["kind"] not in _LISTS:
            return
        event = Event(row["at"], row["offset"], row["kind"], member_id=row["member_id"])
        events, position = self._find(group_id, event)
        if events[position : position + 1] and events[position].key == event.key:
            self._set(group_id, event, (*events[:position], *events[position + 1 :]))

    def _find(self, group_id: str, event: Event) -> tuple[Sequence[Event], int]:
        events = getattr(self._groups.get(group_id, NO_HISTORY), _LISTS[event.kind])
        return events, bisect_left(events, event.key, key=lambda one: one.key)

    def _set(self, group_id: str, event: Event, events: Sequence[Event]) -> None:
        history = self._groups.get(group_id, NO_HISTORY)
        self._groups[group_id] = history._replace(**{_LISTS[event.kind]: events})
        self._changed.add(group_id)

    def prune(self, known: Collection[str], now: datetime) -> None:
        """Remove old events, about once a minute; for groups that are not in `known`, all that are older than `WINDOW`.

        The recent events of a deleted group are kept: if it comes back, its outage continues.
        """
        if self._pruned_at is not None and abs(now - self._pruned_at) < _PRUNE_EVERY:
            return
        self._pruned_at = now
        since = now - WINDOW
        for group_id, history in list(self._groups.items()):
            reasons_since = now - REASONS_KEPT_FOR if group_id in known else since
            if any(history) and not any(events and events[0].at < since for events in history):
                continue
            kept = GroupHistory(
                *(tuple(one for one in events if one.is_recent(since, reasons_since)) for events in history)
            )
            if not any(kept):
                del self._groups[group_id]
                self._changed.add(group_id)
            elif kept != history:
                self._groups[group_id] = kept
                self._changed.add(group_id)
