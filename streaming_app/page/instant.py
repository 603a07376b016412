"""The group at an instant: who had which task then, and how far behind it was. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming_app.page.task_matrix import Matrix, task_id, task_matrix, task_order
from streaming_app.queries.history import GroupAt, MemberAt, parse_tasks

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Instant:
    """A group as it was."""

    at: datetime
    values: Mapping[str, str | None]
    """State, epochs and so on, by the kinds of the events."""
    deleted_at: datetime | None
    members: int
    matrix: Matrix
    """Its processes are the members: the events do not name processes."""
    lag: int | None
    """Offsets, of the partitions of which it is known; None if it is of none."""
    lag_seconds: float | None
    moved: Sequence[str]
    """The tasks that another member has now as active, or none."""


def instant_view(
    group: GroupAt, at: datetime, current: Iterable[Row], samples: Sequence[Row], task_of: Mapping[tuple[str, int], str]
) -> Instant:
    """Return the group at a time.

    `current` are the assignments now, `samples` the lag of each partition then, and `task_of` the task ids by topic and
    partition.
    """
    rows = [task for member in group.members.values() for task in _tasks(member)]
    known = [one["lag"] for one in samples if one["lag"] is not None]
    seconds = [one["lag_seconds"] for one in samples if one["lag_seconds"] is not None]
    lag: dict[str, int] = {}
    for one in samples:
        task = task_of.get((one["topic"], one["partition"]))
        if task is not None and one["lag"] is not None:
            lag[task] = lag.get(task, 0) + one["lag"]
    return Instant(
        at=at,
        values=group.values,
        deleted_at=group.deleted_at,
        members=len(group.members),
        matrix=task_matrix(map(_member, group.members.values()), rows, lag),
        lag=sum(known) if known else None,
        lag_seconds=max(seconds, default=None),
        moved=_moved(rows, current),
    )


def tasks_by_partition(lag: Iterable[Row]) -> dict[tuple[str, int], str]:
    """Return the task ids by topic and partition, from rows of `lag`."""
    return {(one["topic"], one["partition"]): one["task_id"] for one in lag if one["task_id"] is not None}


def _member(member: MemberAt) -> Row:
    return {
        "member_id": member.member_id,
        "process_id": None,
        "client_host": member.client_host,
        "client_id": member.instance_id or member.client_id,
    }


def _tasks(member: MemberAt) -> Iterable[Row]:
    for role, subtopology_id, partition in parse_tasks(member.tasks):
        yield {
            "member_id": member.member_id,
            "role": role,
            "subtopology_id": subtopology_id,
            "partition": partition,
            "current": True,
            "target": True,
            "pending_revocation": False,
        }


def _moved(then: Iterable[Row], now: Iterable[Row]) -> list[str]:
    owners = [
        {(row["subtopology_id"], row["partition"]): row["member_id"] for row in rows if _is_active(row)}
        for rows in (then, now)
    ]
    return [task_id(*task) for task in sorted(owners[0], key=task_order) if owners[0][task] != owners[1].get(task)]


def _is_active(row: Row) -> bool:
    return bool(row["role"] == "active" and row["current"])
