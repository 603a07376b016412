"""What happened to each group lately, from its events: what the rules about rates, spells and causes look at.

Theory of operation
-------------------
The caller adds the events of each batch, and after a start those that the table `group_events` holds. They are kept for
`window`; changes to and from Empty, deployments, and why a group was NotReady, are kept for `EMPTY_KEPT_FOR`: whether
it is usual for a group to be empty shows only over days. An event that a later batch retracts is removed again; one
that is added twice is kept once.

Times are the broker's. They never go back within a group: a change of the coordinator to one whose clock is behind
would otherwise give spells of negative length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.groups.deployments import WITHIN
from streaming_app.groups.state_rules import NONE, UNCERTAIN

EMPTY = "Empty"
EMPTY_KEPT_FOR = timedelta(days=15)  # two weekends
WINDOW = timedelta(hours=2)
"""How long other events are looked at: longer than any time over which interruptions are counted."""
_KEPT = 10_000  # events of one kind and group: enough for any sensible threshold
_PRUNE_EVERY = timedelta(seconds=60)
_STORED = "stored_description_epoch"
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
    def touches_empty(self) -> bool:
        """Whether the group became Empty, or was."""
        return EMPTY in {self.old, self.state}


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


class Push(NamedTuple):
    """A topology description was pushed that the broker had not asked for."""

    at: datetime
    offset: int


class EpochOfDescription(NamedTuple):
    """A topology epoch was noted as stored or as failed; -1: none any more, -2: the plugin is about to be called."""

    at: datetime
    offset: int
    epoch: int


class Deployment(NamedTuple):
    """Every process of the application was replaced, or its topology: it ended `at`, and began `since`."""

    at: datetime
    offset: int
    since: datetime


@dataclass(slots=True)
class GroupHistory:
    """The recent events of one group, each list in the order of the log."""

    states: list[StateChange] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    members: list[MemberChange] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    deployments: list[Deployment] = field(default_factory=list)
    stored: list[EpochOfDescription] = field(default_factory=list)
    failed: list[EpochOfDescription] = field(default_factory=list)
    version: int = 0
    """Counts the changes."""

    def prune(self, since: datetime, empty_since: datetime) -> None:
        """Remove what is older than `since`, and of what is kept longer what is older than `empty_since`."""
        for name, kept_since in (
            ("assignments", since),
            ("members", since),
            ("reasons", empty_since),
            ("pushes", since),
            ("deployments", empty_since),
            ("stored", since),
            ("failed", since),
        ):
            entries = getattr(self, name)
            if entries and entries[0].at < kept_since:
                self.version += 1
                entries[:] = [entry for entry in entries if entry.at >= kept_since]
        if self.states and self.states[0].at < since:
            kept = [change for change in self.states if change.at >= (empty_since if change.touches_empty else since)]
            self.version += len(kept) < len(self.states)
            self.states = kept

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not any(getattr(self, name) for name in _LISTS)


NO_HISTORY = GroupHistory()
"""Of a group to which nothing happened lately; it is never changed."""


def _state(event: Row) -> StateChange:
    return StateChange(event["at"], event["offset"], event["old"], event["new"])


def _assignment(event: Row) -> Assignment | None:
    if None in {event["old"], event["new"]}:
        return None  # the first value is no assignment
    if int(event["new"]) <= _INITIAL_EPOCH < int(event["old"]):
        return None  # the group was deleted: there is no assignment any more
    return Assignment(event["at"], event["offset"], event.get("cause"))


def _member(event: Row) -> MemberChange:
    host = (event.get("client_host") or "").lstrip("/")
    place = event.get("instance_id") or host or event["new"] or event["old"] or ""
    joined = event["kind"] == "member_joined"
    return MemberChange(event["at"], event["offset"], event["member_id"], joined, place)


def _reason(event: Row) -> Reason | None:
    return Reason(event["at"], event["offset"], event["new"]) if event["new"] else None


def _push(event: Row) -> Push:
    return Push(event["at"], event["offset"])


def _description(event: Row) -> EpochOfDescription | None:
    if None in {event["old"], event["new"]}:
        return None  # the first value, or that of a group that is gone
    return EpochOfDescription(event["at"], event["offset"], int(event["new"]))


def _deployment(event: Row) -> Deployment:
    began = datetime.fromisoformat(event["old"])
    return Deployment(event["at"], event["offset"], min(max(began, event["at"] - WITHIN), event["at"]))


# kind of event -> the list that keeps it, and the entry that is made of it
_ENTRIES: Mapping[str, tuple[str, Callable[[Row], Any]]] = {
    "state": ("states", _state),
    "assignment_epoch": ("assignments", _assignment),
    "member_joined": ("members", _member),
    "member_left": ("members", _member),
    "not_ready_reason": ("reasons", _reason),
    "unsolicited_push": ("pushes", _push),
    "deployment": ("deployments", _deployment),
    _STORED: ("stored", _description),
    "failed_description_epoch": ("failed", _description),
}
_LISTS = tuple(dict.fromkeys(name for name, _ in _ENTRIES.values()))
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
        elif event["kind"] == "failed_description_epoch":
            found[REJECTED] += 1
        elif event["kind"] == "unsolicited_push":
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
        """Return the history of each group that has one; it changes with the next event."""
        return MappingProxyType(self._groups)

    def add(self, group_id: str, event: Row, now: datetime) -> bool:
        """Add an event. Return whether it is new: of a kept kind, recent, and not there yet."""
        if event["kind"] not in _ENTRIES or event["at"] is None:
            return False
        name, make_entry = _ENTRIES[event["kind"]]
        entry = make_entry(event)
        if entry is None or entry.at < now - self._kept_for(entry):
            return False
        history = self._groups.get(group_id) or GroupHistory()
        entries = getattr(history, name)
        position = bisect_left(entries, _key(entry), key=_key)
        if position < len(entries) and _key(entries[position]) == _key(entry):
            return False
        if position and entry.at < entries[position - 1].at:
            entry = entry._replace(at=entries[position - 1].at)
        entries.insert(position, entry)
        del entries[:-_KEPT]
        history.version += 1
        self._groups[group_id] = history
        return True

    def retract(self, group_id: str, event: Row) -> None:
        """Remove an event that was added; of `event` only what identifies it is used: kind, member and offset."""
        history = self._groups.get(group_id)
        if history is None or event["kind"] not in _ENTRIES:
            return
        entries = getattr(history, _ENTRIES[event["kind"]][0])
        key = event["offset"], event["member_id"] or ""
        position = bisect_left(entries, key, key=_key)
        if position < len(entries) and _key(entries[position]) == key:
            del entries[position]
            history.version += 1

    def prune(self, known: Collection[str], now: datetime) -> None:
        """Remove what is too old, about once a minute; of groups that are not in `known` all that is out of the window.

        A group that was deleted may come back: then its outage goes on.
        """
        if self._pruned_at is not None and abs(now - self._pruned_at) < _PRUNE_EVERY:
            return
        self._pruned_at = now
        since, empty_since = now - self.window, now - EMPTY_KEPT_FOR
        for group_id, history in list(self._groups.items()):
            history.prune(since, empty_since if group_id in known else since)
            if history.is_empty:
                del self._groups[group_id]

    def _kept_for(self, entry: object) -> timedelta:
        is_kept_longer = isinstance(entry, Reason | Deployment) or (
            isinstance(entry, StateChange) and entry.touches_empty
        )
        return EMPTY_KEPT_FOR if is_kept_longer else self.window


def _key(entry: Any) -> tuple[int, str]:  # noqa: ANN401 - an entry of any list
    return entry.offset, getattr(entry, "member_id", "")


def empty_spells(changes: Iterable[StateChange]) -> Iterator[tuple[datetime, datetime]]:
    """Yield when each spell of being Empty that has ended began and ended."""
    since: datetime | None = None
    for change in changes:
        if since is not None and change.old == EMPTY and change.state != EMPTY:
            yield since, change.at
            since = None
        if change.state == EMPTY:
            since = change.at
