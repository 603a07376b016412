"""Decides the verdict on a group: the first bad condition that holds, or else a good verdict.

Theory of operation
-------------------
`judge` goes through `CONDITIONS` in their order. Each condition may return a bad verdict, with the time from which on
it counts (`at`). The first one whose time has come decides. All times come from the facts, so the same facts give the
same verdicts and times, however often `judge` is called. `recheck_at` is when the verdict may change without new facts.

If no condition holds, the verdict is a good one. But a bad verdict ends only by evidence: offsets have advanced since
the group came back, nothing waits any more, or another group has proven to be the successor. Facts that are too old
neither begin nor end a verdict: it stays as it was, and its evidence names what is missing (`not_over`).

What is not known is never well. If it is not known of some partitions whether work waits, a good verdict from before
stays for `_GOOD_FOR`; then the group is Unknown, whatever its other partitions do. An alert with partitions that are
known can be over all the same: then the verdict has `OVER` as evidence.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.state_rules import ASSIGNING, EMPTY
from streaming_app.health.conditions import CONDITIONS, WAITING
from streaming_app.health.facts import MOMENT, WORK_OLD, Facts, to_time
from streaming_app.health.spells import STAY_UP
from streaming_app.health.time_intervals import contain, next_change
from streaming_app.health.verdict import (
    BAD,
    BEHIND,
    BROKER_AWAY,
    DOWN,
    EARLIER,
    GOOD,
    IDLE,
    OFF,
    OK,
    OPEN_TRANSACTION,
    OVER,
    PENDING,
    PLANNED,
    PROTOCOL,
    RESTORING,
    RETIRED,
    SINKS,
    SUCCESSOR,
    UNKNOWN,
    UNSTABLE,
    Verdict,
    is_bad,
    pending_evidence,
)
from streaming_app.lag.work import NO_WORK, GroupWork
from streaming_app.text import count, utc

_ENDS_BY_PROOF = BAD | {RESTORING}
_EARLIER_KEPT = 5
_ASSIGNS_LATER = (
    " The broker has not assigned the tasks yet: it waits for `group.streams.initial.rebalance.delay.ms` after the "
    "first member joins, or for `group.streams.assignment.interval.ms` after the assignment before."
)
_NOTHING_LEFT = "It has no members, and nothing waits."
_DELETED_IDLE = "It was deleted when it had nothing to do."
_OF_SOME = {
    OK: "offsets advance in them",
    IDLE: "nothing waits in them",
    OFF: "nothing waits in them; it has no members",
    UNKNOWN: "no offset has advanced lately",
}
_NOT_KNOWN_YET = "Work waits or comes, and it is not known yet whether offsets advance."
_WAITS = {True: ", and work waits", False: "", None: ", and it is not known whether work waits"}
_UP_TO_TRANSACTIONS = "Offsets advance up to open transactions."  # also between two of them: it changes rarely
_JUST_CAME = timedelta(minutes=1)
_GOOD_FOR = timedelta(minutes=15)  # how long a good verdict stays without new facts about work


def judge(facts: Facts) -> Verdict:
    """Return the verdict on a group."""
    now, previous = facts.now, facts.previous
    if previous and previous.evidence.get(RETIRED) and facts.group.state == EMPTY and facts.state_since <= previous.at:
        return replace(previous, facts_at=facts.complete_at, recheck_at=None)
    wakes: list[datetime | None] = []
    pending: Verdict | None = None
    for condition in CONDITIONS:
        found = condition(facts)
        if found and found.at <= now:
            wakes.append(found.recheck_at)
            sinks = {SINKS: dict(facts.sinks)} if facts.sinks else {}
            result = continued(replace(found, evidence={**found.evidence, **_broker(facts), **sinks}), previous)
            break
        wakes.append(found.at if found else None)
        pending = pending or (found if found and found.verdict == DOWN else None)
    else:
        missing = _missing_proof(facts, previous) if previous and facts.was in _ENDS_BY_PROOF else None
        if previous and missing:
            later = _pending(facts, pending) if pending and facts.group.state == EMPTY else {}
            result = replace(previous, evidence={**previous.evidence, "not_over": missing, **later})
        else:
            result = continued(_good(facts, pending), previous)
        if not facts.is_deleted:  # there will be no more facts about a deleted group
            hours = facts.settings.running_hours
            wakes += [
                facts.runs_since + STAY_UP if missing else None,
                next_change(hours, now) if hours and facts.group.state == EMPTY else None,
                facts.work_at and facts.work_at + WORK_OLD + MOMENT,
                (good_until := _good_until(facts)) and good_until + MOMENT,
            ]
    others = {name: value for name, value in result.evidence.items() if name != PROTOCOL}
    return replace(
        result,
        evidence=others | ({PROTOCOL: facts.group.protocol} if facts.is_classic else {}),
        caught_up_at=facts.caught_up_at,
        losing_at=None if result.verdict in GOOD else facts.losing_at,
        facts_at=facts.complete_at,
        recheck_at=min((at for at in wakes if at and at > now), default=None),
    )


def continued(found: Verdict, previous: Verdict | None) -> Verdict:
    """Return the verdict that follows `previous`.

    If it is the same as before, it keeps its times, and stays planned if a person said so.
    """
    if previous is None:
        return found
    if previous.verdict != found.verdict:
        if not (is_bad(previous) and is_bad(found)):
            return found
        # it is the same outage: keep its beginning, and what the earlier verdict said
        said = {"verdict": previous.verdict, "since": previous.since.isoformat(), "why": previous.why}
        kept = [*previous.evidence.get(EARLIER, ()), said][-_EARLIER_KEPT:]
        return replace(found, since=min(previous.since, found.since), evidence={**found.evidence, EARLIER: kept})
    found = replace(found, since=min(previous.since, found.since), at=previous.at)
    if earlier := previous.evidence.get(EARLIER):
        found = replace(found, evidence={**found.evidence, EARLIER: earlier})
    if previous.evidence.get(PLANNED) and found.verdict in _ENDS_BY_PROOF:
        return replace(found, severity=None, evidence={**found.evidence, PLANNED: True})
    return found


def _broker(facts: Facts) -> Mapping[str, str]:
    """Return as evidence the broker that led most of the group's partitions that have no leader now."""
    if not facts.away:
        return {}
    own = {f"{topic}-{partition}" for topic, partition in facts.work.progress}
    own.add(f"{OFFSETS_TOPIC}-{facts.work.tasks.source_partition}")
    counts = {broker: len(own.intersection(led)) for broker, led in facts.away.items()}
    broker = max(sorted(counts), key=lambda one: counts[one])
    return {BROKER_AWAY: broker} if counts[broker] else {}


