"""The verdict on a group: whether it processes what it should, and if not, since when, why, and what will be lost.

Theory of operation
-------------------
`judge` goes through `checks.CHECKS` in their order. Each says what would be wrong, since when, and from when on (`due`)
that is the verdict: the first one that is due decides. All times come from the facts, so the same facts give the same
verdicts and times however often one looks. `recheck_at` is when the verdict may change by itself; until then nothing
needs to be looked at again.

If nothing is wrong the verdict is a good one. A bad one before it ends only by evidence: offsets have advanced since
the group came back, nothing waits any more, or another group is proven to have taken over. A fact that is too old
neither ends nor begins anything: the verdict stays as it was and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from streaming_app.groups.copies_status import Progress
from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import ASSIGNING, EMPTY, NOT_READY
from streaming_app.health.activity import Activity
from streaming_app.lag.work import GroupWork
from streaming_app.text import rank, utc
from streaming_app.time_intervals import TimeInterval, contain, next_change

LOSING, DOWN, STALLED, RESTORING = "Losing", "Down", "Stalled", "Restoring"
BEHIND, UNSTABLE = "Behind", "Unstable"
OFF, IDLE, OK, UNKNOWN = "Off", "Idle", "Ok", "Unknown"
VERDICTS: Mapping[str, str] = {
    LOSING: "Records were deleted before the group read them.",
    DOWN: "Nothing is processed, and there is work, or that cannot be known.",
    STALLED: "Members have the tasks and work waits, but offsets do not move.",
    RESTORING: "As Stalled, but tasks came to another member and restore their state.",
    BEHIND: "Offsets move, but the oldest record that waits is old, and the group does not catch up.",
    UNSTABLE: "It processes, but is interrupted again and again.",
    OFF: "It has no members, and is not Down for the reason that is given.",
    IDLE: "There is nothing to do.",
    OK: "Work comes or waits, and offsets advance.",
    UNKNOWN: "Not enough is known yet.",
}
"""Every verdict, in the order in which they are decided, and what it means."""
BAD = frozenset({LOSING, DOWN, STALLED, BEHIND, UNSTABLE})
GOOD = frozenset({OFF, IDLE, OK})
CRITICAL, WARNING = "critical", "warning"

MINUTE, HOUR = 60.0, 3600.0
WORK_OLD = timedelta(minutes=3)
_RECENTLY = timedelta(minutes=10)
_USUAL_GAPS = 2
_PROVEN_BY_UPTIME = timedelta(minutes=10)


@dataclass(frozen=True)
class HealthSettings:
    """From when on something is wrong, for one group. In seconds."""

    down_after: float = 5 * MINUTE
    """Without members or ready tasks, while work waits."""
    down_unknown_after: float = 15 * MINUTE
    """The same while it is not known whether work waits."""
    not_ready_after: float = 5 * MINUTE
    stay_up: float = 10 * MINUTE
    """An application that was started again and again is up after so long without interruption."""
    behind_age: float = 10 * MINUTE
    behind_for: float = 15 * MINUTE
    longest_rebalance: float = 15 * MINUTE
    lost_after: float = MINUTE
    successor: str | None = None
    """The group that is to take over, as declared."""
    running_hours: Sequence[TimeInterval] = ()
    """When it is meant to run, as declared; empty: always."""


DEFAULTS = HealthSettings()
Restores = Mapping[str, Progress]
Away = Mapping[str, Collection[str]]
BROKER_AWAY = "broker_away"
"""Key of evidence: the broker that led partitions which the group reads."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a group, each with the time that it is true for."""

    activity: Activity
    work: GroupWork | None = None
    """None: nothing is known of it."""
    is_deleted: bool = False
    """The group was deleted: the other facts are those before that."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records, of those that do not keep them for ever."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader, such as `orders-3`, by the broker that led them."""
    restores: Restores = field(default_factory=dict)
    """By task, such as `0_3`: what its owner reports of its restore."""
    watched_since: datetime | None = None
    """Since when this run of the job has judged."""
    successor: str | None = None
    """The group that has taken over."""


