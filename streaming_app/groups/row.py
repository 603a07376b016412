"""Converts a `Group` to a row of `groups` and back. The columns are those of `schemas/tables/groups.toml`.

A field of `Group` or `Member` with the name of a column is copied; only what is nested needs code here.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from operator import itemgetter
from typing import Any

from streaming_app.groups.classic import AT_END
from streaming_app.groups.group import STORED_AT, Group, Member, TaskId
from streaming_app.groups.replay import REACHED
from streaming_app.groups.state_rules import DEAD, SOLICITABLE_STATUSES
from streaming_app.groups.topology import sources_hash

_NESTED = ("is_deleted", "assignment_configs", "topology_epochs", "members", "targets", "members_in", "last_changes")
_SCALARS = tuple(f.name for f in fields(Group) if f.name not in _NESTED)
_MEMBER_SCALARS = tuple(
    f.name for f in fields(Member) if f.name not in ("client_tags", "current", "pending_revocation", "task_sums")
)
_NOT_CLASSIC = (
    *(name for name in REACHED.values()),
    *("description_status", "description_since", "description_stale_since", "first_described_at", "solicitable"),
    *("unsolicited_pushes", "readiness_recorded", "stale_member_count"),
)
"""Columns that are null with the classic protocol, which has no topology epochs and no descriptions."""
_EPOCH_STEPS, _STORED = ("first_seen_at", *REACHED), "description_stored"


def to_row(cluster: str, group: Group) -> dict[str, Any]:
    """Return the row of `groups`. Nested values are lists and dicts; a map is a list of pairs, as in Arrow."""
    row = {name: getattr(group, name) for name in _SCALARS}
    stale = {m.member_id: m.joined_at for m in group.members.values() if is_stale(group, m)}
    joined = [m.joined_at for m in group.members.values()]
    is_unknown = group.is_classic and None in joined  # that one may be the earliest
    epochs = [
        {"topology_epoch": epoch, **{step: kept.get(step) for step in _EPOCH_STEPS}, _STORED: STORED_AT in kept}
        for epoch, kept in sorted(group.topology_epochs.items())
    ]
    row |= {
        "cluster": cluster,
        "assignment_epoch": group.reported_assignment_epoch,
        "description_stale_since": description_stale_since(group),
        "first_described_at": min(filter(None, map(itemgetter(STORED_AT), epochs)), default=None),
        "sources_hash": sources_hash(group.subtopologies),
        "solicitable": is_solicitable(group),
        "member_count": len(group.members),
        "members_since": None if is_unknown else min(filter(None, joined), default=None),
        "stale_member_count": len(stale),
        "stale_members_since": _stale_since(group, stale.values()),
        "assignment_configs": list(group.assignment_configs.items()),
        "members": [
            {name: getattr(member, name) for name in _MEMBER_SCALARS}
            | {
                "stale_topology": None if group.is_classic else member.member_id in stale,
                "client_tags": list(member.client_tags.items()),
                "task_sums": _sum_rows(member),
            }
            for member in group.members.values()
        ],
        "assignments": list(_assignment_rows(group)),
        "topology_epochs": epochs,
        "last_changes": [*group.last_changes],
    }
    return row | dict.fromkeys(_NOT_CLASSIC) if group.is_classic else row


def from_row(row: dict[str, Any]) -> Group:
    """Return the group of a row of `groups`: the inverse of `to_row`."""
    group = Group(**_present(row, _SCALARS))
    group.is_deleted = row["deleted_at"] is not None or row["state"] == DEAD
    group.assignment_configs = dict(row["assignment_configs"] or ())
    for stored in row["members"]:
        member = Member(**_present(stored, _MEMBER_SCALARS))
        member.client_tags = dict(stored["client_tags"] or ())
        member.task_sums = {
            (one["subtopology_id"], one["partition"]): AT_END if one["at_end"] else one["task_offset"]
            for one in stored.get("task_sums") or ()
        }
        group.add_member(member)
    for of in row["assignments"]:
        task: TaskId = (of["role"], of["subtopology_id"], of["partition"])
        owner = group.members.get(of["member_id"])  # None for a target that was read before its member
        if owner and of["current"]:
            owner.current[task] = of["assignment_epoch"]
        if owner and of["pending_revocation"]:
            owner.pending_revocation[task] = of["assignment_epoch"]
        if of["target"]:
            group.targets.setdefault(of["member_id"], {})[task] = 0
    for step in row["topology_epochs"]:
        epoch = step["topology_epoch"]
        kept = group.topology_epochs[epoch] = _present(step, _EPOCH_STEPS)
        if step.get(_STORED) or group.stored_description_epoch == epoch:
            kept.setdefault(STORED_AT, None)
    group.last_changes = [*row["last_changes"]]
    return group


def _present(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the columns that are not null. So in a row of an older release a new field keeps its default."""
    return {name: row[name] for name in names if row[name] is not None}


def is_stale(group: Group, member: Member) -> bool:
    """Return whether the member runs an older topology than the group (the broker's STALE_TOPOLOGY)."""
    return None not in (group.topology_epoch, member.topology_epoch) and member.topology_epoch < group.topology_epoch  # type: ignore[operator]


def _stale_since(group: Group, joined: Collection[datetime | None]) -> datetime | None:
    """Return since when a member is stale, from the times when the stale members joined; None if there are none."""
    known = [at for at in joined if at]
    epoch_at = group.topology_epochs.get(group.topology_epoch or 0, {}).get("first_seen_at")
    return max(filter(None, (min(known), epoch_at))) if known else None


def description_stale_since(group: Group) -> datetime | None:
    """Return since when the topology epoch has no stored description; None if it has one, or there is no topology.

    This is the time when the epoch was first seen, or, if its description was stored before, when the status changed.
    """
    if group.description_status in {"CURRENT", "NO_TOPOLOGY", None}:
        return None
    epoch = group.topology_epoch or 0
    was_stored = group.was_description_stored(epoch)
    return group.description_since if was_stored else group.topology_epochs.get(epoch, {}).get("first_seen_at")


def is_solicitable(group: Group) -> bool:
    """Return whether the broker would ask an active member for the description (KIP-1331).

    A member that has left, or a static member that left temporarily, is not active. This assumes that the brokers have
    a plugin and that no back-off is active: the log does not show either.
    """
    return group.description_status in SOLICITABLE_STATUSES and any(
        (member.member_epoch or 0) >= 0 and not is_stale(group, member) for member in group.members.values()
    )


def _sum_rows(member: Member) -> list[dict[str, Any]] | None:
    return [
        {"subtopology_id": one, "partition": partition, "task_offset": offset, "at_end": False}
        | ({"task_offset": None, "at_end": True} if offset == AT_END else {})
        for (one, partition), offset in member.task_sums.items()
    ] or None


def _assignment_rows(group: Group) -> Iterator[dict[str, Any]]:
    """Yield a row for each member and task. A target may be known before its member."""
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