def _missing_proof(  # noqa: C901, PLR0911 - a list of cases
    facts: Facts, previous: Verdict
) -> str | None:
    """Return the evidence that is missing to end a bad verdict; None if it ends."""
    work, known, evidence = facts.work, facts.waits is not None, previous.evidence
    partitions = evidence.get("partitions", ())
    found = [work.progress.get((one.get("topic"), one.get("partition"))) for one in partitions]
    named = [(one.get("committed_offset"), it) for one, it in zip(partitions, found, strict=True)]
    # After a restart it is not known since when records wait in a partition without a commit.
    never = any(offset is None and it is not None and it.row.committed_offset is None for offset, it in named)
    if facts.is_deleted:
        return "the group was deleted"
    if previous.verdict == UNSTABLE and facts.runs:
        was_known = previous.facts_at is not None if work is NO_WORK else work.has_commits
        return "its lag is not known now" if was_known and not known else None
    if facts.group.state == EMPTY:
        done = known and not (work.waiting or work.unknown or never)
        return None if done or facts.successor else "it has no members"
    if not facts.runs:
        return "it is not ready"
    if known:
        is_all = len(named) >= evidence.get("partition_count", len(named))
        if work.unknown and (not is_all or any(it is None or it.waits is None for it in found)):
            return "the lag of some partitions is not known now"
        if work.held and facts.transactions is None and OPEN_TRANSACTION in evidence:
            return "the brokers have not been asked about transactions yet"
        if not (work.waiting or work.unknown):
            return "a partition has no commit yet" if never else None
        late = (one for one in work.progress.values() if one.late_since is not None)
        if previous.verdict == BEHIND and any(to_time(one.slow_from) <= previous.at for one in late):
            return "it does not catch up yet, as far as is known"
        back = facts.runs_since if previous.verdict == DOWN else previous.at  # `since` may be of an earlier verdict
        moved = work.progressed_at is not None and to_time(work.progressed_at) > back
        # If an offset is committed again, a run that begins takes this for the time at which it moved.
        same = [it is not None and it.waits and it.row.committed_offset == offset for offset, it in named]
        return None if moved and not (same and all(same)) else "no offset has advanced yet"
    if previous.verdict == DOWN and not (work.has_commits or WAITING in evidence):
        return None if facts.now >= facts.runs_since + STAY_UP else "it has just come back"
    return "its lag is not known now"


