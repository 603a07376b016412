"""Interruptions of a group's processing: outages, and members that join and leave again and again.

Outages
-------
A group processes while it is Stable or Reconciling: in the latter case all tasks but those that move are processed. It
does not while it is Empty or NotReady. Assigning means either: tasks run where they were, if there were any, so it
continues what was before.

An application that crashes and is started again leaves its group Empty or NotReady for a while, processing for a few
seconds, and so on. Each spell is short, so the spells are joined: an outage goes on until the group has processed for
`uptime` without interruption. A spell without members that is longer than `gap` ends it as well: then nothing tries to
start the application any more, or it is one that runs from time to time. That the group was deleted meanwhile, by
somebody or by the brokers' clean-up, ends nothing.

Members
-------
In a rolling restart each member leaves once and is replaced by one that stays, whatever their number. What flaps leaves
soon after it joined, again and again. So what counts are short stays: from joining to leaving in less than `uptime`.

A process that crashes takes all of its threads with it, each a member of its own, and a new version that is rolled back
takes all instances with it, once. So of the short stays only those count that follow one another, wherever they are:
two that overlap are one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise, zip_longest
from typing import NamedTuple

from streaming_app.groups.state_rules import DEAD, EMPTY, NOT_READY, STABLE
from streaming_app.health.history import MemberChange, StateChange

_PROCESSING = frozenset({STABLE, "Reconciling"})
_GONE = frozenset({EMPTY, DEAD})
_DOWN = frozenset({*_GONE, NOT_READY})
_NOTHING = timedelta(0)


class _Spell(NamedTuple):
    state: str
    processes: bool
    since: datetime
    until: datetime


@dataclass
class Outage:
    """An outage that has not ended. Times are counted from its start to the newest start of the application."""

    since: datetime
    starts: Sequence[datetime] = ()
    """When the group got members again after it was Empty, or was ready again."""
    processed: timedelta = _NOTHING
    lasted: timedelta = _NOTHING
    down: Mapping[str, timedelta] = field(default_factory=dict)
    """How long the group was in each state in which it does not process."""

    @property
    def processed_share(self) -> float:
        """The share of the time in which the group processed, from 0 to 1."""
        return self.processed / self.lasted if self.lasted else 0.0


def current_outage(
    changes: Sequence[StateChange], now: datetime, *, uptime: timedelta, gap: timedelta
) -> Outage | None:
    """Return the outage that the group is in, None for none."""
    chain: list[_Spell] = []
    processed_since: datetime | None = None
    gone_since: datetime | None = None
    for spell in _spells(changes, now):
        if spell.processes:
            processed_since = processed_since or spell.since
            if spell.until - processed_since >= uptime:
                chain = []
        else:
            processed_since = None
        gone_since = (gone_since or spell.since) if spell.state in _GONE else None
        if gone_since and spell.until - gone_since > gap:
            chain = []
        elif chain or not spell.processes:
            chain.append(spell)
    return _outage(chain) if chain else None


def _spells(changes: Sequence[StateChange], now: datetime) -> Iterator[_Spell]:
    processes = bool(changes) and changes[0].old in _PROCESSING
    ends = [change.at for change in changes[1:]]
    for change, end in zip_longest(changes, ends):
        processes = change.state in _PROCESSING or (processes and change.state not in _DOWN)
        until = end or max(now, change.at)
        yield _Spell(change.state, processes, change.at, until)


def _outage(chain: Sequence[_Spell]) -> Outage:
    starts = [n for n, (one, after) in enumerate(pairwise(chain)) if _is_start(chain[n - 1] if n else None, one, after)]
    outage = Outage(chain[0].since, [chain[n + 1].since for n in starts])
    down: defaultdict[str, timedelta] = defaultdict(timedelta)
    for spell in chain[: starts[-1] + 1] if starts else ():
        if spell.processes:
            outage.processed += spell.until - spell.since
        elif spell.state in _DOWN:
            down[EMPTY if spell.state in _GONE else spell.state] += spell.until - spell.since
    if starts:
        outage.lasted = chain[starts[-1]].until - outage.since
    outage.down = dict(down)
    return outage


def _is_start(before: _Spell | None, one: _Spell, after: _Spell) -> bool:
    """Tell whether the application began again between two spells: after Empty, or NotReady between processing."""
    if one.state in _GONE:
        return after.state not in _GONE
    return one.state == NOT_READY and after.processes and (before is None or before.processes)


class Stay(NamedTuple):
    """A member that has left, and where it was."""

    since: datetime
    until: datetime
    place: str


def stays_of(changes: Sequence[MemberChange], since: datetime, shorter: timedelta) -> list[Stay]:
    """Return the stays that were shorter than this, and ended after `since`."""
    joined: dict[str, datetime] = {}
    stays = []
    for change in changes:
        if change.joined:
            joined[change.member_id] = change.at
        elif (start := joined.pop(change.member_id, None)) and change.at >= since and change.at - start < shorter:
            stays.append(Stay(start, change.at, change.place))
    return stays


def one_after_the_other(stays: list[tuple[datetime, datetime]]) -> int:
    """Return how many stays, as (end, start), can be chosen so that none overlap."""
    number, last_end = 0, None
    for end, start in sorted(stays):
        if last_end is None or start >= last_end:
            number, last_end = number + 1, end
    return number
