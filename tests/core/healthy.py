"""A group with which nothing is wrong."""

from __future__ import annotations

from datetime import datetime

from streaming_app.core.facts import GroupFacts


def healthy(since: datetime) -> GroupFacts:
    """Stable, with its description stored, and so for as long as that."""
    return GroupFacts(
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
        members_since=since,
        not_ready_reason=None,
        solicitable=False,
        unsolicited_pushes=0,
        last_unsolicited_push_at=None,
        member_count=3,
        stale_member_count=0,
        first_seen_at=since,
        updated_at=since,
        deleted_at=None,
        last_offset=1234,
    )