def _good(facts: Facts, pending: Verdict | None) -> Verdict:
    """Return the verdict on a group for which no bad condition holds yet. `pending` will hold if no facts change."""
    previous, work = facts.previous, facts.work
    if previous and facts.was == OFF and facts.is_not_read_yet and facts.group.state == EMPTY:
        return previous
    verdict, why = _good_one(facts, pending)
    is_part = bool(work.unknown) and ((facts.runs and verdict in {IDLE, OK}) or why in {_NOTHING_LEFT, _DELETED_IDLE})
    if is_part:
        verdict, why = _of_some(facts, verdict, why)
    elif work.unknown and why == _NOT_KNOWN_YET:
        why = _known_of_some(work, verdict)
    is_over = facts.was in _ENDS_BY_PROOF and verdict == UNKNOWN and facts.runs
    if is_over and facts.waits is None:
        why = "It has members again; its lag is not known."
    known = {"partitions": work.partitions, "unknown_partitions": work.unknown, SUCCESSOR: facts.successor}
    evidence = {name: value for name, value in known.items() if value and work.partitions}  # no lag: it always changes
    if is_over and (is_part or facts.waits is None):
        evidence[OVER] = True
    if pending and f"{_due(pending)} " in why:
        evidence |= _pending(facts, pending)
    return Verdict(verdict, facts.now, facts.now, why, evidence=evidence)


def _pending(facts: Facts, pending: Verdict) -> Mapping[str, Any]:
    is_without_work = facts.waits is None and not facts.is_deleted  # then a deletion ends it
    return pending_evidence(pending, outlives=facts.group.state == EMPTY and not is_without_work)


def _of_some(facts: Facts, verdict: str, why: str) -> tuple[str, str]:
    """Return the verdict on a group if this is the good one on those partitions of which it is known what waits."""
    work, previous = facts.work, facts.previous
    good_until = _good_until(facts)
    if previous and facts.was in GOOD and good_until and facts.now <= good_until:
        if verdict == facts.was or (facts.was, verdict) == (OK, IDLE):
            return previous.verdict, _said_before(previous)
        if verdict == OK:
            return verdict, why
    return UNKNOWN, _known_of_some(work, verdict)


def _known_of_some(work: GroupWork, verdict: str) -> str:
    known = f"{work.partitions - work.unknown:,} of {count(work.partitions, 'partition')} known"
    return f"{known}: {_OF_SOME[verdict]}. Of the others it is not known whether work waits."


