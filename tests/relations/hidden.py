"""Relation H: a part of what the brokers know is hidden, or they do not answer.

What is known stays as it was or becomes unknown: no group gets better, no alert ends earlier, and where the rest of a
group is known, none opens that the whole world does not have. Groups of which nothing is hidden have the same alerts
and verdicts, to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import attrgetter
from random import Random
from zlib import crc32

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.health.verdict import GOOD, IDLE, OK, RESTORING
from streaming_app.lag.committed import CommittedOffsets
from streaming_app.lag.ends import NO_ENDS, LogEnds, TopicPartition
from streaming_app.lag.model import Commit
from tests.histories.clients import START
from tests.histories.history import HOUR
from tests.histories.outcome import Outcome, Told
from tests.histories.traffic import Seen
from tests.histories.world import World
from tests.relations.engine import differences, told, verdicts

GRACE = 15 * 60.0
"""So long a good verdict stays of which nothing new is known."""
_NO_ANSWER = LogEnds(leader=1)
"""Unlike `NO_ENDS`, no broker is away."""
_LATE = 60.0
"""So long the last answer of a coordinator counts as one of now."""
_ONLY_UNKNOWN = "whether work waits is not known"
"""Part of the text of a Down that is told because nothing is known: it ends when members are back. If it knew of work,
it does not."""
_Verdicts = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Kind:
    """What is hidden. Each function says it of a group, or of a partition of it, at one pass."""

    name: str
    is_denied: Callable[[Seen], bool] = lambda _seen: False
    """Whether the group may not be described."""
    is_silent: Callable[[Seen, Random], bool] = lambda _seen, _random: False
    """Whether its coordinator does not answer: it is away, or says NOT_COORDINATOR."""
    hidden_topics: Callable[[Seen], Collection[str]] = lambda _seen: ()
    """The topics without Describe: neither their commits nor their ends are returned."""
    missing: Callable[[Seen, TopicPartition, Random], LogEnds | None] = lambda _seen, _key, _random: None
    """What is returned instead of the ends of a log; None: the ends."""
    is_lasting: bool = True
    """Whether it is hidden to the end."""


@dataclass
class Hidden:
    """A world of which a part is hidden from a time on."""

    world: World
    groups: dict[str, bool] = field(default_factory=dict)
    """The groups of which it is not known whether work waits, and whether it is known of a part at each pass."""

    @classmethod
    def of(cls, world: World, kind: Kind, random: Random, begin: float) -> Hidden:
        """Let the answers go through `lag.committed`, as those of brokers do."""
        committed, lag, found = CommittedOffsets(), list[Seen](), cls(world)
        for at, those in groupby(world.lag, key=attrgetter("at")):
            if at < begin - HOUR:  # an hour shows `committed` what there is
                lag += those
                continue
            now, seen = START.timestamp() + at, {one.group_id: one for one in those}
            commits = {one.group_id: _in_log(one) for one in seen.values()}
            in_log = {(group_id, *key): commit for group_id in commits for key, commit in commits[group_id].items()}
            chosen = committed.choose(in_log, seen.keys(), now)
            hides = [one for one in seen.values() if at >= begin]
            denied = {one.group_id for one in hides if kind.is_denied(one)}
            silent = {one.group_id for one in hides if kind.is_silent(one, random)} - denied
            topics = {one.group_id: set(kind.hidden_topics(one)) for one in hides}
            fetched = {
                group_id: {key: commit for key, commit in those.items() if key[0] not in topics.get(group_id, ())}
                for group_id, those in commits.items()
                if group_id in chosen - silent - denied
            }
            shown = {topic for topic in committed.left_out(fetched) if not any(topic in of for of in topics.values())}
            merged = committed.merge(fetched, now, denied, shown)
            for one in seen.values():
                ends = dict(one.ends)
                for key in one.ends if one in hides else ():
                    if key[0] in topics[one.group_id]:
                        ends[key] = _NO_ANSWER
                    elif (missing := kind.missing(one, key, random)) is not None:
                        ends[key] = missing
                known = {key: merged.get((one.group_id, *key), Commit(None)) for key in one.commits}
                until = committed.known_until(one.group_id, now) - START.timestamp()
                lag.append(one._replace(commits=known, ends=ends, commits_until=until))
                found._note(one, lag[-1], begin)
        found.world = replace(world, lag=lag)
        return found

    def _note(self, whole: Seen, seen: Seen, begin: float) -> None:
        is_late = seen.at - (seen.commits_until or 0.0) > _LATE
        read = whole.commits.keys() - whole.left_over
        known = [key for key in read if whole.commits[key].is_known and whole.ends[key].end is not None]
        shown = [not is_late and seen.commits[key].is_known and seen.ends[key].end is not None for key in known]
        if seen.at >= begin and not all(shown):
            self.groups[seen.group_id] = self.groups.get(seen.group_id, True) and any(shown)


def _in_log(seen: Seen) -> dict[TopicPartition, Commit]:
    return {key: commit for key, commit in seen.commits.items() if commit.offset is not None}


def _read(seen: Seen) -> set[TopicPartition]:
    """Return the partitions that the group reads. Left-over ones may be hidden: no verdict depends on them."""
    return seen.commits.keys() - seen.left_over


def _last_topic(seen: Seen) -> set[str]:
    return set(sorted({topic for topic, _ in _read(seen)})[-1:])


def _one_of_its_topics(seen: Seen) -> set[str]:
    """Return a topic of a group, unless it reads no other one."""
    return _last_topic(seen) if len({topic for topic, _ in _read(seen)}) > 1 else set()


def _without_leader(seen: Seen, key: TopicPartition, _random: Random) -> LogEnds | None:
    return _NO_ANSWER if key == max(_read(seen)) else None


def _led_by_it(_seen: Seen, key: TopicPartition, _random: Random) -> LogEnds | None:
    return NO_ENDS if key[1] % 2 else None


def _sometimes(_seen: Seen, _key: TopicPartition, random: Random) -> LogEnds | None:
    return _NO_ANSWER if random.random() < 0.3 else None


MAY_BE_OFF: Mapping[str, str] = {
    "the job that processes it runs once a day": "outside its `running_hours` a group is Off, whatever is hidden",
}


KINDS: Sequence[Kind] = (
    Kind("one partition without a leader", missing=_without_leader),
    Kind("a topic without Describe", hidden_topics=_one_of_its_topics),
    Kind("every topic without Describe", hidden_topics=_last_topic),
    Kind("groups without Describe", is_denied=lambda _seen: True),
    Kind("NOT_COORDINATOR", is_silent=lambda _seen, _random: True),
    Kind("a broker away", is_silent=lambda seen, _random: crc32(seen.group_id.encode()) % 2 == 0, missing=_led_by_it),
    Kind(
        "half of the answers",
        is_silent=lambda _seen, random: random.random() < 0.3,
        missing=_sometimes,
        is_lasting=False,
    ),
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
    whole: Outcome,
    other: Outcome,
    kind: Kind,
    hidden: Mapping[str, bool],
    times: tuple[float, float, float],
) -> Iterator[str]:
    """Yield in what the relation does not hold between an outcome and one where parts are hidden.

    `hidden`: as `Hidden.groups`. `times`: when the job starts, since when parts are hidden, and the end.
    """
    start, begin, end = times
    before, after = verdicts(whole), verdicts(other)

    def is_early(at: float) -> bool:
        return at <= begin + GRACE + _LATE or not kind.is_lasting

    for group_id in before.keys() | after.keys():
        first, second = before.get(group_id, []), after.get(group_id, [])
        if group_id in hidden:
            moments = sorted({since for _, since in (*first, *second)} | {begin + GRACE, end})
            yield from (
                f"{group_id} at {at}: {text}"
                for at in moments
                if begin <= at <= end and (text := _is_better(first, second, at, may_be_well=is_early(at)))
            )
        elif first != second:
            yield f"{group_id}, of which nothing is hidden: {first} -> {second}"
    found = differences(*map(_of_groups, (told(whole), told(other))))
    for one, it in found.same:
        knew = _ONLY_UNKNOWN not in it.why or "offsets wait" in it.why
        # By partition, with evidence of what is known: what began after a part was hidden never knew of that part.
        knew &= one.opened_at < begin or one.rule in HEALTH_RULES
        # What was Unstable goes on as Restoring, and it is not known that a hidden partition waits.
        knew &= it.ended_at is None or _at(before.get(one.group_id or "", []), it.ended_at) != RESTORING
        is_earlier = it.ended_at is not None and it.ended_at < (one.ended_at or end) - 1 and knew
        if is_earlier if one.group_id in hidden else one != it:
            yield f"{one} -> {it}"
    yield from (
        f"missed: {one}"
        for one in found.missed
        if one.group_id not in hidden
        or (max(start, one.opened_at) < begin and not _is_in_a_longer_one(one, told(other)))
    )
    yield from (
        f"false: {one}"
        for one in found.false
        if hidden.get(one.group_id or "", True) and not _is_in_a_longer_one(one, told(whole))
    )


def _is_better(first: _Verdicts, second: _Verdicts, at: float, *, may_be_well: bool) -> str | None:
    """Return what is better where parts are hidden than it is in the whole world."""
    found = _at(second, at)
    recently = {_at(first, at - GRACE), *(verdict for verdict, since in first if at - GRACE <= since <= at)}
    if found in GOOD and not GOOD & recently:
        return f"{_at(first, at)} is {found}"
    return f"{found} although a part is hidden" if found in {IDLE, OK} and not may_be_well else None


def _is_in_a_longer_one(one: Told, alerts: Collection[Told]) -> bool:
    """Return whether the other world has an alert of another rule that is as long.

    Where parts are hidden, an alert may not end and become worse; and in the whole world a worse one covers a milder.
    """
    return any(
        it.group_id == one.group_id and it.opened_at <= one.opened_at and (it.ended_at or inf) >= (one.ended_at or inf)
        for it in alerts
    )


def _of_groups(alerts: Collection[Told]) -> list[Told]:
    return [one for one in alerts if one.group_id is not None]


def _at(found: _Verdicts, at: float) -> str:
    return next((verdict for verdict, since in reversed(found) if since <= at), "")
