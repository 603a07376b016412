"""Plays a history in two worlds, and says in what the outcomes differ. Each relation has a module of its own here.

Theory of operation
-------------------
A relation takes a history and makes another world of it (`tests.histories.world.Transform`), or another run: a job that
starts later, or restarts. Then something has to hold between the two outcomes, such as: the same alerts, from the
same time on. So no expected value is written by hand, and each history that exists finds faults of each kind.

What may differ is in a list of the relation's module, by rule or by name, each with its reason.

`make test` plays a seeded fifth of each class of histories (`a_fifth`), `make test-long` all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from tests.histories.bed import run
from tests.histories.history import HOUR, History
from tests.histories.incidents import OUTAGES
from tests.histories.misjudged import MISJUDGED
from tests.histories.ordinary_operations import ORDINARY_OPERATIONS
from tests.histories.outcome import Outcome, Told, seconds
from tests.histories.world import Transform

SEED = 63
"""Chooses the fifth that `make test` plays, and the moments of a history."""
CLASSES: Mapping[str, Sequence[History]] = {
    "ordinary": ORDINARY_OPERATIONS,
    "incidents": OUTAGES,
    "misjudged": MISJUDGED,
}
LONGEST_OF_A_FIFTH = 8 * 3600.0
"""Seconds of the longest history that `make test` plays in two worlds."""

_PART = 12 * HOUR


def a_fifth(relation: str) -> list[History]:
    """Return a fifth of each class, other ones for each relation; none that takes long."""
    found: list[History] = []
    for name, histories in CLASSES.items():
        short = [one for one in histories if one.seconds <= LONGEST_OF_A_FIFTH]
        found += random_of(relation, name).sample(short, -(-len(histories) // 5))
    return found


def random_of(*names: object) -> Random:
    """Return a generator of random numbers that is the same at each run for the same names."""
    return Random(" ".join(map(str, (SEED, *names))))  # noqa: S311 - no secret


def parts(history: History) -> list[History]:
    """Return a history; of one that is longer than a day three parts, each with a job that starts then.

    One is around the time at which it goes wrong, one has a seeded time, and one is its end.
    """
    last = history.seconds - _PART
    if last - history.watched_from <= _PART:
        return [history]
    times = history.begins - 2 * HOUR, random_of("part", history.name).uniform(history.watched_from, last), last
    begins = sorted({min(max(one, history.watched_from), last) // 60 * 60 for one in times})
    return [
        replace(history, name=f"{history.name}, from {one / HOUR:.1f} h", watched_from=one, seconds=one + _PART)
        for one in begins
    ]


def play(history: History, *, start: float | None = None, transform: Transform | None = None, **how: Any) -> Outcome:
    """Play a history with a job that starts at a time, in a transformed world; `how` is as of `bed.run`."""
    begun = history if start is None else replace(history, watched_from=start)
    return run(begun, transform=transform, **how)


def told(outcome: Outcome, *, after: float = 0.0) -> list[Told]:
    """Return the alerts that were open after a time, in the order in which they opened."""
    return [one for one in outcome.fired if one.ended_at is None or one.ended_at > after]


class Spell(NamedTuple):
    """A time in which a group had a verdict, or had different ones in two worlds. Times are seconds since the start."""

    group_id: str
    begin: float
    end: float
    verdict: str | None
    """None: there was none yet, or none any more."""
    other: str | None = None


def verdicts(outcome: Outcome, *, after: float = 0.0) -> dict[str, list[tuple[str, float]]]:
    """Return for each group the verdicts that it had after a time, and the seconds since which: the first then."""
    found: dict[str, list[tuple[str, float]]] = {}
    for one in sorted(outcome.changes, key=lambda change: change.at):
        of_group = found.setdefault(one.group_id, [])
        if seconds(one.at) <= after:
            of_group.clear()
        if not of_group or of_group[-1][0] != one.verdict.verdict:
            of_group.append((one.verdict.verdict, max(after, seconds(one.at))))
    return found


def other_verdicts(whole: Outcome, other: Outcome, *, after: float, until: float, longer: float = 60.0) -> list[Spell]:
    """Return the times after the start of the job in which a group had another verdict for longer than some seconds."""
    found = []
    first, second = verdicts(whole, after=after), verdicts(other, after=after)
    for group_id in sorted({*first, *second}):
        one, two = first.get(group_id, []), second.get(group_id, [])
        times = sorted({*(at for _, at in (*one, *two)), until})
        for begin, end in pairwise(times):
            names = _verdict_at(one, begin), _verdict_at(two, begin)
            if names[0] != names[1] and end - begin > longer:
                found.append(Spell(group_id, begin, end, *names))
    return found


def _verdict_at(spells: Sequence[tuple[str, float]], at: float) -> str | None:
    return next((verdict for verdict, since in reversed(spells) if since <= at), None)


@dataclass
class Differences:
    """In what the alerts of another world differ from those of the whole one."""

    same: list[tuple[Told, Told]] = field(default_factory=list)
    """Pairs of the same group and rule whose times overlap."""
    missed: list[Told] = field(default_factory=list)
    """Told in the whole world only."""
    false: list[Told] = field(default_factory=list)
    """Told in the other world only."""

    def changed(self, names: Iterable[str], tolerance: float = 0.0) -> list[tuple[Told, Told]]:
        """Return the pairs that differ in one of these fields; times by more than `tolerance` seconds."""
        return [pair for pair in self.same if any(_differ(*pair, name, tolerance) for name in names)]


def differences(whole: Iterable[Told], other: Iterable[Told]) -> Differences:
    """Compare the alerts of two worlds: an alert of one is one of the other if group, rule and time match."""
    found, left = Differences(), list(other)
    for one in whole:
        matching = [it for it in left if it.what == one.what and _overlap(it, one)]
        if matching:
            left.remove(matching[0])
            found.same.append((one, matching[0]))
        else:
            found.missed.append(one)
    found.false = left
    return found


def _overlap(one: Told, other: Told) -> bool:
    return one.opened_at <= (other.ended_at or float("inf")) and other.opened_at <= (one.ended_at or float("inf"))


def _differ(one: Told, other: Told, name: str, tolerance: float) -> bool:
    first, second = getattr(one, name), getattr(other, name)
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) > tolerance
    return bool(first != second)


def excepted(history: History, exceptions: Mapping[str, str]) -> bool:
    """Return whether a history is in the exceptions of a relation: part of its name -> why it may differ."""
    return any(part in history.name for part in exceptions)
