"""Deployments of an application, as its group shows them: every process replaced in a short time, or a new topology.

A deployment replaces every member by another one within `WITHIN`, whatever its order: one after the other, all at once,
or new ones while the old ones still run. Members that join again under their own id, as after a pause of the network,
are not replaced. A member that stayed for less than `WITHIN` is none that a deployment replaces: an application that
crashes and is started again and again is deployed no more than once by that.

What must be known for it from operation to operation is a text in the row of the group, `replacing`: since when, and
the ids of members that left since, as hashes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.groups.events import TOPOLOGY_CONTENT, Changes, is_replaced
from streaming_app.groups.group import Event, Group
from streaming_app.text import digest

WITHIN = timedelta(minutes=15)
DEPLOYMENT = "deployment"
"""The kind of the event, and the `what` of its change. `old` is when it began, `new` what was replaced."""
PROCESSES = "processes"
_IDS = 100  # of members that left; a group with more of them than that is one of many hosts
_ID_CHARACTERS = 8


def note_deployment(group: Group, changes: Changes) -> Event | None:
    """Return the event of the deployment that ended with an operation, if one did; and keep what the next one needs."""
    at = group.updated_at
    if group.is_deleted or at is None:
        group.replacing = None
        return None
    began = _processes_replaced_since(group, changes, at)
    replaced = [PROCESSES] * (began is not None) + [TOPOLOGY_CONTENT] * is_replaced(changes, TOPOLOGY_CONTENT)
    old = (began or at).isoformat()
    return Event(at, DEPLOYMENT, None, old, ", ".join(replaced), group.last_offset) if replaced else None


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
    oldest = next(iter(group.members.values()), None)  # they are in the order in which they joined
    began = None
    if since is not None and oldest and oldest.joined_at and timedelta(0) <= at - oldest.joined_at < WITHIN:
        began, since = min(since, oldest.joined_at), None
    group.replacing = None if since is None else " ".join((since.isoformat(), *sorted(ids)[:_IDS]))
    return began
