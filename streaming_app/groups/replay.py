"""The effect of each record on a group, the same as in the broker's `replay` methods. `fold` makes the events.

Compaction may remove the records that a record depends on. So every value creates the group or the member that it
names, and a tombstone for an unknown group or member has no effect.
"""

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from streaming_app.groups.group import LEFT_EPOCH, ROLES, STORED_AT, Group, Tasks
from streaming_app.groups.state_rules import MEMBER_STATES, NONE
from streaming_app.groups.topology import INTERNAL_TOPICS

REACHED = {
    "validated_at": "validated_topology_epoch",
    STORED_AT: "stored_description_epoch",
    "description_failed_at": "failed_description_epoch",
}
"""Step of a topology epoch -> the field of the group with the newest epoch that has reached the step."""
_OF_MEMBER = (
    "instance_id",
    "rack_id",
    "client_id",
    "client_host",
    "process_id",
    "rebalance_timeout_ms",
    "topology_epoch",
)
"""Fields of record 19 that a row has under the same name."""


def _metadata(group: Group, _key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is None:
        for member_id in list(group.members):
            group.remove_member(member_id)
        group.targets.clear()
        group.is_deleted = True
        return
    configs = value["last_assignment_configs"]
    before = {name: getattr(group, name) for name in REACHED.values()}
    group.group_epoch = value["epoch"]
    group.metadata_hash = value["metadata_hash"]
    group.validated_topology_epoch = value["validated_topology_epoch"]
    group.stored_description_epoch = value["stored_description_topology_epoch"]
    group.failed_description_epoch = value["failed_description_topology_epoch"]
    group.assignment_configs = _pairs(configs or [])
    # A 4.1 broker writes no tagged field at all; later releases write at least the number of standby replicas.
    group.readiness_recorded = bool(configs) or any(getattr(group, name) != NONE for name in REACHED.values())
    for step, name in REACHED.items():
        if 0 <= (epoch := getattr(group, name)) != before[name]:  # this record reached the step
            kept = group.see_topology_epoch(epoch, at)
            if at is not None or step == STORED_AT:  # a stored description is noted even if its time is unknown
                kept.setdefault(step, at)


def _member(group: Group, key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is None:
        group.remove_member(key["member_id"])
        return
    group.client_host = group.client_host or value["client_host"]
    member = group.get_or_add_member(key["member_id"], at)
    member.updated_at = at
    for name in _OF_MEMBER:
        setattr(member, name, value[name])
    endpoint = value["user_endpoint"]
    member.user_endpoint = endpoint and f"{endpoint['host']}:{endpoint['port']}"
    member.client_tags = _pairs(value["client_tags"])


def _assignment_epoch(group: Group, _key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    group.assignment_epoch = value["assignment_epoch"] if value else None
    assigned_ms = value["assignment_timestamp"] if value else 0  # since 4.3; 0 after the last member left
    group.assigned_at = (
        datetime.fromtimestamp(assigned_ms / 1000, timezone.utc) if assigned_ms else at if value else None
    )


def _target(group: Group, key: dict[str, Any], value: dict[str, Any] | None, _at: datetime | None) -> None:
    if value is None:
        group.targets.pop(key["member_id"], None)
    else:
        group.targets[key["member_id"]] = _tasks(value)


def _current(group: Group, key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is not None:
        member = group.get_or_add_member(key["member_id"], at)
        group.set_member_state(member, MEMBER_STATES.get(value["state"], "UNKNOWN"), value["member_epoch"])
        member.updated_at = at
        member.previous_member_epoch = value["previous_member_epoch"]
        member.current = _tasks(value)
        member.pending_revocation = _tasks(value, "tasks_pending_revocation")
    elif known := group.members.get(key["member_id"]):
        group.set_member_state(known, known.member_state, LEFT_EPOCH)
        known.updated_at = at
        known.previous_member_epoch = LEFT_EPOCH
        known.current, known.pending_revocation = {}, {}


def _topology(group: Group, _key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is None:
        group.topology_epoch, group.subtopologies = None, []
        return
    group.topology_epoch = value["epoch"]
    group.subtopologies = [_subtopology(value["epoch"], subtopology) for subtopology in value["subtopologies"]]
    group.see_topology_epoch(value["epoch"], at)


APPLY: dict[int, Callable[[Group, dict[str, Any], dict[str, Any] | None, datetime | None], None]] = {
    17: _metadata,
    19: _member,
    20: _assignment_epoch,
    21: _target,
    22: _current,
    23: _topology,
}
"""Record type -> its effect on the group. The value is None for a tombstone, the time if the record has none."""
RECORD_TYPES = frozenset(APPLY)


def _pairs(entries: list[dict[str, str]]) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in entries}


def _tasks(value: dict[str, Any], suffix: str = "tasks") -> Tasks:
    tasks: Tasks = {}
    for role in ROLES:
        for ids in value[f"{role}_{suffix}"]:
            partitions, epochs = ids["partitions"], ids.get("assignment_epochs")
            if epochs is None or len(epochs) != len(partitions):  # then the broker, too, takes the member's epoch
                epochs = [value.get("member_epoch", 0)] * len(partitions)
            tasks.update(((role, ids["subtopology_id"], p), epoch) for p, epoch in zip(partitions, epochs, strict=True))
    return tasks


def _subtopology(epoch: int, value: dict[str, Any]) -> dict[str, Any]:
    internal = {
        column: [{**topic, "topic_configs": list(_pairs(topic["topic_configs"]).items())} for topic in value[column]]
        for column in INTERNAL_TOPICS  # configs are pairs, as in an Arrow map
    }
    groups = [_names(value, group) for group in value["copartition_groups"]]
    return {"topology_epoch": epoch, **value, **internal, "copartition_groups": groups}


def _names(subtopology: dict[str, Any], copartition_group: dict[str, list[int]]) -> list[str]:
    """Return the topics at the indexes of a copartition group. An index out of range becomes `source_topics[9]`."""
    names = []
    for kind in ("source_topics", "source_topic_regex", "repartition_source_topics"):
        topics = subtopology[kind]
        for index in copartition_group[kind]:
            topic = topics[index] if 0 <= index < len(topics) else f"{kind}[{index}]"
            names.append(topic if isinstance(topic, str) else topic["name"])
    return names
