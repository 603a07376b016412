"""Since when a group has its state, and since when its description has its status, as the fold keeps them."""

from __future__ import annotations

from streaming_app.groups.events import CAUSES, NOT_READY_REASON, UNKNOWN_STATE
from streaming_app.groups.state import GroupState


def update_times(group_state: GroupState) -> None:
    """Take over the state and the status of the description, after an operation, and since when the new ones hold."""
    group = group_state.group
    was_known = group_state.state not in (None, UNKNOWN_STATE) or group_state.first_seen_at == group_state.updated_at
    at = group_state.updated_at if was_known else None
    if group_state.state != group.state:
        group_state.state, group_state.state_since = group.state, at
    if group_state.description_status != group.description_status:
        group_state.description_status, group_state.description_since = group.description_status, at
    group_state.deleted_at = (group_state.deleted_at or group_state.updated_at) if group.deleted else None


def revert_last_changes(group_state: GroupState) -> None:
    """Restore the states and times from before the operation: its second part may undo changes of the first."""
    if group_state.first_seen_at == group_state.updated_at:  # the group was created in the first part
        group_state.state = group_state.state_since = None
        group_state.description_status = group_state.description_since = None
        group_state.not_ready_reason = None
        group_state.group.causes_since_assignment = None
    for change in group_state.last_changes if group_state.state else ():
        if change.what == "state":
            group_state.state = change.old or UNKNOWN_STATE
            group_state.state_since = change.since
        elif change.what == "description_status":
            group_state.description_status, group_state.description_since = change.old, change.since
        elif change.what == NOT_READY_REASON:
            group_state.not_ready_reason = change.old
        elif change.what == CAUSES:
            group_state.group.causes_since_assignment = change.old