class Check(NamedTuple):
    """What is, or will be, wrong."""

    verdict: str
    since: datetime
    due: datetime
    """From when on it is the verdict."""
    severity: str | None
    why: str
    evidence: Mapping[str, Any] = {}
    ends_at: datetime | None = None
    """When it may end by itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, and what proves it."""

    verdict: str
    since: datetime
    """Since when it is so, by the facts."""
    at: datetime
    """When it became the verdict."""
    why: str
    severity: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Offsets, counts, times: as JSON."""
    caught_up_at: datetime | None = None
    """When nothing will wait, if it goes on like that."""
    losing_at: datetime | None = None
    """When the retention deletes the oldest record that waits."""
    facts_at: datetime | None = None
    """What is known of work is true for this time."""
    recheck_at: datetime | None = None


def is_bad(verdict: Verdict) -> bool:
    """Tell whether a verdict opens a problem."""
    return verdict.verdict in BAD or (verdict.verdict == RESTORING and verdict.severity is not None)


WORST_FIRST = (LOSING, DOWN, STALLED, BEHIND, UNSTABLE, RESTORING, UNKNOWN, OK, IDLE, OFF)
_MOST_SEVERE_FIRST = (CRITICAL, WARNING)


def trouble(verdict: Verdict) -> tuple[int, int]:
    """Return a sort key: the most severe first, and of those as severe the worst verdict."""
    return rank(verdict.severity, _MOST_SEVERE_FIRST), rank(verdict.verdict, WORST_FIRST)


SUCCESSOR, PLANNED, RETIRED = "successor", "planned", "retired"
"""Keys of evidence: the group that has taken over, and what a person said of a group when they ended its problem."""
_ASSIGNS_LATER = (
    "The broker has not assigned the tasks yet: it waits for `group.streams.initial.rebalance.delay.ms` after the "
    "first member joins, or for `group.streams.assignment.interval.ms` after the assignment before."
)
_ADVANCES = "Offsets advance."
"""Why a group is Ok, whether something waits just now or not: that changes with each record."""
_SOME_UNKNOWN = " Of some of its partitions it is not known whether work waits."
_JUST_CAME = timedelta(minutes=1)
_GOOD_FOR = timedelta(minutes=15)  # after that what was known says nothing of now

AnyCheck = Callable[[Facts, datetime, HealthSettings, Verdict | None], Check | None]


def judge(
    facts: Facts,
    now: datetime,
    previous: Verdict | None,
    checks: Sequence[AnyCheck],
    settings: HealthSettings = DEFAULTS,
) -> Verdict:
    """Return the verdict on a group at this time; `previous` is the one before, None for the first one."""
    if previous and _is_retired(facts.activity, previous):
        return replace(previous, facts_at=_work_at(facts) or previous.facts_at, recheck_at=None)
    found, wakes = _first_due(checks, facts, now, settings, previous)
    if found:
        result = _verdict_of(_with_broker(found, facts), previous)
    else:
        is_bad = previous is not None and previous.verdict in BAD | {RESTORING}
        missing, proven_at = _missing_proof(facts, now, previous) if previous and is_bad else (None, None)
        if proven_at and proven_at > now:
            wakes.append(proven_at)
        if previous and missing:
            result = replace(previous, evidence={**previous.evidence, "not_over": missing})
        else:
            result = _good(facts, now, previous, settings, is_back=is_bad)
        hours = settings.running_hours
        if hours and facts.activity.group.state == EMPTY and (at := next_change(hours, now)):
            wakes.append(at)
        if at := _work_at(facts):
            stale = (at + after + timedelta(microseconds=1) for after in (WORK_OLD, _GOOD_FOR))
            wakes += [one for one in stale if one > now]
    return replace(
        result,
        caught_up_at=_caught_up_at(facts),
        losing_at=None if result.verdict in GOOD else losing_at(facts),
        facts_at=_work_at(facts) or (previous.facts_at if previous else None),
        recheck_at=min(wakes, default=None),
    )


def _first_due(
    checks: Sequence[AnyCheck], facts: Facts, now: datetime, settings: HealthSettings, previous: Verdict | None
) -> tuple[Check | None, list[datetime]]:
    """Return the first check that is due, and when another one may be, or it may end."""
    wakes: list[datetime] = []
    for check in checks:
        one = check(facts, now, settings, previous)
        if one and one.due > now:
            wakes.append(one.due)
        elif one:
            return one, wakes + [at for at in (one.ends_at,) if at and at > now]
    return None, wakes


def ended_by_person(verdict: Verdict, group: GroupSnapshot | None, reason: str, now: datetime) -> Verdict:
    """Return the verdict on a group whose problem a person ends: one that is retired is Off until it runs again.

    `group` is None where only the verdict is known. What was planned keeps its verdict, without a
    severity, and is a problem again once it has another bad verdict.
    """
    if reason == RETIRED and (group is None or group.state == EMPTY):
        return Verdict(OFF, now, now, "It is retired, as somebody said.", evidence={RETIRED: True})
    return replace(verdict, severity=None, evidence={**verdict.evidence, PLANNED: True})


def _is_retired(activity: Activity, verdict: Verdict) -> bool:
    is_so = verdict.verdict == OFF and bool(verdict.evidence.get(RETIRED))
    return is_so and activity.group.state == EMPTY and activity.state_since <= verdict.at


def is_not_read_yet(facts: Facts, previous: Verdict | None) -> bool:
    """Tell whether only an earlier run of the job knew whether work waits: this one has not read it yet."""
    was_known = previous is not None and previous.facts_at is not None
    return was_known and (facts.work is None or not facts.work.known_at)


def is_known(facts: Facts, now: datetime) -> bool:
    """Tell whether it is known whether work waits."""
    work = facts.work
    if work is None or work.unknown >= work.partitions:
        return False
    if now - to_time(work.known_at) > WORK_OLD and not facts.is_deleted:
        return False
    return work.has_commits or work.waiting > 0 or not work.uncertain


def has_work(facts: Facts, now: datetime) -> bool:
    """Tell whether work is known to wait or to come."""
    return work_waits(facts, now) or (facts.work is not None and is_known(facts, now) and _arrives(facts.work))


def work_waits(facts: Facts, now: datetime) -> bool:
    """Tell whether work is known to wait, whatever came before."""
    return facts.work is not None and is_known(facts, now) and facts.work.waiting > 0


def to_time(seconds: float) -> datetime:
    """Return a time of a pass as other facts have times."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def losing_at(facts: Facts) -> datetime | None:
    """Return when retention deletes the oldest record that waits, as far as that is known."""
    work = facts.work
    times = [
        written + facts.retention[topic]
        for topic, written in (work.oldest if work else {}).items()
        if topic in facts.retention
    ]
    return to_time(min(times)) if times else None


