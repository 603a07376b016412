"""The snapshot of a group for which no rule fires."""

from datetime import datetime

from streaming_app.groups.snapshot import GroupSnapshot


def healthy_group(since: datetime) -> GroupSnapshot:
    """Return a group that has been Stable, with its description stored, since this time."""
    return GroupSnapshot(
        group_id="payments",
        group_type="streams",
        state="Stable",
        state_since=since,
        group_epoch=7,
        assignment_epoch=7,
        assigned_at=since,
        topology_epoch=0,
        validated_topology_epoch=0,
        stored_description_epoch=0,
        failed_description_epoch=-1,
        description_status="CURRENT",
        description_since=since,
        description_stale_since=None,
        first_described_at=since,
        members_since=since,
        not_ready_reason=None,
        solicitable=False,
        unsolicited_pushes=0,
        last_unsolicited_push_at=None,
        member_count=3,
        stale_member_count=0,
        first_seen_at=since,
        updated_at=since,
        last_offset=1234,
    )