def _good_one(  # noqa: PLR0911 - a list of cases
    facts: Facts, pending: Verdict | None
) -> tuple[str, str]:
    work, previous, state = facts.work, facts.previous, facts.group.state
    was_good = facts.was in {IDLE, OK}
    if facts.is_deleted or state == EMPTY:
        return _without_members(facts, pending)
    if facts.not_ready_since:
        due = f"{_due(pending)} it gets ready" if pending else "not for long enough yet to be Down"
        reason = facts.reason or "the reason is not known"
        return UNKNOWN, f"{facts.not_ready_text}, {due}: {reason}"
    if facts.waits is None:
        good_until = _good_until(facts)
        if previous and was_good and good_until and facts.now <= good_until:
            return previous.verdict, _said_before(previous)
        if facts.work_at and work.has_commits:
            return UNKNOWN, f"Whether work waits is not known since {utc(facts.work_at)}."
        return UNKNOWN, "Its lag is not known: no commit, or no answer about the ends of its logs."
    up_to = bool(work.held) or (previous is not None and previous.why.startswith(_UP_TO_TRANSACTIONS))
    advance = _UP_TO_TRANSACTIONS if up_to else "Offsets advance."
    advance += f" A{facts.sinks_text[3:]}." if facts.sinks else ""
    if work.held and not work.waiting:
        return OK, advance
    if facts.is_idle:
        return IDLE, f"Nothing waits.{_ASSIGNS_LATER if state == ASSIGNING else ''}"
    moved_at, known_at = to_time(work.progressed_at or 0.0), to_time(work.known_at)
    has_moved = moved_at >= facts.runs_since and known_at - moved_at < timedelta(seconds=work.patience)
    is_new = work.waits_since is not None and known_at - to_time(work.waits_since) < _JUST_CAME
    if has_moved if work.waiting else known_at >= facts.runs_since:
        return OK, advance  # also if nothing waits now, so that the text does not change often
    if previous and was_good and is_new:
        return OK, _said_before(previous) if previous.verdict == OK else "Records have just come."
    return UNKNOWN, _NOT_KNOWN_YET


def _said_before(previous: Verdict) -> str:
    return "It has members again." if PENDING in previous.evidence else previous.why


def _good_until(facts: Facts) -> datetime | None:
    """Return until when a good verdict stays without new facts about all work; None if there never were any."""
    at = facts.complete_at
    if at and not facts.work.complete_at and facts.watched_since:  # the job has just started and will soon read them
        return max(at + _GOOD_FOR, facts.watched_since + WORK_OLD)
    return at + _GOOD_FOR if at else None


def _without_members(facts: Facts, pending: Verdict | None) -> tuple[str, str]:
    hours, waits, other = facts.settings.running_hours, facts.waits, facts.successor
    is_meant_to_run = not hours or contain(hours, facts.now)
    if pending and facts.group.state == EMPTY and is_meant_to_run:  # it is needed, so it is not Off
        deleted = "It was deleted. " if facts.is_deleted else ""
        nobody = f"{deleted}No members since {facts.since_text}{_WAITS[waits]}"
        good_until = _good_until(facts) if facts.was in {IDLE, OK} else None
        is_good = good_until is not None and facts.now <= good_until
        return (facts.was if facts.was and is_good else UNKNOWN), f"{nobody}: {_due(pending)} members come back."
    is_declared = other == facts.settings.successor
    proof = "is declared as its successor," if is_declared else "reads the same topics with the same topology,"
    succeeded = f"{other} {proof} and has passed its offsets."
    if facts.is_deleted:
        if waits is False or other:
            return OFF, f"It was deleted. {succeeded}" if waits is not False else _DELETED_IDLE
        waited = "work waited for it" if waits else "it is not known whether work waited for it"
        return OFF if waits else UNKNOWN, f"It was deleted when it had no members, and {waited}."
    if not is_meant_to_run:
        begins = next_change(hours, facts.now)
        until = utc(begins) if begins else "next year"
        return OFF, f"It has no members, and is not meant to run before {until} (running_hours)."
    if other:
        return OFF, succeeded
    return OFF, _NOTHING_LEFT if waits is False else "It has had no members for a short time."


def _due(pending: Verdict) -> str:
    return f"{pending.verdict} at {utc(pending.at)} unless"