def _arrives(work: GroupWork) -> bool:
    return work.arrived_at is not None and work.known_at - work.arrived_at < _RECENTLY.total_seconds()


def _is_busy(work: GroupWork) -> bool:
    """Tell whether records come from time to time: a group whose records are rare is not idle between them."""
    idle_after = max(_RECENTLY.total_seconds(), _USUAL_GAPS * work.arrival_gap)
    return work.arrived_at is not None and work.known_at - work.arrived_at < idle_after


def _work_at(facts: Facts) -> datetime | None:
    return to_time(facts.work.known_at) if facts.work and facts.work.known_at else None


def _caught_up_at(facts: Facts) -> datetime | None:
    work = facts.work
    if work is None or not work.waiting or work.catch_up_seconds is None:
        return None
    return to_time(work.known_at + work.catch_up_seconds)


def _verdict_of(found: Check, previous: Verdict | None) -> Verdict:
    if previous and previous.verdict == found.verdict:
        planned = {PLANNED: True} if previous.evidence.get(PLANNED) else {}
        return replace(
            previous,
            why=found.why,
            severity=None if planned else found.severity,
            evidence={**found.evidence, **planned},
            since=min(previous.since, found.since),
        )
    return Verdict(found.verdict, found.since, found.due, found.why, found.severity, found.evidence)


def _with_broker(found: Check, facts: Facts) -> Check:
    """Name the broker that is away, of those which lead partitions that the group needs the one with most of them."""
    if not facts.away or facts.work is None:
        return found
    own = {f"{topic}-{partition}" for topic, partition in facts.work.progress}
    own.add(f"{OFFSETS_TOPIC}-{facts.work.tasks.source_partition}")
    counts = {broker: len(own.intersection(led)) for broker, led in facts.away.items()}
    broker = max(sorted(counts), key=lambda one: counts[one])
    return found._replace(evidence={**found.evidence, BROKER_AWAY: broker}) if counts[broker] else found


def _missing_proof(  # noqa: PLR0911 - a list of cases
    facts: Facts, now: datetime, previous: Verdict
) -> tuple[str | None, datetime | None]:
    """Return what is missing until a bad verdict is over, None if nothing is; and when it is over at the latest."""
    activity, work, known = facts.activity, facts.work, is_known(facts, now)
    state = activity.group.state
    if facts.is_deleted:
        return "the group was deleted", None
    if previous.verdict == UNSTABLE:
        return None, None
    if state == EMPTY:
        done = known and work is not None and not work.waiting
        return (None if done or facts.successor else "it has no members"), None
    if not activity.runs:
        return "it is not ready", None
    if work is not None and known:
        if work.unknown and previous.verdict in {LOSING, BEHIND}:
            return "the lag of some partitions is not known now", None
        if not work.waiting:
            return None, None
        if previous.verdict == BEHIND and work.may_be_slow:
            return "it does not catch up yet, as far as is known", None
        back = activity.runs_since if previous.verdict == DOWN else previous.since
        moved = work.progressed_at is not None and to_time(work.progressed_at) > back
        return (None if moved else "no offset has advanced yet"), None
    if previous.verdict == DOWN and (work is None or not work.has_commits):
        proven_at = activity.runs_since + _PROVEN_BY_UPTIME
        return (None if now >= proven_at else "it has just come back"), proven_at
    return "its lag is not known now", None


