"""Relation S: the job is killed and starts again, or is away for minutes, hours or days, at any moment.

A restart changes nothing: the same alerts open and end at the same times, and are since the same time. After an
absence the alerts are those of a job that was not away: what is open then is open, since the same time, or since a
later one that the text calls "at least". What ended meanwhile is told as opened and ended, or not at all; nothing is
told twice.

While the job is away, the cleaner may compact what it has not read (S x C). When it is back, a part may be hidden from
it for good (S x H): then what was told stays.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from streaming_app.alerts.catalog import HEALTH_RULES, RULE_OF_VERDICT
from streaming_app.alerts.open_alerts import AGAIN
from streaming_app.groups.group import STREAMS
from streaming_app.health.verdict import BEHIND, GOOD, RESTORING
from tests.histories.bed import STEP, each
from tests.histories.history import DAY, HOUR, MINUTE, History
from tests.histories.judged import OUTCOMES
from tests.histories.outcome import Moment, Outcome, Told, seconds
from tests.histories.world import Transform, World
from tests.relations.compaction import AT_LEAST, OF_THE_PAST, compacted
from tests.relations.engine import differences, play, random_of, told, verdicts
from tests.relations.hidden import KINDS, Hidden

GRACE = 6 * MINUTE
"""So long after its start a job may need until it tells, or ends, what happened while it was away."""
AFTER = 12 * HOUR
"""So long after a disturbance both runs are compared. Most histories are shorter."""
SECONDS = 2 * MINUTE
"""Times may differ by so much: a pass of one run sees what the other one sees at its next passes."""
MINUTES_AWAY, HOURS_AWAY, DAYS_AWAY = (5 * MINUTE, 30 * MINUTE), (2 * HOUR, 9 * HOUR), (DAY, 3 * DAY)
_REWOUND = "StreamsGroupOffsetsRewound"
_SET_ASIDE = "StreamsGroupSetAside"
_LATER = ("since at least", "does not stay up", "members left after less than", "seen at", "may restore")
"""What a text says that may begin later than what it tells of."""


class _Exception(NamedTuple):
    """Alerts that may differ, because only the run knows that saw it."""

    reason: str
    texts: Sequence[str]
    """It holds for alerts of groups of which a verdict says one of these."""
    fields: Sequence[str] = ()
    """The fields that may differ; none: everything, also whether there is such an alert."""
    only: Sequence[str] = ("",)
    """Parts of the names of the disturbances for which it holds."""


# Two outages one after the other, between which the job was away, are one (`_merged`): nothing that is stored shows
# what was between. A group that was deleted while it was away is not told of: its offsets are gone (`_was_deleted`).
EXCEPTIONS: Sequence[_Exception] = (
    _Exception(
        "Where a group began is not stored. So only the run that saw it begin can prove that it took over.",
        ["and has passed its offsets"],
    ),
    _Exception(
        "Whether a task moved before the job started for the first time is not known: members may have joined then.",
        ["may restore state"],
        ["opened_at", "severity"],
        only=["started"],
    ),
    _Exception(
        "What ended before the first start is not known: whether a loop is the second one, which stays calm first.",
        ["does not stay up", "members left after less than"],
        ["ended_at"],
        only=["started"],
    ),
    _Exception(
        "A run that first sees a partition without a commit counts since its members were last Stable.",
        ["nothing committed"],
        ["opened_at", "since"],
    ),
    _Exception(
        "Until the first pass of a run it is not known whether work waits. A group that is deleted then is Off.",
        ["it is not known whether work waited for it"],
    ),
    _Exception(
        "Whether a lag falls is measured over ten minutes, which begin again after an absence.",
        ["does not catch up"],
        ["opened_at", "ended_at", "since", "severity", "rule"],
        only=["started", "away"],
    ),
    _Exception(
        "Five minutes of one run show whether a lag falls, and the pass before a start.",
        ["does not catch up"],
        ["opened_at"],
    ),
    _Exception(
        "When records were deleted that the group had not read is not in the log: the text says when it was seen.",
        ["deleted before the group read them"],
        ["opened_at", "since"],
        only=["started"],
    ),
    _Exception(
        "The first start waits for facts about work, for as long as each start does.",
        ["whether work waits is not known"],
        ["opened_at"],
        only=["started"],
    ),
    _Exception(
        "It counts records, which the cleaner has removed.",
        ["does not stay up", "members left after less than", "new assignments in"],
        only=["compacted"],
    ),
    _Exception(
        "Since when brokers answer again is not stored. Patience with a group without members counts from then.",
        ["it is not known whether work waits"],
        ["opened_at", "since"],
    ),
)


WRONG_CLOCKS: Sequence[str] = (
    "The only instance crashes, and the clock of its broker is an hour",
    "Rolling restart of 6 static members while the group moves between brokers whose clocks",
)
"""Begins of names: by how much a clock is wrong is known only to the run that had read everything before a record."""


@dataclass(frozen=True)
class Disturbance:
    """What happens to the job."""

    name: str
    restarts: Sequence[float] = ()
    away: tuple[float, float] | None = None
    transform: Transform = lambda world: world
    is_hidden: bool = False
    is_first: bool = False
    """Whether the job starts for the first time after it."""

    def play(self, history: History, begun: Moment) -> Outcome:
        """Play a history with a job to which this happens, from `begin` to `end`."""

        def disturbed(world: World) -> World:
            return replace(self.transform(world), job_downtimes=[self.away] if self.away else [])

        return play(history, transform=disturbed, restarts=self.restarts, begun=begun, until=self.end)

    @property
    def begin(self) -> float:
        """When the job first ends: until then nothing is disturbed."""
        return -(-(self.away or self.restarts)[0] // STEP) * STEP

    @property
    def end(self) -> float:
        """Until when the outcomes are compared."""
        return -(-(self.away or self.restarts)[-1] // STEP) * STEP + AFTER

    @property
    def back(self) -> float:
        """Since when nothing is disturbed."""
        return self.away[1] if self.away else 0.0


def disturbances(history: History) -> Iterator[Disturbance]:
    """Yield what may happen to the job in a history, at seeded moments: of a trouble, if there is one."""
    random, (first, last) = random_of("S", history.name), (history.watched_from, history.seconds)
    troubles = [one for one in told(OUTCOMES.of(history)) if one.rule in HEALTH_RULES]
    trouble = random.choice(troubles) if troubles else None
    begin = max(first, min(trouble.since if trouble else random.uniform(first, last), last) - 10 * MINUTE)
    end = min(last, (trouble and trouble.ended_at) or begin + 3 * HOUR, begin + 6 * HOUR)
    yield Disturbance("killed each minute", each(60.0, end, begin))
    pause = random.choice((5 * MINUTE, 25 * MINUTE))
    yield Disturbance(f"killed each {pause:g} s", each(pause, min(last, end + DAY), max(first, begin - DAY)))
    start = random.uniform(begin, min(end, last - GRACE)) // STEP * STEP
    for away in [(first, start)] if start > first and _shows_its_past(history) else []:  # it starts for the first time
        yield Disturbance(f"started at {start}", away=away, is_first=True)
        if history.protocol == STREAMS:  # a record of a classic group without members does not say what it is of
            yield Disturbance(f"started at {start}, compacted", away=away, transform=compacted(*away), is_first=True)
    for lengths in (MINUTES_AWAY, HOURS_AWAY, DAYS_AWAY):
        length = random.choice(lengths)
        left_at = random.uniform(begin - length / 2, end) // STEP * STEP
        left_at = max(first + 10 * MINUTE, min(left_at, (last - GRACE - length) // STEP * STEP))
        away = left_at, left_at + length
        if away[1] + GRACE > last:
            continue
        yield Disturbance(f"away {away}", away=away)
        yield Disturbance(f"away {away}, compacted", away=away, transform=compacted(*away))
        hidden = random.choice(KINDS)

        def hide(world: World, hidden: Any = hidden, back: float = away[1]) -> World:
            return Hidden.of(world, hidden, random_of("S", history.name, hidden.name), back).world

        yield Disturbance(f"away {away}, {hidden.name}", away=away, transform=hide, is_hidden=True)


def _shows_its_past(history: History) -> bool:
    """Return whether a job that starts for the first time can see since when something is so.

    Not of a topic that was created again, and by wrong clocks.
    """
    return not any(one.action in {"recreate_topics", "fail_over"} for one in history.operations)


LEFT_OUT = {
    (
        "A tool that saves costs stops an application for good, to which a record comes every eight minutes "
        "(classic protocol)",
        "killed each 1500 s",
    ): "A record waited for half a minute when the sessions had ended: a job that starts later knows nothing of it.",
    (
        "A source topic is deleted under an application that never committed; brokers clean its group up "
        "(classic protocol)",
        "away (3240.0, 10440.0), compacted",
    ): "The group lost its members and was deleted while the job was away, and compaction has removed its record.",
}
"""History and disturbance -> why the relation does not hold."""


def check_restarts(history: History, most: int | None = None) -> None:
    """Assert that relation S holds for a history, with at most so many disturbances, chosen by the seed."""
    if history.name.startswith(tuple(WRONG_CLOCKS)):
        return
    every = [one for one in disturbances(history) if (history.name, one.name) not in LEFT_OUT]
    if most is not None:
        every = random_of("S some", history.name).sample(every, min(most, len(every)))
    moments = play(history, moments=[at for one in every for at in (one.begin, one.end)]).moments
    found = {}
    for one in every:
        whole, other = moments[one.end].outcome(), one.play(history, moments[one.begin])
        if wrong := [*violations(whole, other, one), *two_times(other)]:
            found[one.name] = wrong
    assert not found, found


def violations(whole: Outcome, other: Outcome, one: Disturbance) -> Iterator[str]:
    """Yield in what the relation does not hold between an undisturbed outcome and another one."""
    may = _may_differ((whole, other), one)
    merged = _merged(whole, other, one)
    found = differences(
        *(
            [it for it in told(run) if it.group_id not in merged or it.rule not in HEALTH_RULES]
            for run in (whole, other)
        )
    )
    for it in (*found.missed, *found.false):
        name = "missed" if it in found.missed else "false"
        is_over = (it.ended_at or inf) <= one.back + GRACE or _is_well(it.group_id, whole, one.back)
        is_short = bool(one.away and it.opened_at >= one.away[0] and is_over)
        if (
            is_short
            or None in may(it)
            or _was_deleted(it, one, (whole, other))
            or _is_told_by_other_rule(it, one, (whole, other))
            or (one.is_first and it.since <= one.back and it.rule in OF_THE_PAST)
            or (is_within(one.away, it.since) and it.rule == _REWOUND)  # by the newest offset alone nobody sees it
            or (one.is_hidden and (it.ended_at or one.back) >= one.back)
        ):
            continue
        yield f"{name}: {it}"
    for first, second in found.same:
        names = ("ended_at",) if one.is_hidden else _FIELDS
        allowed = may(first) | may(second)
        if is_within(one.away and (one.away[0], inf), second.ended_at) and _is_well(
            first.group_id, whole, (second.ended_at or 0.0) + SECONDS
        ):  # the other run has seen it come again and again
            allowed |= {"ended_at", "ended_by"}
        if None not in allowed and (changed := _changed(first, second, one, set(names) - allowed)):
            yield f"{changed}: {first} -> {second}"


_FIELDS = ("severity", "opened_at", "ended_at", "ended_by", "since")


def _changed(first: Told, second: Told, one: Disturbance, names: set[str]) -> dict[str, Any]:
    """Return what differs between an alert and the same one of the other run, although it may not."""
    found = {}
    for name in sorted(names):
        before, after = getattr(first, name), getattr(second, name)
        is_same = before == after
        if isinstance(before, float) and isinstance(after, float):
            is_same = abs(before - after) <= SECONDS
        saw_the_end = _lines(first) > _lines(second)  # of several verdicts one after the other, it saw the last ones
        if one.away and name in {"opened_at", "ended_at"}:  # it could not be told before the job was back
            window = 0.0 if one.is_first else one.away[0] - SECONDS, one.back + GRACE
            is_same |= is_within(window, before) and (is_within(window, after) or (saw_the_end and name == "opened_at"))
        if one.away and name == "since":
            is_later = any(text in second.why for text in _LATER) or saw_the_end
            is_later |= one.is_first and first.rule in {*OF_THE_PAST, *AT_LEAST}
            is_later |= first.rule == _SET_ASIDE  # by the run that reads it
            is_same |= (
                after > before
                and is_later
                and not (one.is_first and before < one.back <= after and first.rule in HEALTH_RULES)
            )
        if one.is_hidden and name == "ended_at":
            is_same |= after is None or (before is not None and after > before)
        if one.away and name == "severity":  # a worse time of it may have passed meanwhile
            is_same |= (first.opened_at, second.opened_at) < (one.back, one.back)
        if not is_same:
            found[name] = (before, after)
    return found


def is_within(times: tuple[float, float] | None, at: float | None) -> bool:
    """Return whether a time is within others; what is not over is within none."""
    return bool(times and at is not None and times[0] <= at <= times[1])


def _is_well(group_id: str | None, whole: Outcome, at: float) -> bool:
    """Return whether a group is well at a time; its alert may stay for a while, if it comes again and again."""
    spells = [verdict for verdict, since in verdicts(whole).get(group_id or "", ()) if since <= at]
    return bool(spells) and spells[-1] in GOOD


def _is_told_by_other_rule(it: Told, one: Disturbance, outcomes: Sequence[Outcome]) -> bool:
    """Return whether both runs tell of a group once the job is back: its worst time may have passed then."""
    at = one.back + GRACE
    return bool(one.away and it.rule in HEALTH_RULES and it.opened_at <= at) and all(
        any(
            its.group_id == it.group_id and its.rule in HEALTH_RULES and its.opened_at <= at <= (its.ended_at or at)
            for its in told(run)
        )
        for run in outcomes
    )


def _was_deleted(it: Told, one: Disturbance, outcomes: Sequence[Outcome]) -> bool:
    """Return whether a group was deleted while the job was away: whether work waited went with its offsets."""
    groups = (group for run in outcomes if (group := run.groups.get(it.group_id or "")))
    return any(group.deleted_at and is_within(one.away, seconds(group.deleted_at)) for group in groups)


def _merged(whole: Outcome, other: Outcome, one: Disturbance) -> set[str | None]:
    """Return the groups with two outages, between which the job was away, that are one for it.

    Or that are two, because it did not know the first one when it started for the first time: else it stays calm first.
    """
    found = set[str | None]()
    if one.is_first:
        again = one.back - AGAIN.total_seconds(), one.back
        found |= {it.group_id for it in told(whole) if it.rule in HEALTH_RULES and is_within(again, it.ended_at)}
    if one.away:
        begin, end = one.away[0] - SECONDS, one.back + GRACE
        ended, began = (
            {it.group_id for it in told(whole) if it.rule in HEALTH_RULES and is_within((begin, end), at(it))}
            for at in (lambda it: it.ended_at, lambda it: it.opened_at)
        )
        lasts = {
            it.group_id
            for it in told(other)
            if it.rule in HEALTH_RULES and it.opened_at <= end and (it.ended_at or end) >= one.back
        }
        found |= ended & began & lasts
    return found


def _lines(one: Told) -> int:
    return one.why.count(f"{one.group_id} is ")


def _may_differ(outcomes: Sequence[Outcome], one: Disturbance) -> Callable[[Told], set[str | None]]:
    """Return a function that gives the fields of an alert that may differ; None: everything may."""
    texts: dict[str, set[int]] = {}
    for change in (change for outcome in outcomes for change in outcome.changes):
        of_group = texts.setdefault(change.group_id, set())
        of_group.update(
            number
            for number, it in enumerate(EXCEPTIONS)
            if any(part in one.name for part in it.only) and any(text in change.verdict.why for text in it.texts)
        )

    def fields(one: Told) -> set[str | None]:
        found: set[str | None] = set()
        for number in texts.get(one.group_id or "", ()):
            found.update(EXCEPTIONS[number].fields or [None])
        return found | ({None} if one.rule == RULE_OF_VERDICT[BEHIND] and "rule" in found else set())

    return fields


def two_times(outcome: Outcome) -> Iterator[str]:
    """Yield the groups with an open alert whose verdict holds since another time than the alert says."""
    verdicts = {change.group_id: change.verdict for change in outcome.changes}
    restoring = {change.group_id for change in outcome.changes if change.verdict.verdict == RESTORING}  # no alert
    for one in outcome.alerts:
        is_open = one.opened_at and one.ended_at is None and one.group_id not in restoring
        if is_open and len({line.verdict for line in one.timeline}) == 1:
            since = verdicts[one.group_id or ""].since
            if since != one.since:
                yield f"{one.group_id}: the verdict says since {seconds(since)}, the alert {seconds(one.since)}"
