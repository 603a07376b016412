"""A `Life` to a row of the `groups` table and back. The columns are those of `schemas/tables/groups.toml`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from typing import Any

from streaming_app.core.group import Group, Member, TaskId
from streaming_app.core.life import Change, Life
from streaming_app.core.states import WOULD_BE_ASKED_FOR

_GROUP_SCALARS = (
    "group_id",
    "group_type",
    "group_epoch",
    "assignment_epoch",
    "assigned_at",
    "metadata_hash",
    "topology_epoch",
    "validated_topology_epoch",
    "stored_description_epoch",
    "failed_description_epoch",
    "readiness_recorded",
    "subtopologies",
)
_LIFE_SCALARS = tuple(f.name for f in fields(Life) if f.name not in ("group", "last_changes"))
_MEMBER_SCALARS = tuple(
    f.name for f in fields(Member) if f.name not in ("client_tags", "current", "pending_revocation")
)
_EPOCH_STEPS = ("first_seen_at", "validated_at", "description_stored_at", "description_failed_at")


def to_row(cluster: str, life: Life) -> dict[str, Any]:
    """The row of `groups`: nested values are lists and dicts, maps are lists of pairs, as Arrow has them."""
    group = life.group
    row = {name: getattr(group, name) for name in _GROUP_SCALARS}
    row.update({name: getattr(life, name) for name in _LIFE_SCALARS})
    stale = {m.member_id for m in group.members.values() if is_stale(group, m)}
    row |= {
        "cluster": cluster,
        "assignment_epoch": group.told_assignment_epoch,
        "description_stale_since": description_stale_since(life),
        "solicitable": is_solicitable(group),
        "member_count": len(group.members),
        "members_since": min((m.joined_at for m in group.members.values() if m.joined_at), default=None),
        "stale_member_count": len(stale),
        "assignment_configs": list(group.assignment_configs.items()),
        "members": [_member_row(member, stale=member.member_id in stale) for member in group.members.values()],
        "assignments": list(_assignment_rows(group)),
        "topology_epochs": [
            {"topology_epoch": epoch, **{step: times.get(step) for step in _EPOCH_STEPS}}
            for epoch, times in sorted(group.topology_epochs.items())
        ],
        "last_changes": [change._asdict() for change in life.last_changes],
    }
    return row


def from_row(row: dict[str, Any]) -> Life:
    """The `Life` that a row of `groups` holds: the inverse of `to_row`."""
    group = Group(**{name: row[name] for name in _GROUP_SCALARS})
    group.deleted = row["deleted_at"] is not None or row["state"] == "Dead"
    group.assignment_configs = dict(row["assignment_configs"] or ())
    for stored in row["members"]:
        member = Member(**{name: stored[name] for name in _MEMBER_SCALARS})
        member.client_tags = dict(stored["client_tags"] or ())
        group.place(member)
    for task in row["assignments"]:
        _place_task(group, task)
    for step in row["topology_epochs"]:
        times = {name: step[name] for name in _EPOCH_STEPS if step[name] is not None}
        group.topology_epochs[step["topology_epoch"]] = times
    life = Life(group, **{name: row[name] for name in _LIFE_SCALARS})
    life.last_changes = [Change(**change) for change in row["last_changes"]]
    return life


def is_stale(group: Group, member: Member) -> bool:
    """The member runs a topology older than the group's (the broker's STALE_TOPOLOGY)."""
    return None not in (group.topology_epoch, member.topology_epoch) and member.topology_epoch < group.topology_epoch  # type: ignore[operator]


def description_stale_since(life: Life) -> datetime | None:
    """Since when the topology's epoch has been without a stored description; None while it has one, or none is due.

    That is since the epoch was first seen; where its description was stored before, since it has not been any more.
    """
    if life.description_status in {"CURRENT", "NO_TOPOLOGY", None}:
        return None
    times = life.group.topology_epochs.get(life.group.topology_epoch or 0, {})
    return life.description_since if "description_stored_at" in times else times.get("first_seen_at")


def is_solicitable(group: Group) -> bool:
    """The broker would ask some active member for the description, given a plugin and no back-off (KIP-1331)."""
    return group.description_status in WOULD_BE_ASKED_FOR and any(
        member.is_active and not is_stale(group, member) for member in group.members.values()
    )


def _member_row(member: Member, *, stale: bool) -> dict[str, Any]:
    row = {name: getattr(member, name) for name in _MEMBER_SCALARS}
    return row | {"stale_topology": stale, "client_tags": list(member.client_tags.items())}


def _assignment_rows(group: Group) -> Iterator[dict[str, Any]]:
    """One row per member and task. A target may be known before its member is."""
    for member_id in {**group.members, **group.targets}:
        member = group.members.get(member_id) or Member(member_id)
        target = group.targets.get(member_id, {})
        for task in sorted({**member.current, **member.pending_revocation, **target}):
            role, subtopology_id, partition = task
            yield {
                "member_id": member_id,
                "role": role,
                "subtopology_id": subtopology_id,
                "partition": partition,
                "current": task in member.current,
                "target": task in target,
                "pending_revocation": task in member.pending_revocation,
                "assignment_epoch": member.current.get(task, member.pending_revocation.get(task)),
            }


def _place_task(group: Group, row: dict[str, Any]) -> None:
    task: TaskId = (row["role"], row["subtopology_id"], row["partition"])
    if row["current"]:
        group.members[row["member_id"]].current[task] = row["assignment_epoch"]
    if row["pending_revocation"]:
        group.members[row["member_id"]].pending_revocation[task] = row["assignment_epoch"]
    if row["target"]:
        group.targets.setdefault(row["member_id"], {})[task] = 0