def _good(facts: Facts, now: datetime, previous: Verdict | None, settings: HealthSettings, *, is_back: bool) -> Verdict:
    if (
        previous
        and previous.verdict == OFF
        and is_not_read_yet(facts, previous)
        and facts.activity.group.state == EMPTY
    ):
        return replace(previous, severity=None)
    verdict, why = _good_one(facts, now, previous, settings)
    if is_back and verdict == UNKNOWN and facts.activity.runs and not is_known(facts, now):
        verdict, why = OK, "It has members again; its lag is not known."
    if previous and previous.verdict == verdict:
        return replace(previous, why=why, evidence=_numbers(facts), severity=None)
    return Verdict(verdict, now, now, why, evidence=_numbers(facts))


def _good_one(  # noqa: PLR0911 - a list of cases
    facts: Facts, now: datetime, previous: Verdict | None, settings: HealthSettings
) -> tuple[str, str]:
    activity, work = facts.activity, facts.work
    state = activity.group.state
    if facts.is_deleted:
        return OFF, "It was deleted when it had nothing to do."
    if state == EMPTY:
        return OFF, _why_off(facts, now, settings)
    if state == NOT_READY:
        return UNKNOWN, f"NotReady since {utc(activity.state_since)}: {activity.reason or 'the reason is not known'}"
    if work is None or not is_known(facts, now):
        at = _work_at(facts)
        if previous and previous.verdict in {IDLE, OK} and (at is None or now - at <= _GOOD_FOR):
            return previous.verdict, previous.why
        if at and work and work.has_commits:
            return UNKNOWN, f"Whether work waits is not known since {utc(at)}."
        return UNKNOWN, "Its lag is not known: no commit, or no answer about the ends of its logs."
    unknown = _SOME_UNKNOWN if work.unknown else ""
    if not work.waiting and not _is_busy(work):
        return IDLE, f"Nothing waits. {_ASSIGNS_LATER if state == ASSIGNING else ''}".rstrip() + unknown
    moved_at, known_at = to_time(work.progressed_at or 0.0), to_time(work.known_at)
    has_moved = moved_at >= activity.runs_since and known_at - moved_at < timedelta(seconds=work.patience)
    is_new = work.waits_since is not None and known_at - to_time(work.waits_since) < _JUST_CAME
    was_good = previous is not None and previous.verdict in {IDLE, OK}
    if has_moved if work.waiting else known_at >= activity.runs_since:
        return OK, _ADVANCES + unknown
    if previous and was_good and is_new:
        return OK, previous.why if previous.verdict == OK else "Records have just come."
    return UNKNOWN, "Work waits or comes, and it is not known yet whether offsets advance."


def _why_off(facts: Facts, now: datetime, settings: HealthSettings) -> str:
    hours = settings.running_hours
    if hours and not contain(hours, now):
        begins = next_change(hours, now)
        until = utc(begins) if begins else "next year"
        return f"It has no members, and is not meant to run before {until} (running_hours)."
    if not facts.activity.ended:
        return "It never had members."
    if facts.successor and facts.successor == settings.successor:
        return f"{facts.successor} is declared as its successor, and has passed its offsets."
    if facts.successor:
        return f"{facts.successor} reads the same topics with the same topology, and has passed its offsets."
    if work_waits(facts, now):
        return "It has no members, and work waits, but not for long enough yet to be Down."
    return (
        "It has no members, and nothing waits." if is_known(facts, now) else "It has had no members for a short time."
    )


def _numbers(facts: Facts) -> dict[str, Any]:
    """Return what a good verdict is made of, in numbers that do not change while nothing happens."""
    work = facts.work
    if work is None:
        return {}
    found: dict[str, Any] = {"partitions": work.partitions}
    if work.unknown:
        found["unknown_partitions"] = work.unknown
    if facts.successor:
        found[SUCCESSOR] = facts.successor
    return found
