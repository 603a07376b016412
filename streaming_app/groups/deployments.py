"""Deployments of an application, as its group shows them: every process replaced in a short time, or a new topology.

A deployment replaces every member by another one within `WITHIN`, whatever its order: one after the other, all at once,
or new ones while the old ones still run. Members that join again under their own id, as after a pause of the network,
are not replaced. A member that stayed for less than `WITHIN` is none that a deployment replaces: an application that
crashes and is started again and again is deployed no more than once by that.

What must be known for it from operation to operation is a text in the row of the group, `replacing`: since when, and
the ids of members that left since, as hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256

from streaming_app.groups.group import Event, Group

WITHIN = timedelta(minutes=15)
DEPLOYMENT = "deployment"
"""The kind of the event, and the `what` of its change. `old` is when it began, `new` what was replaced."""
PROCESSES, TOPOLOGY_CONTENT = "processes", "topology"
JOINED_AT = "joined_at"
_IDS = 100  # of members that left; a group with more of them than that is one of many hosts
_ID_CHARACTERS = 8


def note_deployment(
    group: Group,
    changes: Mapping[tuple[str, str | None], tuple[str | None, str | None]],
    at: datetime | None,
    offset: int,
) -> Event | None:
    """Return the event of the deployment that ended with an operation, if one did; and keep what the next one needs.

    `changes` are all that the operation changed, as values before and after, by name and member.
    """
    if group.deleted or at is None:
        group.replacing = None
        return None
    began = _processes_replaced_since(group, changes, at)
    before, after = changes.get((TOPOLOGY_CONTENT, None), (None, None))
    is_other_topology = None not in (before, after)
    if began is None and not is_other_topology:
        return None
    replaced = ", ".join(name for name, is_so in ((PROCESSES, began), (TOPOLOGY_CONTENT, is_other_topology)) if is_so)
    return Event(at, DEPLOYMENT, None, (began or at).isoformat(), replaced, offset)


def _processes_replaced_since(
    group: Group, changes: Mapping[tuple[str, str | None], tuple[str | None, str | None]], at: datetime
) -> datetime | None:
    members = [(member_id, *values) for (what, member_id), values in changes.items() if what == "member"]
    left = [str(member_id) for member_id, _, new in members if new is None]
    joined = {_hash(str(member_id)) for member_id, old, _ in members if old is None}
    since, ids = _parse(group.replacing)
    if since is not None and (at - since > WITHIN or joined & set(ids)):
        since, ids = None, []
    replaced = [one for one in left if _stayed(changes.get((JOINED_AT, one), (None, None))[0], at)]
    if replaced:
        since = since or at
        ids = sorted({*ids, *map(_hash, replaced)})[:_IDS]
    oldest = next(iter(group.members.values()), None)  # they are in the order in which they joined
    began = None
    if since is not None and oldest and oldest.joined_at and timedelta(0) <= at - oldest.joined_at < WITHIN:
        began, since = min(since, oldest.joined_at), None
    group.replacing = None if since is None else " ".join((since.isoformat(), *ids))
    return began


def _stayed(joined_at: str | None, at: datetime) -> bool:
    return joined_at is not None and at - datetime.fromisoformat(joined_at) >= WITHIN


def _parse(text: str | None) -> tuple[datetime | None, list[str]]:
    if not text:
        return None, []
    since, *ids = text.split(" ")
    return datetime.fromisoformat(since), ids


def _hash(member_id: str) -> str:
    return sha256(member_id.encode("utf-8", "replace")).hexdigest()[:_ID_CHARACTERS]
