"""Decoded records of one group as broker 4.4.0 writes them, and helpers that fold them."""

from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.groups.fold import Fold
from streaming_app.groups.group import Group, LogRecord

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NO_TASKS: dict[str, Any] = {
    f"{role}_tasks{suffix}": [] for role in ("active", "standby", "warmup") for suffix in ("", "_pending_revocation")
}
CONFIGS = [{"key": "num.standby.replicas", "value": "0"}]


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def metadata(
    epoch: int = 2, validated: int = 0, stored: int = -1, failed: int = -1, configs: Any = CONFIGS
) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "metadata_hash": 7,
        "validated_topology_epoch": validated,
        "last_assignment_configs": configs,
        "stored_description_topology_epoch": stored,
        "failed_description_topology_epoch": failed,
    }


def member(topology_epoch: int = 0) -> dict[str, Any]:
    return {
        "instance_id": None,
        "rack_id": None,
        "client_id": "app",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 300_000,
        "topology_epoch": topology_epoch,
        "process_id": "process",
        "user_endpoint": {"host": "h", "port": 80},
        "client_tags": [{"key": "zone", "value": "a"}],
    }


def current(
    epoch: int = 2, state: int = 1, active: list[int] | None = None, pending: list[int] | None = None
) -> dict[str, Any]:
    tasks = [{"subtopology_id": "0", "partitions": active, "assignment_epochs": None}] if active else []
    revoked = [{"subtopology_id": "0", "partitions": pending, "assignment_epochs": None}] if pending else []
    return {
        "member_epoch": epoch,
        "previous_member_epoch": epoch - 1,
        "state": state,
        **NO_TASKS,
        "active_tasks": tasks,
        "active_tasks_pending_revocation": revoked,
    }


TOPOLOGY: dict[str, Any] = {
    "epoch": 0,
    "subtopologies": [
        {
            "subtopology_id": "0",
            "source_topics": ["a", "b"],
            "source_topic_regex": ["c.*"],
            "repartition_sink_topics": [],
            "repartition_source_topics": [
                {"name": "r", "partitions": 2, "replication_factor": 1, "topic_configs": [{"key": "k", "value": "v"}]}
            ],
            "state_changelog_topics": [],
            "copartition_groups": [
                {"source_topics": [1], "source_topic_regex": [0], "repartition_source_topics": [0, 9]}
            ],
        }
    ],
}
TARGET = {"active_tasks": [{"subtopology_id": "0", "partitions": [0, 1]}], "standby_tasks": [], "warmup_tasks": []}
GROUP = {"group_id": "g"}
M1 = {"group_id": "g", "member_id": "m1"}
M2 = {"group_id": "g", "member_id": "m2"}

# The records of a first join: one operation, the assignment 3 s later, then the member's heartbeat.
FIRST_JOIN = [
    (at(0), 19, M1, member()),
    (at(0), 23, GROUP, TOPOLOGY),
    (at(0), 17, GROUP, metadata()),
    (at(0), 22, M1, current(1, active=None)),
    (at(3), 21, M1, TARGET),
    (at(3), 20, GROUP, {"assignment_epoch": 2, "assignment_timestamp": 0}),
    (at(4), 22, M1, current(2, active=[0, 1])),
]


def log(*steps: tuple[Any, int, Any, Any], first: int = 0) -> list[LogRecord]:
    return [LogRecord(first + i, when, kind, key, value) for i, (when, kind, key, value) in enumerate(steps)]


def fold(records: list[LogRecord], stored: Group | None = None) -> Fold:
    result = Fold.of("g", 3, stored)
    result.add(records)
    result.close()
    return result
