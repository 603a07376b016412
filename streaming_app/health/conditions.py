"""The conditions of the bad verdicts: `CONDITIONS` has them in their order, and the first that holds decides.

Each condition returns None, or a bad verdict. `since` is when the condition began, and `at` is when it becomes the
verdict, which may be in the future. `recheck_at` is when it may end without new facts. All times come from the facts.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Any

from streaming_app.groups.snapshot import (
    NOT_REVOKING,
    UnsettledMember,
    awaited_members,
    describe_obligation,
    member_details,
)
from streaming_app.groups.state_rules import ASSIGNING, EMPTY, NOT_READY
from streaming_app.health.facts import Facts, to_time
from streaming_app.health.spells import LOOP, STAY_UP, Outage, current_outage, flapping, unstable
from streaming_app.health.time_intervals import contain, next_change
from streaming_app.health.transactions import held
from streaming_app.health.verdict import (
    BEHIND,
    CRITICAL,
    DOWN,
    LOSING,
    NOTHING_TO_DO,
    RESTORING,
    STALLED,
    UNSTABLE,
    WARNING,
    Verdict,
)
from streaming_app.lag.model import LagRow
from streaming_app.lag.partition_progress import RESTORE_SECONDS
from streaming_app.lag.statuses import AHEAD
from streaming_app.lag.work import NO_WORK, GroupWork, Partitions
from streaming_app.text import count, first_of, format_duration, lasted, round_down, utc

_AFTER_LAST_COMMIT = timedelta(seconds=60)  # a commit so shortly after a stop belongs to the processing before it
_STARTS = 3
_NEVER = timedelta(days=400)
_SETTLES = timedelta(minutes=5)
_RESTORE = timedelta(seconds=RESTORE_SECONDS)
_NO_PROGRESS = timedelta(minutes=5)  # a restore without a lower lag for so long is stuck; reports come every minute
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_LONGEST_REBALANCE = timedelta(minutes=15)
_DEFAULT_REBALANCE_TIMEOUT_MS = 300_000  # Kafka Streams sends its max.poll.interval.ms; this is the default
_NAMED_MEMBERS = _NAMED_PARTITIONS = 20
_IN_TEXT = 3
_AGES = tuple(60.0 * one for one in (1, 10, 30, 60, 120, 360, 720, 1440, 10_080))
_FEW = 10
_SHOWN = ("topic", "partition", "committed_offset", "log_start_offset", "log_end_offset", "task_id", "client_host")
_KEYS = {"task_id": "task", "client_host": "host"}
_IF_RARE = (
    "; before, offsets moved after longer rests: if it commits so seldom, raise `for` of StreamsGroupStalled for it "
    "(alerts.overrides)"
)
WAITING = "waiting_partitions"
"""Key of evidence: in how many partitions work was known to wait."""
_IF_MEANT = "; if this is meant, add running_hours for it, or name the group that takes over in alerts.successors"


def losing(facts: Facts) -> Verdict | None:
    """The start of a log is beyond a committed offset."""
    lost = facts.work.lost
    if lost is None:
        return None
    since = to_time(lost.since)
    had_nobody = facts.group.state == EMPTY and facts.state_since <= since
    # A commit may be on its way; but passes that knew nothing may lie between, and `since` is after them.
    due = since if had_nobody or facts.was == LOSING else since + facts.settings.lost_after
    why = (
        f"at least {count(round_down(lost.offsets), 'offset')} of {count(lost.count, 'partition')} were deleted "
        f"before the group read them, seen at {utc(since)}: {_places(lost)}"
    )
    evidence = {
        "lost_offsets_at_least": lost.offsets,
        "partition_count": lost.count,
        "partitions": _rows_of(lost.named),
    }
    return Verdict(LOSING, since, due, why, CRITICAL, evidence)


def _by_work(facts: Facts) -> tuple[str, dict[str, bool]]:
    """Return the severity of a group that cannot process, and its evidence: with nothing to do it is a warning."""
    return (WARNING, {NOTHING_TO_DO: True}) if facts.has_nothing_to_do else (CRITICAL, {})


def not_ready(facts: Facts) -> Verdict | None:
    """Nobody assigns tasks, because topics are missing or their partition counts do not match.

    In a classic group the leader does, and may tell its members an error instead.
    """
    group, since = facts.group, facts.not_ready_since
    if since is None:
        return None
    reason = facts.reason or "the reason is not in the group's records"
    severity, milder = _by_work(facts)
    why = f"{facts.not_ready_text}, it processes nothing: {reason}"
    evidence = {"reason": reason, "members": group.member_count, **_work_numbers(facts), **milder}
    return Verdict(DOWN, since, since + facts.settings.patience, why, severity, evidence)


def without_members(facts: Facts) -> Verdict | None:
    """The group has no members, and work waits or may wait. A streams group begins with a member: each one had some."""
    settings, since, gave_up = facts.settings, facts.state_since, facts.gave_up
    if facts.group.state != EMPTY or facts.successor:
        return None
    # Brokers delete a group without members and commits within ten minutes: its work has not become less by that. But
    # for one that is gone before the first pass, no work was ever looked for.
    may_wait = facts.waits or (facts.waits is None and not (facts.is_deleted and facts.work is NO_WORK))
    if not may_wait and not gave_up:
        return None
    began, due = (since, since + settings.patience) if gave_up else (_began(facts), _due_without_members(facts))
    needed = f", and needed since {utc(began)}" if began - since > _MINUTE else ""
    after = f"; its members gave up, as {'they had no tasks' if facts.is_classic else 'it was NotReady'} ({gave_up})"
    after = after if gave_up else f"; before, {facts.reason}" if facts.is_classic and facts.reason else ""
    waiting = "whether work waits is not known" if facts.waits is None else _waits(facts.work)
    if_meant = "" if gave_up or settings.running_hours else _IF_MEANT
    why = f"no members since {facts.since_text}{needed}{after}; {waiting}{if_meant}{facts.sinks_text}"
    evidence = {**({"reason": gave_up} if gave_up else {}), **_work_numbers(facts)}
    return Verdict(DOWN, began, due, why, CRITICAL, evidence)


def _began(facts: Facts) -> datetime:
    """Return since when a group without members is down: since work waits in its running hours."""
    previous, since, hours = facts.previous, facts.state_since, facts.settings.running_hours
    if previous and facts.was == DOWN and previous.since >= since:
        return previous.since
    if facts.waits:
        since = max(since, _needed_since(facts))
    return (next_change(hours, since) or since) if hours and not contain(hours, since) else since


def _needed_since(facts: Facts) -> datetime:
    """Return since when work waits: since records came, or since a tool set the offsets back to older ones."""
    work = facts.work
    waiting = (one for one in work.progress.values() if one.waits_since is not None)
    moved = min((0.0 if one.offset is None or one.is_untimed else one.moved_at for one in waiting), default=0.0)
    needed = to_time(max(work.waits_since or 0.0, moved))
    return min(needed, facts.pending_since or needed)


def _due_without_members(facts: Facts) -> datetime:
    """Return when the verdict on a group without members becomes Down: later if it is not known whether work waits."""
    work, settings = facts.work, facts.settings
    since = max(facts.state_since, _needed_since(facts))
    # While the brokers did not answer, no group could process: patience begins when they answer again.
    latest = since + settings.patience_unknown - settings.patience
    known_since = latest if facts.waits is None else to_time(work.seen_again_at or 0.0)
    due, hours = max(since, min(known_since, latest)) + settings.patience, settings.running_hours
    if hours and not contain(hours, due):  # it is due after they begin again
        begins = next_change(hours, due)
        due = begins + (settings.patience if facts.waits else settings.patience_unknown) if begins else due + _NEVER
    if facts.watched_since and facts.is_not_read_yet:
        due = max(due, facts.watched_since + settings.patience_unknown)
    return due


def started_again_and_again(facts: Facts) -> Verdict | None:
    """The application starts again and again, or has done nothing since the last start."""
    outage = current_outage(facts)
    if outage is None:
        return None
    starts = len(outage.starts)
    is_loop = starts >= _STARTS and (outage.is_mostly_down or starts >= 2 * _STARTS)
    is_idle = _has_done_nothing(facts, outage)
    if not (is_loop or is_idle) or _ends_with_nothing_left(facts):
        return None
    idle_due = [outage.since + facts.settings.patience] if is_idle else []
    loop_due = [max(outage.since + LOOP, outage.starts[_STARTS - 1])] if is_loop else []
    longest = {state: time for state, time in outage.down.items() if time >= _SECOND} or outage.down
    between = ", ".join(f"{state} {lasted(time)}" for state, time in longest.items())
    # When an application first creates its internal topics, its group is NotReady for a moment, which says nothing.
    down = next((one for one in reversed(facts.history.states) if one.new in {EMPTY, NOT_READY}), None)
    reason = facts.reason if facts.is_classic or (down and NOT_READY in {down.new, down.old}) else None
    did = "had members for" if facts.is_classic else "processed"
    why = (
        f"it does not stay up: since {utc(outage.since)} it was started {count(starts, 'time')} and {did} "
        f"{lasted(outage.processed)} of {lasted(outage.lasted)}; in between it was {between}"
        f"{f' ({reason})' if reason else ''}{facts.sinks_text}"
    )
    evidence: dict[str, Any] = {
        "starts": starts,
        "processed_seconds": round(outage.processed.total_seconds()),
        "seconds": round(outage.lasted.total_seconds()),
        **({"reason": reason} if reason else {}),
        **_work_numbers(facts),
    }
    verdict, severity = (DOWN, CRITICAL) if is_idle or outage.is_mostly_down else (UNSTABLE, WARNING)
    ends_at = facts.runs_since + STAY_UP if facts.runs else None
    return Verdict(verdict, outage.since, min(idle_due + loop_due), why, severity, evidence, recheck_at=ends_at)


def _has_done_nothing(facts: Facts, outage: Outage) -> bool:
    """Return whether the application was started, went down again, and no offset has moved since the outage began."""
    work = facts.work
    if not facts.waits or work.restoring or facts.restores:
        return False
    again = 1 if facts.group.state in {EMPTY, NOT_READY} else 2
    return len(outage.starts) >= again and _has_not_moved(work, outage.since)


def _has_not_moved(work: GroupWork, since: datetime) -> bool:
    return work.progressed_at is None or to_time(work.progressed_at) <= since + _AFTER_LAST_COMMIT


def _ends_with_nothing_left(facts: Facts) -> bool:
    """Return whether the group seems to be a job that runs from time to time: it left no work when it last ended."""
    work, changes = facts.work, facts.history.states
    ended = [change.at for change in changes if change.new == EMPTY]
    if facts.waits is None or not ended:
        return False
    if any(change.new == NOT_READY for change in changes[-2 * _STARTS :]):
        return False
    return work.waits_since is None or to_time(work.waits_since) >= ended[-1] - _AFTER_LAST_COMMIT


def stalled(facts: Facts) -> Verdict | None:
    """Members have the tasks and work waits, but offsets do not move."""
    work, one = facts.work, _unmoved(facts)
    if one is None or (facts.waits is None and facts.was != STALLED):
        return None
    since = to_time(one.since)
    runs_since = max(since, facts.runs_since)
    # If members leave and join again, as after max.poll.interval.ms, the five minutes do not start again.
    settles = max(timedelta(0), _SETTLES - facts.ran_between(since, runs_since))
    due = max(to_time(work.known_at) if facts.was != STALLED else since, runs_since + settles)
    due = max(due, since + timedelta(seconds=work.patience))
    is_all = _has_not_moved(work, since)
    which = f"{'all ' if is_all and one.count > 1 else ''}{count(one.count, 'partition')}"
    which += " with work" if is_all and one.count > 1 else ""
    nobody = f", {one.unowned} of them without an active member" if one.unowned else ""
    leave = flapping(facts)  # so nothing hangs: they end
    leavers = f"; {leave.why}" if leave else ""
    if any(it.rested >= work.patience for row in one.named if (it := work.progress.get(row[1:3]))):
        leavers += _IF_RARE
    leavers += facts.sinks_text
    least = "at least " if one.is_older else ""
    why = f"no offset of {which} moved since {least}{utc(since)}, {_work_of(one)}{nobody}: {_places(one)}{leavers}"
    evidence = {
        **(leave.evidence if leave else {}),
        "partitions": _rows_of(one.named),
        "partition_count": one.count,
        "offsets": one.offsets,
        **({"unowned_partitions": one.unowned} if one.unowned else {}),
    }
    stands = _has_not_moved(work, max(since, to_time(one.newest)))  # nothing has moved since the last of them stopped
    return Verdict(STALLED, since, due, why, CRITICAL if stands else WARNING, evidence)


def stuck(facts: Facts) -> Verdict | None:
    """A rebalance does not end: a member does not do its part, or the broker makes no assignment."""
    group = facts.group
    severity, milder = _by_work(facts)
    evidence: dict[str, Any] = {"state": group.state, **milder}
    if group.state == ASSIGNING:
        since = min(max(facts.state_since, group.assigned_at or facts.state_since), facts.now)
        due = since + facts.settings.patience + _MINUTE
        why = f"stuck in Assigning since {utc(since)}: group epoch {group.group_epoch} has no assignment yet"
        return Verdict(STALLED, since, due, why, severity, {**evidence, "members": group.member_count})
    if group.state != "Reconciling":
        return None
    late = sorted(
        ((_late_since(one, facts), _describe(one), one) for one in awaited_members(group)), key=itemgetter(0, 1)
    )
    if not late:
        return None
    since, named = late[0][0], [text for _, text, _ in late[:_IN_TEXT]]
    why = f"it does not complete a rebalance: {first_of(named, _IN_TEXT, len(late), separator='; ')}"
    evidence["members"] = [member_details(one) for *_, one in late[:_NAMED_MEMBERS]]
    return Verdict(STALLED, since, since + _MINUTE, why, severity, evidence)


def _late_since(member: UnsettledMember, facts: Facts) -> datetime:
    """Return when a member is late in a rebalance: after its rebalance timeout. This may be in the future."""
    # For a member that has to revoke tasks, the time counts from its own record; for others, from the assignment.
    asked_at = None if member.state == NOT_REVOKING else facts.group.assigned_at
    began = max((time for time in (member.updated_at, asked_at) if time), default=facts.state_since)
    timeout = timedelta(milliseconds=member.rebalance_timeout_ms or _DEFAULT_REBALANCE_TIMEOUT_MS)
    return began + min(timeout, _LONGEST_REBALANCE)


def _describe(member: UnsettledMember) -> str:
    since = f" since {utc(member.updated_at)}" if member.updated_at else ""
    where = f"{member.client_host or 'unknown host'}, process {member.process_id}"
    return f"{member.client_id or member.member_id} ({where}) {describe_obligation(member)}{since}"


def restoring(facts: Facts) -> Verdict | None:
    """Offsets do not move because tasks restore state, as clients report. Without reports: for at most half an hour."""
    work = facts.work
    one = work.stalled or work.restoring
    if one is None or not facts.runs or _unmoved(facts):
        return None
    since, deadline = to_time(one.since), facts.losing_at
    reported = [restore for task, restore in facts.restores.items() if task in one.tasks]
    ends = [restore.ends_at for restore in reported]
    done_at = max(filter(None, ends), default=None) if all(ends) else None
    began, known_at = max(since, facts.runs_since), to_time(work.known_at)
    ends_by = done_at
    if done_at is None and known_at - began >= _SETTLES:  # most restores end before this
        ends_by = began + _RESTORE if known_at < began + _RESTORE else known_at + _RESTORE
    late = deadline is not None and ends_by is not None and deadline <= ends_by
    what = "restore" if reported else "may restore"
    why = f"{count(one.count, 'partition')} {what} state since {utc(since)}, {_work_of(one)}"
    evidence: dict[str, Any] = {"partition_count": one.count, "partitions": _rows_of(one.named)}
    if reported:
        evidence["restore_offsets_left"] = sum(restore.lag for restore in reported)
    if done_at:
        left = max(0.0, (done_at - facts.now).total_seconds())
        why += f"; restored in less than {format_duration(next((age for age in _AGES if age > left), _AGES[-1]))}"
        evidence["restored_at"] = done_at.isoformat()
    ends_at = min((restore.fell_at + _NO_PROGRESS for restore in reported), default=None)
    return Verdict(RESTORING, since, known_at, why, WARNING if late else None, evidence, recheck_at=ends_at)


def _unmoved(facts: Facts) -> Partitions | None:
    """Return the partitions whose offsets do not move although members own them, and that do not restore state."""
    work, restores = facts.work, facts.restores
    one = work.stalled or work.restoring
    if one is None or not facts.runs:
        return None
    advance = {task for task, restore in restores.items() if facts.now < restore.fell_at + _NO_PROGRESS}
    if one is work.stalled:
        return None if one.tasks and one.tasks <= advance else one
    # A task that restores takes no records, so that it does not wait for a topic to which it writes.
    is_blocked = bool(facts.sinks) and not one.tasks & restores.keys()
    return one if is_blocked or (one.tasks & restores.keys() and not one.tasks & advance) else None


def behind(facts: Facts) -> Verdict | None:
    """Offsets move, but the oldest waiting record is ten minutes old, and the group does not catch up.

    Its text has no number that changes while it lasts: they are evidence.
    """
    work, wait = facts.work, facts.settings.behind_for
    late = [one for one in work.progress.values() if one.is_late]
    if not late or facts.group.state == EMPTY:
        return None
    due = to_time(min(one.slow_from for one in late)) + wait
    slow = [one for one in late if to_time(one.slow_from) + wait <= facts.now] or late
    first = min(slow, key=lambda one: one.late_since or 0.0)
    least = "at least " if (first.late_since or 0.0) <= (first.known_from or 0.0) else ""
    rows = sorted((one.row for one in slow), key=lambda row: (row.topic, row.partition))
    topics = list(dict.fromkeys(row.topic for row in rows))
    since = to_time(first.late_since or 0.0)
    why = (
        f"it does not catch up, and its oldest waiting record is more than ten minutes old since {least}{utc(since)}: "
        f"{'1 partition' if len(rows) == 1 else 'several partitions'} of {first_of(topics, _IN_TEXT)}"
    )
    ages = [row.lag_seconds for row in rows if row.lag_seconds is not None]
    evidence = {
        "partition_count": len(rows),
        **_offsets_of(work),
        **({"oldest_seconds": round(max(ages))} if ages else {}),
        "partitions": _rows_of(rows[:_NAMED_PARTITIONS]),
    }
    return Verdict(BEHIND, since, due, why, WARNING, evidence)


def _at_least(offsets: int) -> str:
    """Return a number of offsets, rounded: numbers in texts must not change often."""
    return count(offsets, "offset") if offsets < _FEW else f"more than {round_down(offsets):,} offsets"


def _work_of(one: Partitions) -> str:
    """Return how much waits in these partitions, as text. In a topic that was created again, the count is not known."""
    return f"{_at_least(one.offsets)} wait" if one.offsets else "records wait"


def _waits(work: GroupWork) -> str:
    if not work.waiting:
        return "nothing waits"
    least = "at least " if work.unknown and work.offsets < _FEW else ""
    return f"{least}{_at_least(work.offsets)} wait in {count(work.waiting, 'partition')}"


def _work_numbers(facts: Facts) -> dict[str, Any]:
    work = facts.work
    return {WAITING: work.waiting, **_offsets_of(work)} if work.waiting else {}


def _offsets_of(work: GroupWork) -> dict[str, int]:
    """Return how many offsets wait, and for how many partitions this is not known."""
    unknown = {"unknown_partitions": work.unknown} if work.unknown else {}
    return {"offsets": work.offsets, **unknown}


def _places(one: Partitions) -> str:
    return first_of([_place(row) for row in islice(one.named, _IN_TEXT)], _IN_TEXT, one.count, separator="; ")


def _place(row: LagRow) -> str:
    at = "nothing committed" if row.committed_offset is None else f"at {row.committed_offset}"
    if row.offset_status == AHEAD:
        at += ", beyond the end of the log"
    host = f" on {row.client_host or 'unknown host'}" if row.member_id else ""
    return f"{row.topic}-{row.partition} {at}{host}"


def _rows_of(rows: Sequence[LagRow]) -> list[Mapping[str, Any]]:
    return [
        {_KEYS.get(name, name): value for name in _SHOWN if (value := getattr(row, name)) is not None} for row in rows
    ]


CONDITIONS = (
    losing,
    not_ready,
    without_members,
    started_again_and_again,
    stalled,
    held,
    stuck,
    restoring,
    behind,
    unstable,
)
"""In the order in which they decide."""
