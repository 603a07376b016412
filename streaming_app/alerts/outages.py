"""Outages with short interruptions in between, from the state changes of a group.

Theory of operation
-------------------
A group processes while it is Stable or Reconciling: in the latter case all tasks but those that move are processed. It
does not while it is Empty or NotReady. Assigning means either: tasks run where they were, if there were any, so it
continues what was before.

An application that crashes and is started again leaves its group Empty or NotReady for a while, processing for a few
seconds, and so on. Each spell is short, so the spells are joined: an outage goes on until the group has processed for
`uptime` without interruption. A spell of being Empty that is longer than `gap` ends it as well: then nothing tries to
start the application any more, or it is one that runs from time to time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise, zip_longest
from typing import NamedTuple

from streaming_app.alerts.history import EMPTY, StateChange

_PROCESSING = frozenset({"Stable", "Reconciling"})
_DOWN = frozenset({EMPTY, "NotReady"})
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
    starts: int = 0
    """How often the group got members again after it was Empty."""
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
    for spell in _spells(changes, now):
        if spell.processes:
            processed_since = processed_since or spell.since
            if spell.until - processed_since >= uptime:
                chain = []
        else:
            processed_since = None
        if spell.state == "Dead" or (spell.state == EMPTY and spell.until - spell.since > gap):
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
    starts = [n for n, (one, after) in enumerate(pairwise(chain)) if one.state == EMPTY != after.state]
    outage = Outage(chain[0].since, len(starts))
    down: defaultdict[str, timedelta] = defaultdict(timedelta)
    for spell in chain[: starts[-1] + 1] if starts else ():
        if spell.processes:
            outage.processed += spell.until - spell.since
        elif spell.state in _DOWN:
            down[spell.state] += spell.until - spell.since
    if starts:
        outage.lasted = chain[starts[-1]].until - outage.since
    outage.down = dict(down)
    return outage
