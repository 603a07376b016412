"""What the alert rules and the metrics look at: a group's row without its bulk, and how the job itself is doing.

Only data, and how it is read from a row of `groups`. No clock: who looks brings the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

REBALANCING = ("Assigning", "Reconciling")


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A streams group, as its row of `groups` tells it; the fields are columns of that table.

    The last three are read from the row's members, and only while the group is in a state of `REBALANCING`.
    """

    group_id: str
    group_type: str
    state: str
    state_since: datetime | None
    group_epoch: int | None
    assignment_epoch: int | None
    assigned_at: datetime | None
    topology_epoch: int | None
    validated_topology_epoch: int
    stored_description_epoch: int
    failed_description_epoch: int
    description_status: str
    description_since: datetime | None
    description_stale_since: datetime | None
    not_ready_reason: str | None
    solicitable: bool
    unsolicited_pushes: int
    last_unsolicited_push_at: datetime | None
    member_count: int
    members_since: datetime | None
    stale_member_count: int
    first_seen_at: datetime | None
    updated_at: datetime | None
    deleted_at: datetime | None
    last_offset: int
    rebalance_timeout_ms: int | None = None
    """The longest of the members' rebalance timeouts."""
    not_revoking: tuple[str, ...] = ()
    """Members that were told to give tasks up and have not (UNREVOKED_TASKS), as `host client_id (member_id)`."""
    awaiting: tuple[str, ...] = ()
    """Members that wait for tasks which others still hold (UNRELEASED_TASKS), spelled the same way."""


_OF_MEMBERS = ("rebalance_timeout_ms", "not_revoking", "awaiting")
COLUMNS = tuple(f.name for f in fields(GroupFacts) if f.name not in _OF_MEMBERS)
"""The columns of `groups` that `group_facts` needs; `members` too, for groups in a state of `REBALANCING`."""


def group_facts(row: Mapping[str, Any]) -> GroupFacts:
    """Read the facts off a row of `groups`; its `members` may be left out."""
    members = (row.get("members") or ()) if row["state"] in REBALANCING else ()
    timeouts = [m["rebalance_timeout_ms"] for m in members if m["rebalance_timeout_ms"] is not None]
    return GroupFacts(
        **{name: row[name] for name in COLUMNS},
        rebalance_timeout_ms=max(timeouts, default=None),
        not_revoking=_named(members, "UNREVOKED_TASKS"),
        awaiting=_named(members, "UNRELEASED_TASKS"),
    )


def _named(members: Iterable[Mapping[str, Any]], state: str) -> tuple[str, ...]:
    return tuple(
        f"{(member['client_host'] or '').lstrip('/')} {member['client_id']} ({member['member_id']})"
        for member in members
        if member["member_state"] == state
    )


@dataclass(frozen=True, slots=True)
class JobFacts:
    """How the job that writes one cluster is doing; times are of the machine that runs it."""

    started_at: datetime
    caught_up: bool = False
    """The job has been at the end of the topic once since it started. No alert about a group fires before."""
    behind: int = 0
    """Offsets between what is in the tables and the end of the topic."""
    behind_since: datetime | None = None
    """Since when there has always been something left, or batches took minutes; None at the end of the topic."""
    last_success_at: datetime | None = None
    """When a batch last ended well, or the stream last found nothing new."""
    brokers_away_since: datetime | None = None
    """Since when no broker has answered; None while they do."""
    failing_since: datetime | None = None
    """Since when the stream has failed and been started again without success; None while it runs."""
    failure: str | None = None
    """What it failed by, one line."""
    quarantined_at: datetime | None = None
    """When a record was last put into `quarantine`."""
    quarantined: int = 0
    """Records put there since the job started, and in the 24 hours before that."""
    drifted_at: datetime | None = None
    """When a record with unknown tagged fields was last read."""
    drifted: int = 0
    """Records with unknown tagged fields since the job started."""
