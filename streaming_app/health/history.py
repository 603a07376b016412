"""What happened to each group lately, from its events: what the rules about rates, spells and causes look at.

Theory of operation
-------------------
The caller adds the events of each batch, and after a start those that the table `group_events` holds. They are kept for
`window`; that the members of a NotReady group gave up, and why it was NotReady, is kept for `GAVE_UP_KEPT_FOR`: the
group is Down for that reason until it has members again. An event that a later batch retracts is removed again; one
that is added twice is kept once.

Times are the broker's. They never go back within a group: a change of the coordinator to one whose clock is behind
would otherwise give spells of negative length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.groups.state_rules import EMPTY, NONE, NOT_READY, UNCERTAIN
from streaming_app.text import host_of

GAVE_UP_KEPT_FOR = timedelta(days=15)
WINDOW = timedelta(hours=2)
"""How long other events are looked at: longer than any time over which interruptions are counted."""
_KEPT = 10_000  # events of one kind and group: enough for any sensible threshold
_PRUNE_EVERY = timedelta(seconds=60)
_PUSHED, _STORED, _FAILED = "unsolicited_push", "stored_description_epoch", "failed_description_epoch"
_INITIAL_EPOCH = 1  # of a group without assignments; 0 before Kafka 4.3
REBALANCE = "rebalance"
BEGUN, STORED, REJECTED, REMOVED = CALLS = ("begun", "stored", "rejected", "removed")
"""What the log says of calls of the plugin: one is about to be made, a description was stored, rejected for good, or
removed by a deletion or the clean-up. A call that fails for now leaves only its beginning, and only the first time."""

Row = Mapping[str, Any]
"""An event with columns of `group_events`: at, kind, member_id, old, new, offset, cause, client_host, instance_id."""


class StateChange(NamedTuple):
    """The group entered `state`, after `old`; None for its first known state."""

    at: datetime
    offset: int
    old: str | None
    state: str

    @property
    def gave_up(self) -> bool:
        """Whether the last members left while the group was NotReady."""
        return self.old == NOT_READY and self.state == EMPTY


class Assignment(NamedTuple):
    """The group got a new assignment; `cause` as in `group_events`, None where it was written without one."""

    at: datetime
    offset: int
    cause: str | None


class MemberChange(NamedTuple):
    """A member joined or left; `place` is its static instance id, or else its host, or else its client id."""

    at: datetime
    offset: int
    member_id: str
    joined: bool
    place: str


class Reason(NamedTuple):
    """Why the group was NotReady."""

    at: datetime
    offset: int
    text: str


class PluginCall(NamedTuple):
    """What an event says of the plugin for topology descriptions: kept so that each event counts once."""

    at: datetime
    offset: int
    kind: str


class GroupHistory(NamedTuple):
    """The recent events of one group, those of each kind in the order of the log.

    It never changes: with each event the group gets another one, so it is the same history as long as it is the same
    object, and whoever was judged by it may keep it.
    """

    states: Sequence[StateChange] = ()
    assignments: Sequence[Assignment] = ()
    members: Sequence[MemberChange] = ()
    reasons: Sequence[Reason] = ()
    calls: Sequence[PluginCall] = ()

    def pruned(self, since: datetime, gave_up_since: datetime) -> GroupHistory:
        """Return it without what is older than `since`, or, of why members gave up, than `gave_up_since`."""
        kept: dict[str, Any] = {}
        lists: Iterable[Sequence[Any]] = self
        for name, entries in zip(self._fields, lists, strict=True):
            kept_since = gave_up_since if name == "reasons" else since
            if not entries or entries[0].at >= kept_since:
                continue
            left = tuple(one for one in entries if one.at >= (gave_up_since if _gave_up(one) else kept_since))
            if len(left) < len(entries):
                kept[name] = left
        return self._replace(**kept) if kept else self

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not any(self)


NO_HISTORY = GroupHistory()
"""Of a group to which nothing happened lately."""


def _gave_up(entry: object) -> bool:
    return isinstance(entry, StateChange) and entry.gave_up


def _state(event: Row) -> StateChange:
    return StateChange(event["at"], event["offset"], event["old"], event["new"])


def _assignment(event: Row) -> Assignment | None:
    if None in {event["old"], event["new"]}:
        return None  # the first value is no assignment
    if int(event["new"]) <= _INITIAL_EPOCH < int(event["old"]):
        return None  # the group was deleted: there is no assignment any more
    return Assignment(event["at"], event["offset"], event.get("cause"))


def _member(event: Row) -> MemberChange:
    host = host_of(event.get("client_host"))
    place = intern(event.get("instance_id") or host or event["new"] or event["old"] or "")
    joined = event["kind"] == "member_joined"
    return MemberChange(event["at"], event["offset"], event["member_id"], joined, place)


def _reason(event: Row) -> Reason | None:
    return Reason(event["at"], event["offset"], event["new"]) if event["new"] else None


def _call(event: Row) -> PluginCall | None:
    if event["kind"] != _PUSHED and None in {event["old"], event["new"]}:
        return None  # the first value, or that of a group that is gone
    return PluginCall(event["at"], event["offset"], event["kind"])


# kind of event -> the field that keeps it, and the entry that is made of it
_ENTRIES: Mapping[str, tuple[str, Callable[[Row], Any]]] = {
    "state": ("states", _state),
    "assignment_epoch": ("assignments", _assignment),
    "member_joined": ("members", _member),
    "member_left": ("members", _member),
    "not_ready_reason": ("reasons", _reason),
    **dict.fromkeys((_PUSHED, _STORED, _FAILED), ("calls", _call)),
}
KINDS = tuple(_ENTRIES)
"""The kinds of events that are kept."""
COLUMNS = ("at", "kind", "member_id", "old", "new", "offset", "cause", "client_host", "instance_id")
"""The columns of `group_events` that a `Row` needs."""


def count(events: Collection[Row]) -> Counter[str]:
    """Count what new events of one group say: `REBALANCE` and `CALLS`.

    Values that a record has for less than a millisecond leave no event: neither has the epoch before a call that the
    plugin answers at once, nor both of a push that stores the same epoch again, of which the event of the push is left.
    """
    found: Counter[str] = Counter()
    begun_at = {event["at"] for event in events if event["kind"] == _STORED and event["new"] == str(UNCERTAIN)}
    for event in events:
        if event["kind"] == "assignment_epoch":
            found[REBALANCE] += 1
        elif event["kind"] == _FAILED:
            found[REJECTED] += 1
        elif event["kind"] == _PUSHED:
            found.update([] if event["at"] in begun_at else [BEGUN, STORED])
        elif event["kind"] == _STORED and event["new"] == str(UNCERTAIN):
            found[BEGUN] += 1
        elif event["kind"] == _STORED:
            found[REMOVED if event["new"] == str(NONE) else STORED] += 1
            found[BEGUN] += event["old"] != str(UNCERTAIN)
    return found


class GroupHistories:
    """The recent events of all groups. Not safe in several threads."""

    def __init__(self, window: timedelta) -> None:
        self.window = window
        self._groups: dict[str, GroupHistory] = {}
        self._pruned_at: datetime | None = None

    def groups(self) -> Mapping[str, GroupHistory]:
        """Return the history of each group that has one; the mapping changes with the next event."""
        return MappingProxyType(self._groups)

    def add(self, group_id: str, event: Row, now: datetime) -> bool:
        """Add an event. Return whether it is new: of a kept kind, recent, and not there yet."""
        if event["kind"] not in _ENTRIES or event["at"] is None:
            return False
        name, make_entry = _ENTRIES[event["kind"]]
        entry = make_entry(event)
        if entry is None or entry.at < now - self._kept_for(entry):
            return False
        history = self._groups.get(group_id, NO_HISTORY)
        entries = getattr(history, name)
        position = bisect_left(entries, _key(entry), key=_key)
        if position < len(entries) and _key(entries[position]) == _key(entry):
            return False
        if position and entry.at < entries[position - 1].at:
            entry = entry._replace(at=entries[position - 1].at)
        # Where it is the newest one, these are one copy of thousands of entries; unpacked they would be three.
        longer = entries[:position] + (entry,) + entries[position:]  # noqa: RUF005 - see above
        self._groups[group_id] = history._replace(**{name: longer[-_KEPT:]})
        return True

    def retract(self, group_id: str, event: Row) -> None:
        """Remove an event that was added; of `event` only what identifies it is used: kind, member and offset."""
        history = self._groups.get(group_id)
        if history is None or event["kind"] not in _ENTRIES:
            return
        name, _ = _ENTRIES[event["kind"]]
        entries = getattr(history, name)
        key = event["offset"], event["kind"] if name == "calls" else event["member_id"] or ""
        position = bisect_left(entries, key, key=_key)
        if position < len(entries) and _key(entries[position]) == key:
            left = (*entries[:position], *entries[position + 1 :])
            self._groups[group_id] = history._replace(**{name: left})

    def prune(self, known: Collection[str], now: datetime) -> None:
        """Remove what is too old, about once a minute; of groups that are not in `known` all that is out of the window.

        A group that was deleted may come back: then its outage goes on.
        """
        if self._pruned_at is not None and abs(now - self._pruned_at) < _PRUNE_EVERY:
            return
        self._pruned_at = now
        since, gave_up_since = now - self.window, now - GAVE_UP_KEPT_FOR
        for group_id, history in list(self._groups.items()):
            self._groups[group_id] = kept = history.pruned(since, gave_up_since if group_id in known else since)
            if kept.is_empty:
                del self._groups[group_id]

    def _kept_for(self, entry: object) -> timedelta:
        is_kept_longer = isinstance(entry, Reason) or _gave_up(entry)
        return GAVE_UP_KEPT_FOR if is_kept_longer else self.window


def _key(entry: Any) -> tuple[int, str]:  # noqa: ANN401 - an entry of any list
    return entry.offset, entry.kind if isinstance(entry, PluginCall) else getattr(entry, "member_id", "")
