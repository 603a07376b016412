"""Which members a rebalance waits for, and for what: for the rule about stuck rebalances and for `describe`. Pure."""

from __future__ import annotations

from streaming_app.alerts.rule import format_time
from streaming_app.groups.snapshot import AWAY, BEHIND, NOT_REVOKING, WAITING, GroupSnapshot, UnsettledMember
from streaming_app.text import first_of

_TASKS_IN_TEXT = 5

_WHAT = {
    NOT_REVOKING: "has not revoked {tasks}",
    AWAY: "left temporarily and still owns {tasks}",
    BEHIND: "has not taken the newest assignment, which concerns {tasks}",
    WAITING: "waits for {tasks}, which no unsettled member owns",
}


def awaited_members(group: GroupSnapshot) -> tuple[UnsettledMember, ...]:
    """Return the members that the group waits for, those with the oldest records first.

    Members that only wait for tasks count if nobody else is there to wait for.
    """
    return tuple(member for member in group.unsettled if member.state != WAITING) or group.unsettled


def describe_obligation(member: UnsettledMember) -> str:
    """Return what the member has not done: `has not revoked tasks 0_1, 0_2`."""
    names = first_of(member.tasks, _TASKS_IN_TEXT, member.task_count)
    return _WHAT[member.state].format(tasks=f"{'task' if member.task_count == 1 else 'tasks'} {names or 'none'}")


def describe_member(member: UnsettledMember) -> str:
    """Return who the member is, where it runs, and what it has not done since when."""
    since = f" since {format_time(member.updated_at)}" if member.updated_at else ""
    where = f"{member.client_host or 'unknown host'}, process {member.process_id}"
    return f"{member.client_id or member.member_id} ({where}) {describe_obligation(member)}{since}"


def member_details(member: UnsettledMember) -> dict[str, object]:
    """Return everything known of the member, for the details of a finding and for JSON; nothing is null."""
    details = {
        "member_id": member.member_id,
        "state": member.state,
        "client_id": member.client_id,
        "host": member.client_host,
        "process_id": member.process_id,
        "instance_id": member.instance_id,
        "newest_record": member.updated_at and member.updated_at.isoformat(),
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "tasks": list(member.tasks),
        "task_count": member.task_count,
    }
    return {name: value for name, value in details.items() if value is not None}
