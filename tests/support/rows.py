"""Rows of the tables for tests: by default, values are those of a group without alerts."""

from collections.abc import Iterable, Mapping
from typing import Any

Row = dict[str, Any]


def group_row(group_id: str, state: str = "Stable", **columns: Any) -> Row:
    """Return a row of `groups`; counts and epochs follow from the other columns. Its times are null."""
    epoch = columns.get("group_epoch", 7)
    return {
        "cluster": "default",
        "group_id": group_id,
        "group_type": "streams",
        "state": state,
        "group_epoch": epoch,
        "assignment_epoch": epoch,
        "topology_epoch": 0,
        "member_count": len(columns.get("members", ())),
        "stale_member_count": 0,
        "source_partition": 0,
        "members": [],
        "assignments": [],
        "subtopologies": [],
        **columns,
    }


def member_row(member_id: str, **columns: Any) -> Row:
    """Return an entry of `members`: a dynamic member that has settled at epoch 7."""
    return {
        "member_id": member_id,
        "member_epoch": 7,
        "previous_member_epoch": None,
        "member_state": "STABLE",
        "instance_id": None,
        "rack_id": None,
        "client_id": f"client-{member_id}",
        "client_host": "/10.0.0.1",
        "process_id": f"process-{member_id}",
        "topology_epoch": 0,
        "stale_topology": False,
        "user_endpoint": None,
        "client_tags": [],
        "rebalance_timeout_ms": 300_000,
        **columns,
    }


def task_row(member_id: str, task_id: str, role: str = "active", **flags: Any) -> Row:
    """Return an entry of `assignments`; `flags` are `current`, `target` and `pending_revocation`, by default False."""
    subtopology_id, _, partition = task_id.rpartition("_")
    return {
        "member_id": member_id,
        "role": role,
        "subtopology_id": subtopology_id,
        "partition": int(partition),
        "current": False,
        "target": False,
        "pending_revocation": False,
        **flags,
    }


def subtopology_row(
    subtopology_id: str = "0",
    *,
    changelogs: Mapping[str, int] | Iterable[str] = (),
    repartition: Iterable[str] = (),
    **columns: Any,
) -> Row:
    """Return an entry of `subtopologies`; a changelog without a partition count gets that of the source topics."""
    partitions = changelogs if isinstance(changelogs, Mapping) else dict.fromkeys(changelogs, 0)
    return {
        "topology_epoch": 0,
        "subtopology_id": subtopology_id,
        "source_topics": [],
        "source_topic_regex": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [_internal_topic(name) for name in repartition],
        "state_changelog_topics": [_internal_topic(name, number) for name, number in partitions.items()],
        "copartition_groups": [],
        **columns,
    }


def _internal_topic(name: str, partitions: int = 0) -> Row:
    return {"name": name, "partitions": partitions, "replication_factor": 3, "topic_configs": []}
