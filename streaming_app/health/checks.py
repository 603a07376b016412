"""What may be wrong with a group, in the order in which it counts: the conditions of the verdicts. Data and functions.

Each returns what is wrong, since when and from when on it is the verdict, or None. Times come from the facts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from streaming_app.groups.state_rules import EMPTY, NOT_READY
from streaming_app.health.activity import Activity
from streaming_app.health.evidence import AFTER_LAST_COMMIT, AGES, offsets_of, places, rows_of, waits, work_numbers
from streaming_app.health.facts import Check, Facts, to_time
from streaming_app.health.interruptions import Outage, current_outage
from streaming_app.health.stalled import restoring, stalled, stuck
from streaming_app.health.unstable import restless
from streaming_app.health.verdict import BAD, BEHIND, CRITICAL, DOWN, LOSING, UNSTABLE, WARNING
from streaming_app.lag.work import GroupWork
from streaming_app.text import count, format_duration, lasted, round_down, utc
from streaming_app.time_intervals import contain, next_change

_STARTS = 3
_GAP = timedelta(minutes=10)  # after being Empty for longer, nothing starts it any more
_LOOP = timedelta(minutes=5)  # how long it has to go on
_SHARE = 0.5
_NEVER = timedelta(days=400)
_IF_MEANT = "; if this is meant, add running_hours for it, or name the group that takes over in alerts.successors"


def losing(facts: Facts) -> Check | None:
    """The start of a log passed a committed offset."""
    lost = facts.work.lost if facts.work else None
    if lost is None:
        return None
    since = to_time(lost.since)
    had_nobody = facts.activity.group.state == EMPTY and facts.activity.state_since <= since
    why = (
        f"at least {count(round_down(lost.offsets), 'offset')} of {count(lost.count, 'partition')} were deleted "
        f"before the group read them, seen at {utc(since)}: {places(lost.named, lost.count)}"
    )
    return Check(
        LOSING,
        since,
        since if had_nobody else since + timedelta(seconds=facts.settings.lost_after),  # a commit may be on its way
        CRITICAL,
        why,
        {"lost_offsets_at_least": lost.offsets, "partitions": rows_of(lost.named)},
    )


def not_ready(facts: Facts) -> Check | None:
    """The broker assigns no tasks: topics are missing, or their partitions do not match."""
    activity = facts.activity
    if activity.group.state != NOT_READY:
        return None
    reason = activity.reason or "the reason is not in the group's records"
    severity = WARNING if facts.is_known and not facts.has_work else CRITICAL
    since = activity.state_since
    return Check(
        DOWN,
        since,
        since + timedelta(seconds=facts.settings.not_ready_after),
        severity,
        f"NotReady since {utc(since)}, it processes nothing: {reason}",
        {"reason": reason, "members": activity.group.member_count, **work_numbers(facts)},
    )


def without_members(facts: Facts) -> Check | None:
    """Nobody processes, and there is work, or that cannot be known."""
    activity, work = facts.activity, facts.work
    state, since = activity.group.state, activity.state_since
    if state != EMPTY or not activity.ended or facts.successor:
        return None
    known = facts.is_known
    if (known or facts.is_deleted) and not facts.work_waits and not activity.gave_up:
        return None
    due = since + timedelta(seconds=facts.settings.down_after) if activity.gave_up else _due(facts, since)
    if facts.watched_since and facts.is_not_read_yet:
        due = max(due, facts.watched_since + timedelta(seconds=facts.settings.down_unknown_after))
    after = ""
    if activity.gave_up:
        after = f"; its members gave up, as it was NotReady ({activity.gave_up})"
    waiting = waits(work) if work and known else "whether work waits is not known"
    if_meant = "" if activity.gave_up or facts.settings.running_hours else _IF_MEANT
    return Check(
        DOWN,
        since,
        due,
        CRITICAL,
        f"no members since {utc(since)}{after}; {waiting}{if_meant}",
        {**({"reason": activity.gave_up} if activity.gave_up else {}), **work_numbers(facts)},
    )


def _due(facts: Facts, since: datetime) -> datetime:
    """Return from when on a group without members is down."""
    work, settings = facts.work, facts.settings
    waits_since = to_time(work.waits_since) if work and work.waits_since is not None else since
    patience = timedelta(seconds=settings.down_after if facts.is_known else settings.down_unknown_after)
    due = max(since, waits_since) + patience
    if work and work.seen_again_at:  # nobody could process while the brokers were away, and work had to wait
        latest = max(since, waits_since) + timedelta(seconds=facts.settings.down_unknown_after)
        due = max(due, min(to_time(work.seen_again_at), latest) + timedelta(seconds=facts.settings.down_after))
    hours = settings.running_hours
    if not hours or contain(hours, due):
        return due
    begins = next_change(hours, due)
    return begins + patience if begins else due + _NEVER


def started_again_and_again(facts: Facts) -> Check | None:
    """It does not stay up: less than half of the time is processed."""
    activity, work = facts.activity, facts.work
    outage = _outage(facts)
    if outage is None:
        return None
    starts = len(outage.starts)
    is_loop = starts >= _STARTS and (outage.processed_share < _SHARE or starts >= 2 * _STARTS)
    is_idle = _has_done_nothing(facts, outage)
    if not (is_loop or is_idle) or (work and facts.is_known and _ends_with_nothing_left(activity, work)):
        return None
    idle_due = [outage.since + timedelta(seconds=facts.settings.down_after)] if is_idle else []
    loop_due = [max(outage.since + _LOOP, outage.starts[_STARTS - 1])] if is_loop else []
    ends_at = activity.runs_since + timedelta(seconds=facts.settings.stay_up) if activity.runs else None
    processed, whole = lasted(outage.processed), lasted(outage.lasted)
    between = ", ".join(f"{s} {lasted(d)}" for s, d in sorted(outage.down.items()))
    reason = f" ({activity.reason})" if activity.reason and NOT_READY in outage.down else ""
    why = (
        f"it does not stay up: since {utc(outage.since)} it was started {count(starts, 'time')} and processed "
        f"{processed} of {whole}; in between it was {between}{reason}"
    )
    evidence: dict[str, Any] = {
        "starts": starts,
        "processed_seconds": round(outage.processed.total_seconds()),
        "seconds": round(outage.lasted.total_seconds()),
        **({"reason": activity.reason} if reason else {}),
        **work_numbers(facts),
    }
    is_down = is_idle or outage.processed_share < _SHARE
    verdict, severity = (DOWN, CRITICAL) if is_down else (UNSTABLE, WARNING)
    return Check(verdict, outage.since, min(idle_due + loop_due), severity, why, evidence, ends_at)


def _has_done_nothing(facts: Facts, outage: Outage) -> bool:
    """Tell whether it was started once at least since the outage began, went down again, and no offset has moved."""
    work, activity = facts.work, facts.activity
    if work is None or not work.waiting or not facts.is_known or work.restoring or facts.restores:
        return False
    again = 1 if activity.group.state in {EMPTY, NOT_READY} else 2
    return len(outage.starts) >= again and (
        work.progressed_at is None or to_time(work.progressed_at) <= outage.since + AFTER_LAST_COMMIT
    )


def _outage(facts: Facts) -> Outage | None:
    uptime = timedelta(seconds=facts.settings.stay_up)
    return current_outage(facts.activity.changes, facts.now, uptime=uptime, gap=_GAP)


def _ends_with_nothing_left(activity: Activity, work: GroupWork) -> bool:
    """Tell whether it is a job that runs from time to time: it left nothing when it last ended."""
    ended = [change.at for change in activity.changes if change.state == EMPTY]
    if not ended or any(change.state == NOT_READY for change in activity.changes[-2 * _STARTS :]):
        return False
    return work.waits_since is None or to_time(work.waits_since) >= ended[-1] - AFTER_LAST_COMMIT


def behind(facts: Facts) -> Check | None:
    """It moves, but does not catch up with what is old."""
    work = facts.work
    was_behind = facts.was == BEHIND
    wrong = work.slow if work and facts.activity.group.state != EMPTY else None
    if work is None or wrong is None or (wrong.lag_seconds or 0.0) < facts.settings.behind_age:
        return None
    if work.catches_up and not was_behind:
        return None
    since = to_time(max(wrong.since, work.settled_at))
    due = since if was_behind else since + timedelta(seconds=facts.settings.behind_for)
    eta = work.catch_up_seconds
    ends = (
        f", caught up in less than {format_duration(next((one for one in AGES if one > eta), AGES[-1]))}" if eta else ""
    )
    oldest = format_duration(max(age for age in AGES if age <= max(wrong.lag_seconds or 0.0, AGES[0])))
    why = (
        f"it does not catch up since {utc(since)}: {count(wrong.count, 'partition')}, the oldest record is more than "
        f"{oldest} old{ends}; {places(wrong.named, wrong.count)}"
    )
    return Check(
        BEHIND,
        since,
        due,
        WARNING,
        why,
        {"partition_count": wrong.count, **offsets_of(work), "partitions": rows_of(wrong.named)},
    )


def unstable(facts: Facts) -> Check | None:
    """It is interrupted again and again."""
    activity = facts.activity
    if facts.is_deleted or (found := restless(activity, facts.now)) is None:
        return None
    outage = _outage(facts)
    if outage and any(one.state == NOT_READY and one.at >= outage.since for one in activity.changes):
        return None  # it does not process for a reason that is known, or that is about to be Down
    if outage and outage.processed_share < _SHARE and facts.was not in BAD and facts.now < outage.since + _LOOP:
        return None  # it is about to be Down, or up
    return Check(
        UNSTABLE,
        found.since,
        found.due,
        WARNING,
        found.text,
        {**found.details, "members": activity.group.member_count},
        found.ends_at,
    )


CHECKS = (
    losing,
    not_ready,
    without_members,
    started_again_and_again,
    stalled,
    stuck,
    restoring,
    behind,
    unstable,
)
"""In this order."""
