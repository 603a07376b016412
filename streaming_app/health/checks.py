"""What may be wrong with a group, in the order in which it counts: the conditions of the verdicts. Data and functions.

Each returns what is wrong, since when and from when on it is the verdict, or None. Times come from the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from streaming_app.groups.deployments import WITHIN
from streaming_app.health.activity import NOT_READY, Activity
from streaming_app.health.history import EMPTY
from streaming_app.health.interruptions import Outage, current_outage
from streaming_app.health.unstable import late_members, not_assigned_since, restless
from streaming_app.health.verdict import (
    BAD,
    BEHIND,
    CLIENT_HOST,
    CRITICAL,
    DOWN,
    LOSING,
    RESTORING,
    STALLED,
    UNSTABLE,
    WARNING,
    Check,
    Facts,
    HealthSettings,
    Verdict,
    has_work,
    is_known,
    losing_at,
    to_time,
)
from streaming_app.lag.group_lag import SLOW
from streaming_app.lag.model import LagRow
from streaming_app.lag.work import GroupWork, Unmoved
from streaming_app.text import count, first_of, format_duration, round_down, utc
from streaming_app.time_intervals import TimeInterval, contain, next_change

_IN_TEXT = 3
_FEW = 10
_STARTS = 3
_GAP = timedelta(minutes=10)  # after being Empty for longer, nothing starts it any more
_LOOP = timedelta(minutes=5)  # how long it has to go on
_SHARE = 0.5
_AFTER_LAST_COMMIT = timedelta(seconds=60)
_SETTLES = timedelta(minutes=5)
_CLOSES = timedelta(seconds=5)
_NO_PROGRESS = timedelta(minutes=5)  # by the reports of a task that is restored, which come every minute
_AGES = tuple(60.0 * one for one in (1, 10, 30, 60, 120, 360, 720, 1440, 10_080))
_NEVER = timedelta(days=400)
_RESTS = 5  # in a row, that are looked at


def losing(facts: Facts, _now: datetime, settings: HealthSettings, _previous: Verdict | None) -> Check | None:
    """The start of a log passed a committed offset."""
    work = facts.work
    if work is None or not work.lost_rows or work.lost_since is None:
        return None
    since = to_time(work.lost_since)
    why = (
        f"at least {count(round_down(work.lost), 'offset')} of {count(len(work.lost_rows), 'partition')} were deleted "
        f"before the group read them, seen at {utc(since)}: {_places(work.lost_rows, len(work.lost_rows))}"
    )
    return Check(
        LOSING,
        since,
        since + timedelta(seconds=settings.lost_after),
        CRITICAL,
        why,
        {"lost_offsets_at_least": work.lost, "partitions": _rows(work.lost_rows)},
    )


def not_ready(facts: Facts, now: datetime, settings: HealthSettings, _previous: Verdict | None) -> Check | None:
    """The broker assigns no tasks: topics are missing, or their partitions do not match."""
    activity = facts.activity
    if activity.group.state != NOT_READY:
        return None
    reason = activity.reason or "the reason is not in the group's records"
    severity = WARNING if is_known(facts, now) and not has_work(facts, now) else CRITICAL
    since = activity.state_since
    return Check(
        DOWN,
        since,
        since + timedelta(seconds=settings.not_ready_after),
        severity,
        f"NotReady since {utc(since)}, it processes nothing: {reason}",
        {"reason": reason, "members": activity.group.member_count, **_work_numbers(facts)},
    )


def without_members(facts: Facts, now: datetime, settings: HealthSettings, _previous: Verdict | None) -> Check | None:
    """Nobody processes, and there is work, or that cannot be known."""
    activity, work = facts.activity, facts.work
    state, since = activity.group.state, activity.state_since
    if state != EMPTY or activity.ran_for is None or (work and work.successor):
        return None
    known = is_known(facts, now)
    if (known or facts.is_deleted) and not has_work(facts, now) and not activity.gave_up:
        return None
    due = since + timedelta(seconds=settings.down_after) if activity.gave_up else _due(facts, since, settings, known)
    after = ""
    if activity.gave_up:
        after = f"; its members gave up, as it was NotReady ({activity.gave_up})"
    waits = _waits(work) if work and known else "whether work waits is not known"
    return Check(
        DOWN,
        since,
        due,
        CRITICAL,
        f"no members since {utc(since)}{after}; {waits}",
        {
            **({"reason": activity.gave_up} if activity.gave_up else {}),
            **({CLIENT_HOST: left[0]} if len(left := _left(activity, since)) == 1 else {}),
            **_work_numbers(facts),
        },
    )


def _left(activity: Activity, since: datetime) -> list[str]:
    """Return the places of the last members, in the quarter of an hour until the group had none."""
    return list({one.place for one in activity.members if not one.joined and since - WITHIN < one.at <= since})


def _due(facts: Facts, since: datetime, settings: HealthSettings, known: bool) -> datetime:  # noqa: FBT001 - a fact
    """Return from when on a group without members is down."""
    activity, work = facts.activity, facts.work
    ran_for = activity.ran_for or timedelta(0)
    is_short = ran_for < timedelta(seconds=settings.established)
    waits_since = to_time(work.waits_since) if work and work.waits_since is not None else since
    is_done = not known or waits_since >= since - _AFTER_LAST_COMMIT
    patience = timedelta(seconds=settings.down_after if known else settings.down_unknown_after)
    if settings.duty:
        return _on_duty(settings.duty, max(since, waits_since) + patience, patience)
    if is_done and is_short:
        patience = timedelta(seconds=settings.short_run)
    patience = max(patience, activity.deployment_gap)
    due = (max(since, waits_since) if not is_short else since) + patience
    if work and _is_restarted(activity, work, since):
        due = max(due, since + timedelta(seconds=settings.restart_within))
    for _ in range(_RESTS):
        until = activity.rests.usual_until(since, due, is_done=is_done)
        if until is None or until <= due:
            break
        due = until
    return due


def _is_restarted(activity: Activity, work: GroupWork, since: datetime) -> bool:
    """Tell whether the only instance was stopped in an orderly way: it committed when it left, as clients do then."""
    is_orderly = work.committed_at is not None and abs(to_time(work.committed_at) - since) <= _CLOSES
    return is_orderly and len(_left(activity, since)) == 1


def _on_duty(duty: Sequence[TimeInterval], due: datetime, patience: timedelta) -> datetime:
    """Return when a group that is missing then is down: not while it is not meant to run, and some time later."""
    if contain(duty, due):
        return due
    begins = next_change(duty, due)
    return begins + patience if begins else due + _NEVER


def started_again_and_again(
    facts: Facts, now: datetime, settings: HealthSettings, _previous: Verdict | None
) -> Check | None:
    """It does not stay up: less than half of the time is processed."""
    activity, work = facts.activity, facts.work
    uptime = timedelta(seconds=settings.stay_up)
    outage = _outage(activity, now, settings)
    if outage is None:
        return None
    is_loop = outage.starts >= _STARTS and (outage.processed_share < _SHARE or outage.starts >= 2 * _STARTS)
    is_idle = _has_done_nothing(facts, outage, now)
    if not (is_loop or is_idle) or (work and is_known(facts, now) and _ends_with_nothing_left(activity, work)):
        return None
    due = max(outage.since + _LOOP, _nth_start(activity, outage, _STARTS))
    if work and is_idle:
        patience = settings.restart_within if _is_restarted(activity, work, outage.since) else settings.down_after
        idle_due = outage.since + timedelta(seconds=patience)
        due = min(due, idle_due) if is_loop else idle_due
    ends_at = activity.runs_since + uptime if activity.runs else None
    processed, lasted = (format_duration(round(one.total_seconds())) for one in (outage.processed, outage.lasted))
    between = ", ".join(f"{s} {format_duration(round(d.total_seconds()))}" for s, d in sorted(outage.down.items()))
    reason = f" ({activity.reason})" if activity.reason and NOT_READY in outage.down else ""
    why = (
        f"it does not stay up: since {utc(outage.since)} it was started {count(outage.starts, 'time')} and processed "
        f"{processed} of {lasted}; in between it was {between}{reason}"
    )
    evidence: dict[str, Any] = {
        "starts": outage.starts,
        "processed_seconds": round(outage.processed.total_seconds()),
        "seconds": round(outage.lasted.total_seconds()),
        **({"reason": activity.reason} if reason else {}),
        **_work_numbers(facts),
    }
    is_down = is_idle or outage.processed_share < _SHARE
    verdict, severity = (DOWN, CRITICAL) if is_down else (UNSTABLE, WARNING)
    return Check(verdict, outage.since, due, severity, why, evidence, ends_at)


def _has_done_nothing(facts: Facts, outage: Outage, now: datetime) -> bool:
    """Tell whether it was started once at least since the outage began, went down again, and no offset has moved."""
    work, activity = facts.work, facts.activity
    if work is None or not work.waiting or not is_known(facts, now) or work.restoring or facts.restores:
        return False
    again = 1 if activity.group.state in {EMPTY, NOT_READY} else 2
    return outage.starts >= again and (
        work.progressed_at is None or to_time(work.progressed_at) <= outage.since + _AFTER_LAST_COMMIT
    )


def _outage(activity: Activity, now: datetime, settings: HealthSettings) -> Outage | None:
    return current_outage(activity.changes, now, uptime=timedelta(seconds=settings.stay_up), gap=_GAP)


def _ends_with_nothing_left(activity: Activity, work: GroupWork) -> bool:
    """Tell whether it is a job that runs from time to time: it left nothing when it last ended."""
    ended = [change.at for change in activity.changes if change.state == EMPTY]
    if not ended or any(change.state == NOT_READY for change in activity.changes[-2 * _STARTS :]):
        return False
    return work.waits_since is None or to_time(work.waits_since) >= ended[-1] - _AFTER_LAST_COMMIT


def _nth_start(activity: Activity, outage: Outage, number: int) -> datetime:
    starts = [
        change.at
        for change in activity.changes
        if change.at > outage.since and change.old in {EMPTY, NOT_READY} and change.state != EMPTY
    ]
    return starts[min(number, len(starts)) - 1] if starts else outage.since


def stalled(facts: Facts, now: datetime, _settings: HealthSettings, previous: Verdict | None) -> Check | None:
    """Members have the tasks, work waits, and offsets do not move."""
    activity, work = facts.activity, facts.work
    if work is None or not activity.runs or (one := _unmoved(facts, work, now)) is None:
        return None
    if not is_known(facts, now) and not (previous and previous.verdict == STALLED):
        return None
    since = max(to_time(one.since), activity.runs_since)
    due = max(to_time(work.known_at) if not previous or previous.verdict != STALLED else since, since + _SETTLES)
    is_all = work.progressed_at is None or to_time(work.progressed_at) <= since + _AFTER_LAST_COMMIT
    which = (
        f"all {count(one.count, 'partition')} with work" if is_all and one.count > 1 else count(one.count, "partition")
    )
    nobody = f", of which no member has the task of {one.unowned}" if one.unowned else ""
    waits, places = f"{at_least(one.offsets)} wait{nobody}", _places(one.named, one.count)
    why = f"no offset of {which} moved since {utc(since)}, {waits}: {places}"
    evidence = {
        "partitions": _rows(one.named),
        "partition_count": one.count,
        "offsets": one.offsets,
        **({"unowned_partitions": one.unowned} if one.unowned else {}),
    }
    return Check(STALLED, since, due, CRITICAL if is_all else WARNING, why, evidence)


def stuck(facts: Facts, now: datetime, settings: HealthSettings, _previous: Verdict | None) -> Check | None:
    """A rebalance does not end: a member does not do its part, or the broker assigns nothing."""
    group = facts.activity.group
    severity = WARNING if is_known(facts, now) and not has_work(facts, now) else CRITICAL
    if since := not_assigned_since(group, now):
        why = f"stuck in Assigning since {utc(since)}: group epoch {group.group_epoch} has no assignment yet"
        return Check(
            STALLED,
            since,
            since + timedelta(seconds=settings.not_ready_after + 60),
            severity,
            why,
            {"state": group.state, "members": group.member_count},
        )
    late = late_members(group, timedelta(seconds=settings.longest_rebalance), now)
    if not late:
        return None
    due = late[0].since + timedelta(seconds=60)
    shown = first_of([one.text for one in islice(late, _IN_TEXT)], _IN_TEXT, len(late), separator="; ")
    why = f"it does not complete a rebalance: {shown}"
    return Check(
        STALLED,
        late[0].since,
        due,
        severity,
        why,
        {"state": group.state, "members": [one.details for one in late[:20]]},
    )


def restoring(facts: Facts, now: datetime, _settings: HealthSettings, _previous: Verdict | None) -> Check | None:
    """Offsets do not move since tasks restore their state: by their reports, or else for half an hour at most."""
    work = facts.work
    one = None if work is None else work.stalled or work.restoring
    if work is None or one is None or not facts.activity.runs or _unmoved(facts, work, now):
        return None
    since, deadline = to_time(one.since), losing_at(facts)
    reported = [restore for task, restore in facts.restores.items() if task in one.tasks]
    ends = [restore.ends_at for restore in reported]
    done_at = max(filter(None, ends), default=None) if all(ends) else None
    late = deadline is not None and deadline < (done_at or to_time(work.known_at) + timedelta(hours=1))
    what = f"{count(one.count, 'partition')} {'restore' if reported else 'may restore'} state since {utc(since)}"
    why = f"{what}, {at_least(one.offsets)} wait"
    evidence: dict[str, Any] = {"partition_count": one.count, "partitions": _rows(one.named)}
    if reported:
        evidence["restore_offsets_left"] = sum(restore.lag for restore in reported)
    if done_at:
        left = max(0.0, (done_at - now).total_seconds())
        why += f"; restored in less than {format_duration(next((age for age in _AGES if age > left), _AGES[-1]))}"
        evidence["restored_at"] = done_at.isoformat()
    ends_at = min((restore.fell_at + _NO_PROGRESS for restore in reported), default=None)
    return Check(RESTORING, since, to_time(work.known_at), WARNING if late else None, why, evidence, ends_at)


def _unmoved(facts: Facts, work: GroupWork, now: datetime) -> Unmoved | None:
    """Return the partitions that do not move, and whose state is not just being restored."""
    restores, one = facts.restores, work.stalled or work.restoring
    if one is None:
        return None
    advance = {task for task, restore in restores.items() if now < restore.fell_at + _NO_PROGRESS}
    if one is work.stalled:
        return None if one.tasks and one.tasks <= advance else one
    return one if one.tasks & restores.keys() and not one.tasks & advance else None


def behind(facts: Facts, _now: datetime, settings: HealthSettings, previous: Verdict | None) -> Check | None:
    """It moves, but does not catch up with what is old."""
    lag, work = facts.lag, facts.work
    was_behind = previous is not None and previous.verdict == BEHIND
    wrong = lag.wrong.get(SLOW) if lag and work and facts.activity.group.state != EMPTY else None
    if lag is None or work is None or wrong is None or (wrong.lag_seconds or 0.0) < settings.behind_age:
        return None
    if lag.catches_up and not was_behind:
        return None
    since = to_time(max(wrong.since, lag.settled_at))
    due = since if was_behind else since + timedelta(seconds=settings.behind_for)
    eta = work.catch_up_seconds
    ends = (
        f"caught up in less than {format_duration(next((one for one in _AGES if one > eta), _AGES[-1]))}" if eta else ""
    )
    oldest = format_duration(max(age for age in _AGES if age <= max(wrong.lag_seconds or 0.0, _AGES[0])))
    why = (
        f"it does not catch up since {utc(since)}: {count(wrong.count, 'partition')}, the oldest record is more than "
        f"{oldest} old, {ends}; {_places(wrong.named, wrong.count)}"
    )
    return Check(
        BEHIND,
        since,
        due,
        WARNING,
        why,
        {"partition_count": wrong.count, **_offsets(work), "partitions": _rows(wrong.named)},
    )


def unstable(facts: Facts, now: datetime, settings: HealthSettings, previous: Verdict | None) -> Check | None:
    """It is interrupted again and again."""
    activity = facts.activity
    if facts.is_deleted or (found := restless(activity, now)) is None:
        return None
    if previous is None or previous.verdict not in BAD:
        outage = _outage(activity, now, settings)
        if outage and outage.processed_share < _SHARE and now < outage.since + _LOOP:
            return None  # it is about to be Down, or up
    return Check(
        UNSTABLE,
        found.since,
        max(found.due, found.since + activity.deployment_length),
        WARNING,
        found.text,
        {**found.details, "members": activity.group.member_count},
        found.ends_at,
    )


def at_least(offsets: int) -> str:
    """Return how many offsets there are, in a text that does not change with every record."""
    return count(offsets, "offset") if offsets < _FEW else f"more than {round_down(offsets):,} offsets"


def _waits(work: GroupWork) -> str:
    if not work.waiting:
        return "records still come"
    return f"{_sum_of(work)} wait in {count(work.waiting, 'partition')}"


def _work_numbers(facts: Facts) -> dict[str, Any]:
    work = facts.work
    return {"waiting_partitions": work.waiting, **_offsets(work)} if work and work.waiting else {}


def _sum_of(work: GroupWork) -> str:
    """Return how many offsets wait: at least so many, while the lag of some partitions is not known."""
    is_lower_bound = work.unknown and work.offsets < _FEW
    return f"{'at least ' if is_lower_bound else ''}{at_least(work.offsets)}"


def _offsets(work: GroupWork) -> dict[str, int]:
    unknown = {"unknown_partitions": work.unknown} if work.unknown else {}
    return {"offsets": work.offsets, **unknown}


def _places(rows: Sequence[LagRow], total: int) -> str:
    return first_of([_place(row) for row in islice(rows, _IN_TEXT)], _IN_TEXT, total, separator="; ")


def _place(row: LagRow) -> str:
    at = "nothing committed" if row.committed_offset is None else f"at {row.committed_offset}"
    host = f" on {row.client_host or 'unknown host'}" if row.member_id else ""
    return f"{row.topic}-{row.partition} {at}{host}"


def _rows(rows: Sequence[LagRow]) -> list[Mapping[str, Any]]:
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            **({} if row.committed_offset is None else {"committed_offset": row.committed_offset}),
            **({} if row.log_start_offset is None else {"log_start_offset": row.log_start_offset}),
            **({} if row.log_end_offset is None else {"log_end_offset": row.log_end_offset}),
            **({"task": row.task_id} if row.task_id else {}),
            **({"host": row.client_host} if row.client_host else {}),
        }
        for row in rows
    ]


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
