"""What a group that is read again keeps of its row: what compaction took from the log, and the row proves.

The records come first: only what they leave unknown is taken over, and only while the row may be of the same group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streaming_app.groups.group import SINCE, GroupState


def carry_over(row: Mapping[str, Any], state: GroupState) -> None:
    """Take over from a row of `groups` times that are unknown, and pushes that were counted."""
    group, epoch = state.group, state.group.group_epoch
    is_same = not group.deleted and row["deleted_at"] is None and (epoch is None or epoch >= (row["group_epoch"] or 0))
    if not is_same or state.first_seen_at is not None:  # the log has all since the group was created
        return
    state.first_seen_at = row["first_seen_at"]
    for name, since in SINCE.items():
        if getattr(state, name) == row[name] and getattr(state, since) is None:
            setattr(state, since, row[since])
    for step in row["topology_epochs"] or ():
        if kept := group.topology_epochs.get(step["topology_epoch"]):
            known = {name: at for name, at in step.items() if name in kept and kept[name] is None}
            kept.update(known)
    pushed_at = row["last_unsolicited_push_at"]
    if pushed_at and group.metadata_at and pushed_at <= group.metadata_at:  # else the records of it are still to come
        state.unsolicited_pushes = max(state.unsolicited_pushes, row["unsolicited_pushes"])
        state.last_unsolicited_push_at = max(filter(None, (state.last_unsolicited_push_at, pushed_at)))
