"""When a group usually has no members: when an application rests by its schedule.

An application that was Empty for a quarter of the time or more rests by a schedule. If it does so several times a day,
it is away for as long as it usually is, and a quarter more. Else it rests when it did at the same time of the day
before, or, once it has been observed for longer than a week or has rested for longer than a day, of the same day of the
week before: it may end up to two
hours sooner than then, but not sooner than after half of its run, if nothing is left to do, and be a quarter of an
hour late.

All times are the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.groups.state_rules import EMPTY
from streaming_app.health.history import StateChange, empty_spells

_BRIDGED = timedelta(minutes=15)  # a restart; the run of the application goes on
_OFTEN_EMPTY = 0.25  # of the time
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_OFTEN = 3  # rests within a day
_PATIENCE = 1.25  # times the longest of them
_SOONER, _LATE = timedelta(hours=2), timedelta(minutes=15)
_NOTHING = timedelta(0)


class Rest(NamedTuple):
    """A time without members, or with them."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        """How long it was."""
        return self.until - self.since


class Rests(NamedTuple):
    """What is known of when a group rests; from before its newest one."""

    past: Sequence[Rest] = ()
    observed_since: datetime | None = None

    def usual_until(self, since: datetime, at: datetime, *, is_done: bool) -> datetime | None:
        """Return until when it is usual that a group rests at this time that does so `since`; None if it is not.

        `is_done`: nothing was left to do when it began to rest.
        """
        if self.observed_since is None or not self._is_often_empty(since):
            return None
        recent = [rest.length for rest in self.past if rest.until > since - _DAY]
        if len(recent) >= _OFTEN:
            until = since + max(recent) * _PATIENCE
            return until if until > at else None
        observed = since - self.observed_since
        is_weekly = observed > _WEEK + _DAY / 2 or any(rest.length > _DAY for rest in self.past)
        shift = _WEEK if is_weekly else _DAY
        ends = [
            rest.until + shift + _LATE
            for rest, ran in zip(self.past, self._runs(), strict=True)
            if rest.since + shift - (min(_SOONER, ran / 2) if is_done else _NOTHING) <= at
            if at < rest.until + shift + _LATE
        ]
        return max(ends, default=None)

    def _runs(self) -> list[timedelta]:
        """Return how long the group ran before each of its rests; of the first that is not known."""
        pairs = zip(self.past, self.past[1:], strict=False)
        return [_SOONER, *(after.since - before.until for before, after in pairs)][: len(self.past)]

    def _is_often_empty(self, since: datetime) -> bool:
        observed = since - (self.observed_since or since)
        return bool(self.past) and sum((rest.length for rest in self.past), _NOTHING) >= observed * _OFTEN_EMPTY


NO_RESTS = Rests()
"""Of a group of which nothing is known."""


def rests_of(changes: Sequence[StateChange], since: datetime | None, first_seen: datetime | None) -> Rests:
    """Return the rests of a group that ended; `since` is when it began the one that it is in, if it is in one."""
    past = tuple(Rest(emptied, filled) for emptied, filled in empty_spells(changes) if since is None or filled <= since)
    known = [time for time in (first_seen, changes[0].at if changes else None) if time]
    return Rests(past, max(known, default=None))


def runs_of(changes: Sequence[StateChange], first_seen: datetime | None, until: datetime) -> list[Rest]:
    """Return when a group had members, up to a time, restarts included; none if it is not known since when it exists.

    Changes to and from Empty are kept for about two weeks: what was before the first of them counts as one run.
    """
    if first_seen is None:
        return []
    first = next((change for change in changes if change.touches_empty), None)
    since = max(first_seen, first.at) if first and first.old == EMPTY else first_seen
    runs = []
    for emptied, filled in empty_spells(changes):
        if filled - emptied > _BRIDGED:
            runs.append(Rest(since, min(emptied, until)))
            since = filled
    return [one for one in (*runs, Rest(since, until)) if one.until > one.since]


def ran_for(rests: Rests, since: datetime, first_seen: datetime) -> timedelta:
    """Return how long a group had members before it became Empty, restarts included."""
    started = max((rest.until for rest in rests.past if rest.length > _BRIDGED), default=first_seen)
    return since - started
