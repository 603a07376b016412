"""Members have the tasks, and offsets do not move: since tasks hang, a rebalance does not end, or state is restored."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any

from streaming_app.health.evidence import AFTER_LAST_COMMIT, AGES, IN_TEXT, places, rows_of, work_of
from streaming_app.health.facts import Check, Facts, to_time
from streaming_app.health.unstable import late_members, not_assigned_since
from streaming_app.health.verdict import CRITICAL, RESTORING, STALLED, WARNING
from streaming_app.lag.progress import RESTORE_SECONDS
from streaming_app.lag.work import GroupWork, Partitions
from streaming_app.text import count, first_of, format_duration, utc

_SETTLES = timedelta(minutes=5)
_RESTORE = timedelta(seconds=RESTORE_SECONDS)
_NO_PROGRESS = timedelta(minutes=5)  # by the reports of a task that is restored, which come every minute


def stalled(facts: Facts) -> Check | None:
    """Members have the tasks, work waits, and offsets do not move."""
    activity, work = facts.activity, facts.work
    if work is None or not activity.runs or (one := _unmoved(facts, work)) is None:
        return None
    if not facts.is_known and facts.was != STALLED:
        return None
    since = max(to_time(one.since), activity.runs_since)
    # That its members left and joined again does not give it five minutes once more, as after max.poll.interval.ms.
    settles = max(timedelta(0), _SETTLES - activity.ran_between(to_time(one.since), since))
    due = max(to_time(work.known_at) if facts.was != STALLED else since, since + settles)
    is_all = work.progressed_at is None or to_time(work.progressed_at) <= since + AFTER_LAST_COMMIT
    which = (
        f"all {count(one.count, 'partition')} with work" if is_all and one.count > 1 else count(one.count, "partition")
    )
    nobody = f", {one.unowned} of them without an active member" if one.unowned else ""
    waiting, where = f"{work_of(one)}{nobody}", places(one.named, one.count)
    why = f"no offset of {which} moved since {utc(since)}, {waiting}: {where}"
    evidence = {
        "partitions": rows_of(one.named),
        "partition_count": one.count,
        "offsets": one.offsets,
        **({"unowned_partitions": one.unowned} if one.unowned else {}),
    }
    return Check(STALLED, since, due, CRITICAL if is_all else WARNING, why, evidence)


def stuck(facts: Facts) -> Check | None:
    """A rebalance does not end: a member does not do its part, or the broker assigns nothing."""
    group = facts.activity.group
    severity = WARNING if facts.is_known and not facts.has_work else CRITICAL
    if since := not_assigned_since(group, facts.now):
        why = f"stuck in Assigning since {utc(since)}: group epoch {group.group_epoch} has no assignment yet"
        return Check(
            STALLED,
            since,
            since + timedelta(seconds=facts.settings.not_ready_after + 60),
            severity,
            why,
            {"state": group.state, "members": group.member_count},
        )
    late = late_members(group, timedelta(seconds=facts.settings.longest_rebalance), facts.now)
    if not late:
        return None
    due = late[0].since + timedelta(seconds=60)
    shown = first_of([one.text for one in islice(late, IN_TEXT)], IN_TEXT, len(late), separator="; ")
    why = f"it does not complete a rebalance: {shown}"
    return Check(
        STALLED,
        late[0].since,
        due,
        severity,
        why,
        {"state": group.state, "members": [one.details for one in late[:20]]},
    )


def restoring(facts: Facts) -> Check | None:
    """Offsets do not move since tasks restore their state: by their reports, or else for half an hour at most."""
    work = facts.work
    one = None if work is None else work.stalled or work.restoring
    if work is None or one is None or not facts.activity.runs or _unmoved(facts, work):
        return None
    since, deadline = to_time(one.since), facts.losing_at
    reported = [restore for task, restore in facts.restores.items() if task in one.tasks]
    ends = [restore.ends_at for restore in reported]
    done_at = max(filter(None, ends), default=None) if all(ends) else None
    began, known_at = max(since, facts.activity.runs_since), to_time(work.known_at)
    ends_by = done_at
    if done_at is None and known_at - began >= _SETTLES:  # before that nearly each restore is over soon
        ends_by = began + _RESTORE if known_at < began + _RESTORE else known_at + _RESTORE
    late = deadline is not None and ends_by is not None and deadline <= ends_by
    what = f"{count(one.count, 'partition')} {'restore' if reported else 'may restore'} state since {utc(since)}"
    why = f"{what}, {work_of(one)}"
    evidence: dict[str, Any] = {"partition_count": one.count, "partitions": rows_of(one.named)}
    if reported:
        evidence["restore_offsets_left"] = sum(restore.lag for restore in reported)
    if done_at:
        left = max(0.0, (done_at - facts.now).total_seconds())
        why += f"; restored in less than {format_duration(next((age for age in AGES if age > left), AGES[-1]))}"
        evidence["restored_at"] = done_at.isoformat()
    ends_at = min((restore.fell_at + _NO_PROGRESS for restore in reported), default=None)
    return Check(RESTORING, since, known_at, WARNING if late else None, why, evidence, ends_at)


def _unmoved(facts: Facts, work: GroupWork) -> Partitions | None:
    """Return the partitions that do not move, and whose state is not just being restored."""
    restores, one = facts.restores, work.stalled or work.restoring
    if one is None:
        return None
    advance = {task for task, restore in restores.items() if facts.now < restore.fell_at + _NO_PROGRESS}
    if one is work.stalled:
        return None if one.tasks and one.tasks <= advance else one
    return one if one.tasks & restores.keys() and not one.tasks & advance else None
