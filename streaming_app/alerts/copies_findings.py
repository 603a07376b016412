"""When a group lacks copies of tasks, or standbys stay behind, and when members run an older topology."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from streaming_app.alerts.problem import INFO, Finding
from streaming_app.alerts.rule import (
    EvaluationContext,
    format_time,
    since_or_fallback,
)
from streaming_app.groups.copies_status import GroupCopies, Progress
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.task_copies import format_task
from streaming_app.text import count, first_of

_IN_SUMMARY, _IN_DETAILS = 3, 20


def find_standbys(group: GroupCopies, context: EvaluationContext) -> Finding | None:
    """Standbys do not catch up, or tasks have no copy in another process although standbys are configured."""
    return _standby_behind(group, context) or _without_copy(group, context)


def _standby_behind(group: GroupCopies, _context: EvaluationContext) -> Finding | None:
    copies = group.behind
    if not copies:
        return None
    since = copies[0].fell_at
    return Finding(
        since,
        f"{group.group_id}: {count(len(copies), 'standby')} not caught up since {format_time(since)}: "
        f"{_copies_in_text(copies)}",
        _copies_in_details(copies),
    )


def _copies_in_text(copies: Sequence[Progress]) -> str:
    places = [
        f"{format_task(one.copy.task)} at {one.copy.client_host or 'unknown host'}, process {one.copy.process_id}"
        for one in islice(copies, _IN_SUMMARY)
    ]
    return first_of(places, _IN_SUMMARY, len(copies), separator="; ")


def _copies_in_details(copies: Sequence[Progress]) -> dict[str, object]:
    return {
        "standbys": [
            {
                "task": format_task(one.copy.task),
                "member_id": one.copy.member_id,
                "host": one.copy.client_host or "",
                "process_id": one.copy.process_id or "",
                "least_lag": one.lag,
            }
            for one in islice(copies, _IN_DETAILS)
        ],
        "acceptable_lag": copies[0].copy.known_acceptable_lag,
    }


def _without_copy(group: GroupCopies, _context: EvaluationContext) -> Finding | None:
    if not group.uncopied:
        return None
    alone = {task: one for task, one in group.uncopied.items() if one.processes == 1}
    which = alone or group.uncopied
    tasks = [format_task(task) for task in which]
    wrong = "without a copy in another process" if alone else "with fewer, though there are processes for them"
    return Finding(
        min(one.since for one in which.values()),
        f"{group.group_id} has streams.num.standby.replicas {group.standby_replicas}, but "
        f"{count(len(tasks), 'task')} {wrong}: {first_of(tasks, _IN_SUMMARY)}",
        {"tasks": tasks[:_IN_DETAILS], "task_count": len(tasks), "num_standby_replicas": group.standby_replicas},
        severity=None if alone else INFO,
    )


def find_stale_members(group: GroupSnapshot, _context: EvaluationContext) -> Finding:
    """Members run a topology that is older than the group's."""
    epoch, stale = group.topology_epoch or 0, group.stale_member_count
    return Finding(
        since_or_fallback(group.stale_members_since, group),
        f"{group.group_id}: {count(stale, 'member')} of {group.member_count:,} with a topology older than the group's, "
        f"epoch {epoch}: they get no tasks",
        {"stale_members": stale, "members": group.member_count, "topology_epoch": epoch},
    )
