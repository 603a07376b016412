"""Finds deployments of an application by the records of its group: all members are replaced, or the topology is new.

A deployment replaces every member by another one within `WITHIN`: one after the other, all at once, or with new members
that join before the old ones leave. A member that joins again under its own id, as after a network failure, is not
replaced. Members that stayed for less than `WITHIN` do not count as replaced: so an application that crashes and
restarts again and again shows at most one deployment.

The column `replacing` of the group's row keeps what the next operation needs: a start time, and hashes of the ids of
members that left since then.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.groups.events import TOPOLOGY_CONTENT, Changes, is_replaced
from streaming_app.groups.group import Group, GroupEvent
from streaming_app.text import digest

WITHIN = timedelta(minutes=15)
DEPLOYMENT = "deployment"
"""The kind of the event, and the `what` of its change. `old` is when the deployment began, `new` what it replaced."""
PROCESSES = "processes"
_IDS = 100  # ids of members that left, which are kept at most
_ID_CHARACTERS = 8


def note_deployment(group: Group, changes: Changes) -> GroupEvent | None:
    """Return the event of a deployment that this operation completed, or None. Also updates `group.replacing`."""
    at = group.updated_at
    if group.is_deleted or at is None:
        group.replacing = None
        return None
    began = _processes_replaced_since(group, changes, at)
    replaced = [PROCESSES] * (began is not None) + [TOPOLOGY_CONTENT] * is_replaced(changes, TOPOLOGY_CONTENT)
    old = (began or at).isoformat()
    return GroupEvent(at, DEPLOYMENT, None, old, ", ".join(replaced), group.last_offset) if replaced else None


def _processes_replaced_since(group: Group, changes: Changes, at: datetime) -> datetime | None:
    joined, replaced = set(), set()
    for member_id, (old, new) in changes.items():
        if member_id is not None and (old["member"] is None) != (new["member"] is None):
            if new["member"] is not None:
                joined.add(digest(member_id, _ID_CHARACTERS))
            elif old["joined_at"] and at - datetime.fromisoformat(old["joined_at"]) >= WITHIN:
                replaced.add(digest(member_id, _ID_CHARACTERS))
    text, *known = (group.replacing or "").split(" ")
    since, ids = datetime.fromisoformat(text) if text else None, set(known)
    if since is not None and (at - since > WITHIN or joined & ids):
        since, ids = None, set()
    if replaced:
        since, ids = since or at, ids | replaced
    oldest = next(iter(group.members.values()), None)  # members are in the order in which they joined
    began = None
    if since is not None and oldest and oldest.joined_at and timedelta(0) <= at - oldest.joined_at < WITHIN:
        began, since = min(since, oldest.joined_at), None
    group.replacing = None if since is None else " ".join((since.isoformat(), *sorted(ids)[:_IDS]))
    return began
