"""Judges a group: the first thing that is wrong with it decides, and if nothing is, how well it is.

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

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.state_rules import ASSIGNING, EMPTY, NOT_READY
from streaming_app.health.facts import WORK_OLD, Check, Facts, to_time
from streaming_app.health.verdict import (
    BAD,
    BEHIND,
    BROKER_AWAY,
    DOWN,
    GOOD,
    IDLE,
    LOSING,
    OFF,
    OK,
    PLANNED,
    RESTORING,
    RETIRED,
    SUCCESSOR,
    UNKNOWN,
    UNSTABLE,
    Verdict,
)
from streaming_app.lag.work import GroupWork
from streaming_app.text import utc
from streaming_app.time_intervals import contain, next_change

_PROVEN_BY_UPTIME = timedelta(minutes=10)
_ASSIGNS_LATER = (
    "The broker has not assigned the tasks yet: it waits for `group.streams.initial.rebalance.delay.ms` after the "
    "first member joins, or for `group.streams.assignment.interval.ms` after the assignment before."
)
_ADVANCES = "Offsets advance."
"""Why a group is Ok, whether something waits just now or not: that changes with each record."""
_SOME_UNKNOWN = " Of some of its partitions it is not known whether work waits."
_JUST_CAME = timedelta(minutes=1)
_AFTER = timedelta(microseconds=1)  # then a time is over
_GOOD_FOR = timedelta(minutes=15)  # after that what was known says nothing of now


AnyCheck = Callable[[Facts], Check | None]


def judge(facts: Facts, checks: Sequence[AnyCheck]) -> Verdict:
    """Return the verdict on a group."""
    now, previous = facts.now, facts.previous
    facts_at = facts.work_at or (previous.facts_at if previous else None)
    if previous and _is_retired(facts, previous):
        return replace(previous, facts_at=facts_at, recheck_at=None)
    found, wakes = _first_due(checks, facts)
    if found:
        result = _verdict_of(_with_broker(found, facts), previous)
    else:
        was_bad = previous is not None and previous.verdict in BAD | {RESTORING}
        missing, proven_at = _missing_proof(facts, previous) if previous and was_bad else (None, None)
        if previous and missing:
            result = replace(previous, evidence={**previous.evidence, "not_over": missing})
        else:
            result = _good(facts, is_back=was_bad)
        hours = facts.settings.running_hours
        changes = next_change(hours, now) if hours and facts.activity.group.state == EMPTY else None
        good_until = _good_until(facts)
        stale = [at + _AFTER for at in (facts.work_at and facts.work_at + WORK_OLD, good_until) if at]
        wakes += [at for at in (proven_at, changes, *stale) if at and at > now]
    return replace(
        result,
        caught_up_at=facts.caught_up_at,
        losing_at=None if result.verdict in GOOD else facts.losing_at,
        facts_at=facts_at,
        recheck_at=min(wakes, default=None),
    )


def _first_due(checks: Sequence[AnyCheck], facts: Facts) -> tuple[Check | None, list[datetime]]:
    """Return the first check that is due, and when another one may be, or it may end."""
    wakes: list[datetime] = []
    for check in checks:
        one = check(facts)
        if one and one.due > facts.now:
            wakes.append(one.due)
        elif one:
            return one, wakes + [at for at in (one.ends_at,) if at and at > facts.now]
    return None, wakes


def _is_retired(facts: Facts, verdict: Verdict) -> bool:
    is_so = verdict.verdict == OFF and bool(verdict.evidence.get(RETIRED))
    return is_so and facts.activity.group.state == EMPTY and facts.activity.state_since <= verdict.at


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
    facts: Facts, previous: Verdict
) -> tuple[str | None, datetime | None]:
    """Return what is missing until a bad verdict is over, None if nothing is; and when it is over at the latest."""
    activity, work, known, now = facts.activity, facts.work, facts.is_known, facts.now
    state, never = activity.group.state, work is not None and _has_no_commit_yet(work, previous)
    if facts.is_deleted:
        return "the group was deleted", None
    if previous.verdict == UNSTABLE and activity.runs:
        was_known = previous.facts_at is not None if work is None else work.has_commits
        return ("its lag is not known now" if was_known and not known else None), None
    if state == EMPTY:
        done = known and work is not None and not (work.waiting or work.unknown or never)
        return (None if done or facts.successor else "it has no members"), None
    if not activity.runs:
        return "it is not ready", None
    if work is not None and known:
        if work.unknown and previous.verdict in {LOSING, BEHIND}:
            return "the lag of some partitions is not known now", None
        if not work.waiting:
            return ("a partition has no commit yet" if never else None), None
        if previous.verdict == BEHIND and work.may_be_slow:
            return "it does not catch up yet, as far as is known", None
        back = activity.runs_since if previous.verdict == DOWN else previous.since
        moved = work.progressed_at is not None and to_time(work.progressed_at) > back
        return (None if moved else "no offset has advanced yet"), None
    if previous.verdict == DOWN and (work is None or not work.has_commits):
        proven_at = activity.runs_since + _PROVEN_BY_UPTIME
        return (None if now >= proven_at else "it has just come back"), proven_at
    return "its lag is not known now", None


def _has_no_commit_yet(work: GroupWork, verdict: Verdict) -> bool:
    """Tell whether a partition of the evidence still has none: after a restart nobody knows where it began to wait."""
    never = [one for one in verdict.evidence.get("partitions", ()) if one.get("committed_offset") is None]
    found = (work.progress.get((one.get("topic"), one.get("partition"))) for one in never)
    return any(one is not None and one.row.committed_offset is None for one in found)


def _good(facts: Facts, *, is_back: bool) -> Verdict:
    previous, now = facts.previous, facts.now
    if previous and facts.was == OFF and facts.is_not_read_yet and facts.activity.group.state == EMPTY:
        return replace(previous, severity=None)
    verdict, why = _good_one(facts)
    if is_back and verdict == UNKNOWN and facts.activity.runs and not facts.is_known:
        verdict, why = OK, "It has members again; its lag is not known."
    if previous and previous.verdict == verdict:
        return replace(previous, why=why, evidence=_numbers(facts), severity=None)
    return Verdict(verdict, now, now, why, evidence=_numbers(facts))


def _good_one(  # noqa: PLR0911 - a list of cases
    facts: Facts,
) -> tuple[str, str]:
    activity, work, previous = facts.activity, facts.work, facts.previous
    state, was_good = activity.group.state, facts.was in {IDLE, OK}
    if facts.is_deleted:
        return OFF, "It was deleted when it had nothing to do."
    if state == EMPTY:
        return OFF, _why_off(facts)
    if state == NOT_READY:
        return UNKNOWN, f"NotReady since {utc(activity.state_since)}: {activity.reason or 'the reason is not known'}"
    if work is None or not facts.is_known:
        at = facts.work_at
        good_until = _good_until(facts)
        if previous and was_good and good_until and facts.now <= good_until:
            return previous.verdict, previous.why
        if at and work and work.has_commits:
            return UNKNOWN, f"Whether work waits is not known since {utc(at)}."
        return UNKNOWN, "Its lag is not known: no commit, or no answer about the ends of its logs."
    unknown = _SOME_UNKNOWN if work.unknown else ""
    if not work.waiting and not facts.is_busy:
        return IDLE, f"Nothing waits. {_ASSIGNS_LATER if state == ASSIGNING else ''}".rstrip() + unknown
    moved_at, known_at = to_time(work.progressed_at or 0.0), to_time(work.known_at)
    has_moved = moved_at >= activity.runs_since and known_at - moved_at < timedelta(seconds=work.patience)
    is_new = work.waits_since is not None and known_at - to_time(work.waits_since) < _JUST_CAME
    if has_moved if work.waiting else known_at >= activity.runs_since:
        return OK, _ADVANCES + unknown
    if previous and was_good and is_new:
        return OK, previous.why if previous.verdict == OK else "Records have just come."
    return UNKNOWN, "Work waits or comes, and it is not known yet whether offsets advance."


def _good_until(facts: Facts) -> datetime | None:
    """Return until when a good verdict may stay though nothing is known now; None if nothing ever was."""
    at = facts.work_at or (facts.previous.facts_at if facts.previous else None)
    if at and facts.is_not_read_yet and facts.watched_since:  # a job that has just started is about to read it
        return max(at + _GOOD_FOR, facts.watched_since + WORK_OLD)
    return at + _GOOD_FOR if at else None


def _why_off(facts: Facts) -> str:
    hours, now = facts.settings.running_hours, facts.now
    if hours and not contain(hours, now):
        begins = next_change(hours, now)
        until = utc(begins) if begins else "next year"
        return f"It has no members, and is not meant to run before {until} (running_hours)."
    if not facts.activity.ended:
        return "It never had members."
    if facts.successor and facts.successor == facts.settings.successor:
        return f"{facts.successor} is declared as its successor, and has passed its offsets."
    if facts.successor:
        return f"{facts.successor} reads the same topics with the same topology, and has passed its offsets."
    if facts.work_waits:
        return "It has no members, and work waits, but not for long enough yet to be Down."
    unknown = _SOME_UNKNOWN if facts.work and facts.work.unknown else ""
    return (
        f"It has no members, and nothing waits.{unknown}"
        if facts.is_known
        else "It has had no members for a short time."
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
