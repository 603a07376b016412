"""A member as the coordinator knows it, the records about it, and how tasks are spread over members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STABLE, UNREVOKED, UNRELEASED = 1, 2, 3
JOINING_EPOCH, AWAY_EPOCH = 0, -2

Task = tuple[str, int]
"""Subtopology, partition."""


@dataclass(eq=False)
class Member:
    """A member as the coordinator knows it; `process` is the application instance that it belongs to."""

    member_id: str
    process: str
    host: str
    client_id: str
    instance_id: str | None = None
    rebalance_timeout: float = 300.0
    epoch: int = JOINING_EPOCH
    previous_epoch: int = 0
    state: int = STABLE
    tasks: dict[Task, int] = field(default_factory=dict)
    """Task to assignment epoch."""
    revoking: dict[Task, int] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """Return the value of record 19."""
        return {
            "instance_id": self.instance_id,
            "rack_id": None,
            "client_id": self.client_id,
            "client_host": f"/{self.host}",
            "rebalance_timeout_ms": int(self.rebalance_timeout * 1000),
            "topology_epoch": 0,
            "process_id": self.process,
            "user_endpoint": None,
            "client_tags": [],
        }

    def assignment(self) -> dict[str, Any]:
        """Return the value of record 22."""
        return {
            "member_epoch": self.epoch,
            "previous_member_epoch": self.previous_epoch,
            "state": self.state,
            "active_tasks": _by_subtopology(self.tasks),
            "standby_tasks": [],
            "warmup_tasks": [],
            "active_tasks_pending_revocation": _by_subtopology(self.revoking),
            "standby_tasks_pending_revocation": [],
            "warmup_tasks_pending_revocation": [],
        }


def balance(tasks: list[Task], members: list[str], before: Mapping[str, set[Task]]) -> dict[str, set[Task]]:
    """Give each member its share of the tasks, and as many as possible of those that it had."""
    if not members:
        return {}
    share, more = divmod(len(tasks), len(members))
    targets: dict[str, set[Task]] = {}
    left = set(tasks)
    for member_id in sorted(members, key=lambda one: (-len(before.get(one, ())), one)):
        size = share + (1 if more > 0 else 0)
        targets[member_id] = set(sorted(before.get(member_id, set()) & left)[:size])
        left -= targets[member_id]
        more -= 1 if len(targets[member_id]) > share else 0
    queue = sorted(left)
    for size in (share, share + 1):
        for one in targets.values():
            while queue and len(one) < size:
                one.add(queue.pop())
    return {member_id: targets[member_id] for member_id in members}


def target_value(tasks: Iterable[Task]) -> dict[str, Any]:
    return {"active_tasks": _by_subtopology(dict.fromkeys(tasks, 0)), "standby_tasks": [], "warmup_tasks": []}


def _by_subtopology(tasks: Mapping[Task, int]) -> list[dict[str, Any]]:
    by_id: dict[str, list[tuple[int, int]]] = {}
    for (subtopology_id, partition), epoch in sorted(tasks.items()):
        by_id.setdefault(subtopology_id, []).append((partition, epoch))
    return [
        {"subtopology_id": name, "partitions": [p for p, _ in own], "assignment_epochs": [e for _, e in own]}
        for name, own in by_id.items()
    ]
