"""Relation H: a part of what the brokers know is hidden, or they do not answer.

What is known stays as it was or becomes unknown: no group gets better, no problem ends earlier, and where the rest of a
group is known, none opens that the whole world does not have. Groups of which nothing is hidden have the same problems
and verdicts, to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from streaming_app.health.verdict import GOOD, IDLE, OK
from streaming_app.lag.ends import LogEnds, TopicPartition
from tests.histories.bed import Outcome
from tests.histories.traffic import Seen
from tests.histories.world import World
from tests.relations.engine import Told, differences, told, verdicts

GRACE = 15 * 60.0
"""So long a good verdict stays of which nothing new is known."""
_NO_ANSWER = LogEnds(leader=1)
"""Unlike `NO_ENDS`, no broker is away."""


_Verdicts = Sequence[tuple[str, float]]


class Answers(NamedTuple):
    """What the brokers say of a partition at a pass."""

    commit: bool
    end: bool


Hides = Callable[[Seen, TopicPartition, Random], Answers]


@dataclass(frozen=True)
class Hidden:
    """A part that is hidden."""

    name: str
    hides: Hides
    is_all: bool = False
    """Whether of a group everything may be hidden."""
    is_lasting: bool = True
    """Whether it is hidden to the end."""

    def of(self, world: World, random: Random, begin: float) -> World:
        """Return the world in which this is hidden from a time on."""
        lag = [self._seen(one, random) if one.at >= begin else one for one in world.lag]
        return replace(world, lag=lag)

    def groups(self, world: World, random: Random, begin: float) -> Mapping[str, bool]:
        """Return the groups of which something is hidden, and whether something is known of them."""
        found: dict[str, bool] = {}
        for one in (one for one in world.lag if one.at >= begin):
            answers = [self.hides(one, key, random) for key in one.commits]
            if any(not all(each) for each in answers):
                found[one.group_id] = found.get(one.group_id, True) and any(all(each) for each in answers)
        return found

    def _seen(self, seen: Seen, random: Random) -> Seen:
        commits, ends = dict(seen.commits), dict(seen.ends)
        for key, commit in seen.commits.items():
            answers = self.hides(seen, key, random)
            if not answers.commit:
                commits[key] = commit._replace(is_known=commit.offset is None)
            if not answers.end:
                ends[key] = _NO_ANSWER
        return seen._replace(commits=commits, ends=ends)


def _one_partition(seen: Seen, key: TopicPartition, _random: Random) -> Answers:
    is_shown = key != max(seen.commits)
    return Answers(is_shown, is_shown)


def _a_topic(seen: Seen, key: TopicPartition, _random: Random) -> Answers:
    is_shown = key[0] != max(seen.commits)[0]
    return Answers(is_shown, is_shown)


def _one_of_its_topics(seen: Seen, key: TopicPartition, _random: Random) -> Answers:
    """Hide a topic of each group, unless it reads no other one."""
    reads_others = len({topic for topic, _ in seen.commits}) > 1
    return _a_topic(seen, key, _random) if reads_others else Answers(commit=True, end=True)


def _commits(_seen: Seen, _key: TopicPartition, _random: Random) -> Answers:
    return Answers(commit=False, end=True)


def _half(_seen: Seen, _key: TopicPartition, random: Random) -> Answers:
    return Answers(random.random() < 0.7, random.random() < 0.7)


KINDS: Sequence[Hidden] = (
    Hidden("one partition without a leader", _one_partition),
    Hidden("a topic without Describe", _one_of_its_topics),
    Hidden("every topic without Describe", _a_topic, is_all=True),
    Hidden("a coordinator that does not answer", _commits, is_all=True),
    Hidden("half of the answers", _half, is_all=True, is_lasting=False),
)


def out_of_order(world: World, random: Random) -> World:
    """Return the world in which each pass gets the answers in another order."""

    def mixed(seen: Seen) -> Seen:
        keys = random.sample(list(seen.commits), len(seen.commits))
        return seen._replace(
            commits={key: seen.commits[key] for key in keys}, ends={key: seen.ends[key] for key in keys}
        )

    return replace(world, lag=[mixed(one) for one in world.lag])


def violations(
    whole: Outcome, other: Outcome, kind: Hidden, hidden: Mapping[str, bool], begin: float, end: float
) -> Iterator[str]:
    """Yield in what the relation does not hold between an outcome and one where parts are hidden from `begin` on."""
    before, after = verdicts(whole), verdicts(other)
    for group_id in before.keys() | after.keys():
        first, second = before.get(group_id, []), after.get(group_id, [])
        if group_id in hidden:
            times = sorted({since for _, since in (*first, *second)} | {begin + GRACE, end})
            yield from (
                f"{group_id} at {at}: {text}"
                for at in times
                if begin <= at <= end
                and (text := _is_better(first, second, at, may_be_well=at <= begin + GRACE or not kind.is_lasting))
            )
        elif first != second:
            yield f"{group_id}, of which nothing is hidden: {first} -> {second}"
    found = differences(*map(_of_groups, (told(whole), told(other))))
    for one, it in found.same:
        is_earlier = it.ended_at is not None and it.ended_at < (one.ended_at or end) - 1
        if is_earlier if one.group_id in hidden else one != it:
            yield f"{one} -> {it}"
    yield from (f"missed: {one}" for one in found.missed if one.group_id not in hidden or one.opened_at < begin)
    yield from (f"false: {one}" for one in found.false if hidden.get(one.group_id or "", True))


def _is_better(first: _Verdicts, second: _Verdicts, at: float, *, may_be_well: bool) -> str | None:
    """Return what is better where parts are hidden than it is in the whole world."""
    found = _at(second, at)
    recently = {_at(first, at - GRACE), *(verdict for verdict, since in first if at - GRACE <= since <= at)}
    if found in GOOD and not GOOD & recently:
        return f"{_at(first, at)} is {found}"
    return f"{found} although a part is hidden" if found in {IDLE, OK} and not may_be_well else None


def _of_groups(problems: Collection[Told]) -> list[Told]:
    return [one for one in problems if one.group_id is not None]


def _at(found: _Verdicts, at: float) -> str:
    return next((verdict for verdict, since in reversed(found) if since <= at), "")
