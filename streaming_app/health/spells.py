"""Interruptions of a group's processing: outages, needless assignments, and members that join and leave repeatedly.

Outages
-------
A group processes while it is Stable or Reconciling: while Reconciling, only the tasks that move are not processed. It
does not process while it is Empty or NotReady. While Assigning, existing tasks run on, so Assigning continues the state
before it. A classic group with members, whose state is Unknown, processes as far as its records show.

An application that crashes and restarts again and again leaves its group Empty or NotReady for a while, then processing
for a few seconds, and so on. Each of these periods (spells) is short, so an outage is the sum of them: it lasts until
the group has processed for `STAY_UP` without interruption. A spell without members that is longer than `_GAP` also ends
it: then nothing restarts the application any more, or it runs only from time to time. If the group is deleted during
the outage, by a person or by the brokers, the outage continues.

Members
-------
In a rolling restart each member leaves once and another one replaces it and stays. A member that flaps leaves soon
after it joined, again and again. So the condition counts short stays.

If a process crashes, all its threads leave at once, and each is a member. If a new version is rolled back, all
instances leave at once. So short stays count only if they follow one another, in any place: two that overlap count as
one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.groups.events import OF_MEMBERS, QUIET_CAUSES, UNKNOWN_STATE, split_causes
from streaming_app.groups.state_rules import ASSIGNING, DEAD, EMPTY, NOT_READY, STABLE
from streaming_app.health.facts import MOMENT, Facts
from streaming_app.health.group_history import JOINED, LEFT, Event
from streaming_app.health.verdict import BAD, UNSTABLE, WARNING, Verdict
from streaming_app.text import first_of, round_down

STAY_UP = timedelta(minutes=10)
"""An outage ends when the group has processed for so long without interruption."""
LOOP = timedelta(minutes=5)
"""The shortest outage of many spells that becomes a verdict."""
_SHARE = 0.5
_GAP = timedelta(minutes=10)  # the longest time without members within an outage
_UP, _NOTHING = "up", timedelta(0)
_KINDS = {STABLE: _UP, "Reconciling": _UP, UNKNOWN_STATE: _UP, EMPTY: EMPTY, DEAD: EMPTY, NOT_READY: NOT_READY}
_ASSIGNMENTS, _ASSIGNED_WITHIN = 10, timedelta(minutes=10)
_NO_STORM = OF_MEMBERS | QUIET_CAUSES
_SHORT, _TIMES, _WITHIN = timedelta(minutes=20), 3, timedelta(minutes=75)
_QUIET = timedelta(minutes=25)
_SESSION = timedelta(minutes=1)  # a killed member leaves when its session ends, after the next one has joined
_IN_TEXT, _PLACES = 3, 20
_FEW = 10  # larger numbers are rounded in texts, which must not change often


class _Spell(NamedTuple):
    kind: str
    """`_UP`, or a state in which the group does not process."""
    since: datetime
    until: datetime


class Outage(NamedTuple):
    """An outage that has not ended. Durations count from its start to the newest start of the application."""

    since: datetime
    starts: Sequence[datetime]
    """When the application started: the group got members after it was Empty, or became ready."""
    processed: timedelta
    lasted: timedelta
    down: Mapping[str, timedelta]
    """State in which the group does not process -> how long it was in it."""

    @property
    def is_mostly_down(self) -> bool:
        """Whether the group processed for less than half of the time."""
        return not self.lasted or self.processed / self.lasted < _SHARE


def current_outage(facts: Facts) -> Outage | None:
    """Return the current outage of the group, or None."""
    chain: list[_Spell] = []
    for spell in _spells(facts.history.states, facts.now):
        lasted = spell.until - spell.since
        if (spell.kind == _UP and lasted >= STAY_UP) or (spell.kind == EMPTY and lasted > _GAP):
            chain = []
        elif chain or spell.kind != _UP:
            chain.append(spell)
    if not chain:
        return None
    starts = [
        number
        for number, (before, one, after) in enumerate(zip([None, *chain], chain, chain[1:], strict=False), 1)
        if one.kind == EMPTY or (one.kind == NOT_READY and after.kind == _UP and (not before or before.kind == _UP))
    ]
    since, until = chain[0].since, chain[starts[-1] if starts else 0].since
    times: dict[str, timedelta] = {}
    for spell in chain[: starts[-1] if starts else 0]:
        times[spell.kind] = times.get(spell.kind, _NOTHING) + spell.until - spell.since
    down = {state: times[state] for state in (EMPTY, NOT_READY) if state in times}
    return Outage(since, [chain[number].since for number in starts], times.get(_UP, _NOTHING), until - since, down)


def _spells(changes: Sequence[Event], now: datetime) -> list[_Spell]:
    """Return the spells of the group in order. Two spells that follow one another have different kinds."""
    spells: list[_Spell] = []
    kind = _KINDS.get(changes[0].old or "", ASSIGNING) if changes else ASSIGNING
    for change in changes:
        kind = _KINDS.get(change.new or "", _UP if kind == _UP else ASSIGNING)
        if spells and spells[-1].kind == kind:
            continue
        if spells:
            spells[-1] = spells[-1]._replace(until=change.at)
        spells.append(_Spell(kind, change.at, max(now, change.at)))
    return spells


def unstable(facts: Facts) -> Verdict | None:
    """Processing is interrupted again and again."""
    if facts.is_deleted or (found := _needless_assignments(facts) or flapping(facts)) is None:
        return None
    outage = current_outage(facts)
    if outage and any(one.new == NOT_READY and one.at >= outage.since for one in facts.history.states):
        return None  # NotReady explains it, and becomes Down if it lasts
    if outage and outage.is_mostly_down and facts.was not in BAD and facts.now < outage.since + LOOP:
        return None  # the outage will soon be Down, or end
    return found


def _needless_assignments(facts: Facts) -> Verdict | None:
    """Return Unstable if there were many assignments that moved tasks although no member joined, left or changed."""
    needless = [
        (one, causes)
        for one in facts.history.assignments
        if (causes := split_causes(one.cause)) and not causes & _NO_STORM
    ]
    recent = [(one, causes) for one, causes in needless if one.at > facts.now - _ASSIGNED_WITHIN]
    if len(recent) < _ASSIGNMENTS:
        return None
    found = Counter(cause for _, causes in recent for cause in causes)
    named = ", ".join(f"{cause} {number}" for cause, number in sorted(found.items()))
    why = f"{len(recent):,} new assignments in {_minutes(_ASSIGNED_WITHIN)} that no member caused: {named}"
    evidence = {"assignments": len(recent), "causes": dict(found), "members": facts.group.member_count}
    times = [one.at for one, _ in needless]
    first = len(times) - _ASSIGNMENTS  # the start of the newest window; go back while the windows before are full, too
    while first and times[first + _ASSIGNMENTS - 2] - times[first - 1] < _ASSIGNED_WITHIN:
        first -= 1
    ends_at = times[-_ASSIGNMENTS] + _ASSIGNED_WITHIN
    return Verdict(UNSTABLE, times[first], times[first + _ASSIGNMENTS - 1], why, WARNING, evidence, recheck_at=ends_at)


def flapping(facts: Facts) -> Verdict | None:
    """Return Unstable if members still leave soon after they joined, and others follow them, again and again."""
    members, now = facts.history.members, facts.now
    newest = next((change.at for change in reversed(members) if change.kind == LEFT), None)
    if newest is None or now - newest >= _QUIET:
        return None
    joined: dict[str | None, datetime] = {}
    stays: list[tuple[datetime, datetime, str | None]] = []
    for one in members:
        if one.kind == JOINED:
            joined[one.member_id] = one.at
        elif (since := joined.pop(one.member_id, None)) and one.at >= now - _WITHIN and one.at - since < _SHORT:
            stays.append((one.at, since, one.place))
    number, last_end = 0, None
    for end, since, _ in sorted(stays, key=lambda stay: stay[:2]):
        if last_end is None or since >= last_end:
            number, last_end = number + 1, end - _SESSION
    if number < _TIMES:
        return None
    counts = Counter(place for *_, place in stays)
    places = {place: many for place, many in counts.most_common(_PLACES) if many > 1}
    named = [f"{_rounded(many)} at {place}" for place, many in places.items()]
    where = f": {first_of(named, _IN_TEXT)}" if named else ""
    why = f"{_rounded(number)} times one after the other, members left after less than {_minutes(_SHORT)}{where}"
    evidence = {"stays": number, "places": places, "members": facts.group.member_count}
    begin = min(since for _, since, _ in stays)
    ends_at = min(newest + _QUIET, min(end for end, *_ in stays) + _WITHIN + MOMENT)
    return Verdict(UNSTABLE, begin, newest, why, WARNING, evidence, recheck_at=ends_at)


def _rounded(number: int) -> str:
    return str(number) if number < _FEW else f"at least {round_down(number)}"


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:g} minutes"
