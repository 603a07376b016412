"""One streams group as its records tell it, and what each record does to it. No order of events, no history: see fold.

A record may arrive before the records it builds on (compaction keeps them in any order), so every value creates the
group or the member it names, and a tombstone for something unknown does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from streaming_app.core.states import MEMBER_STATES, NONE, STABLE_MEMBER, description_status, state_of

ROLES = ("active", "standby", "warmup")
LEFT_EPOCH = -1  # member epoch after the tombstone of record 22

TaskId = tuple[str, str, int]  # role, subtopology id, partition
Tasks = dict[TaskId, int]  # to the assignment epoch; 0 where the record does not give one


@dataclass(slots=True)
class Member:
    """A member: records 19 (its description) and 22 (its epoch and tasks); None where that record is still to come."""

    member_id: str
    joined_at: datetime | None = None
    member_epoch: int | None = None
    previous_member_epoch: int | None = None
    member_state: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    process_id: str | None = None
    topology_epoch: int | None = None
    user_endpoint: str | None = None
    client_tags: dict[str, str] = field(default_factory=dict)
    rebalance_timeout_ms: int | None = None
    current: Tasks = field(default_factory=dict)
    pending_revocation: Tasks = field(default_factory=dict)

    @property
    def readiness(self) -> tuple[str | None, int | None]:
        """What decides whether the group has settled."""
        return self.member_state, self.member_epoch

    @property
    def is_active(self) -> bool:
        """The member heartbeats: it neither left nor is a static member that is away."""
        return self.member_epoch is None or self.member_epoch >= 0


@dataclass(slots=True)
class Group:
    """A streams group. `deleted` groups keep what was last known of their epochs."""

    group_id: str
    group_type: str = "streams"
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    assigned_at: datetime | None = None
    metadata_hash: int | None = None
    topology_epoch: int | None = None
    validated_topology_epoch: int = NONE
    stored_description_epoch: int = NONE
    failed_description_epoch: int = NONE
    assignment_configs: dict[str, str] = field(default_factory=dict)
    subtopologies: list[dict[str, Any]] = field(default_factory=list)
    topology_epochs: dict[int, dict[str, Any]] = field(default_factory=dict)
    readiness_recorded: bool = False
    deleted: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)
    _readiness: Counter[tuple[str | None, int | None]] = field(default_factory=Counter)

    @property
    def has_members(self) -> bool:
        """Any member, one that is away included, as the broker counts."""
        return bool(self.members)

    @property
    def assignment_epoch_or_first(self) -> int:
        """The assignment epoch; without a record 20 that of a new group: 1, in 4.1 and 4.2 it was 0.

        Both give the same state, as the first record 17 is one above the one or the other.
        """
        if self.assignment_epoch is not None:
            return self.assignment_epoch
        return 1 if (self.group_epoch or 0) > 1 else 0

    @property
    def told_assignment_epoch(self) -> int | None:
        """The assignment epoch as Describe says it; None while no record tells of one."""
        return self.assignment_epoch if self.group_epoch is None else self.assignment_epoch_or_first

    @property
    def all_members_stable(self) -> bool:
        """Every member is STABLE at the assignment epoch."""
        return self._readiness[STABLE_MEMBER, self.assignment_epoch_or_first] == len(self.members)

    @property
    def state(self) -> str:
        """The state, see `states`."""
        return state_of(self)

    @property
    def description_status(self) -> str:
        """The status of the topology description, see `states`."""
        return description_status(self.topology_epoch, self.stored_description_epoch, self.failed_description_epoch)

    def member(self, member_id: str, at: datetime | None) -> Member:
        """The member of that id, made if it is not there yet."""
        if member_id not in self.members:
            self.members[member_id] = member = Member(member_id, joined_at=at)
            self._readiness[member.readiness] += 1
        return self.members[member_id]

    def place(self, member: Member) -> None:
        """Take in a member read from storage."""
        self.members[member.member_id] = member
        self._readiness[member.readiness] += 1

    def remove(self, member_id: str) -> None:
        """Forget a member, if it is there."""
        if member := self.members.pop(member_id, None):
            self._readiness[member.readiness] -= 1

    def set_readiness(self, member: Member, state: str | None, epoch: int | None) -> None:
        """Change a member's state and epoch, keeping count."""
        self._readiness[member.readiness] -= 1
        member.member_state, member.member_epoch = state, epoch
        self._readiness[member.readiness] += 1

    def epoch_step(self, epoch: int, step: str, at: datetime | None) -> None:
        """Note when a topology epoch was first seen, validated, stored or failed."""
        if epoch < 0:
            return
        known = self.topology_epochs.setdefault(epoch, {"first_seen_at": at})
        known.setdefault(step, at)


def apply(
    group: Group, record_type: int, key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None
) -> None:
    """Let one record of a type in `RECORD_TYPES` change the group, as the broker's replay would."""
    _APPLY[record_type](group, key, value, at)


def _metadata(group: Group, _key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is None:
        for member_id in list(group.members):
            group.remove(member_id)
        group.targets.clear()
        group.deleted = True
        return
    configs = value["last_assignment_configs"]
    group.group_epoch = value["epoch"]
    group.metadata_hash = value["metadata_hash"]
    group.validated_topology_epoch = value["validated_topology_epoch"]
    group.stored_description_epoch = value["stored_description_topology_epoch"]
    group.failed_description_epoch = value["failed_description_topology_epoch"]
    group.assignment_configs = _pairs(configs or [])
    # A 4.1 broker writes no tagged field at all; later ones name at least the number of standby replicas.
    group.readiness_recorded = bool(configs) or any(
        epoch != NONE
        for epoch in (group.validated_topology_epoch, group.stored_description_epoch, group.failed_description_epoch)
    )
    group.epoch_step(group.validated_topology_epoch, "validated_at", at)
    group.epoch_step(group.stored_description_epoch, "description_stored_at", at)
    group.epoch_step(group.failed_description_epoch, "description_failed_at", at)


def _member(group: Group, key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is None:
        group.remove(key["member_id"])
        return
    member = group.member(key["member_id"], at)
    for name in (
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "rebalance_timeout_ms",
        "topology_epoch",
        "process_id",
    ):
        setattr(member, name, value[name])
    endpoint = value["user_endpoint"]
    member.user_endpoint = endpoint and f"{endpoint['host']}:{endpoint['port']}"
    member.client_tags = _pairs(value["client_tags"])


def _assignment_epoch(group: Group, _key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    group.assignment_epoch = value["assignment_epoch"] if value else None
    assigned_ms = value["assignment_timestamp"] if value else 0  # since 4.3; 0 once the last member left
    group.assigned_at = (
        datetime.fromtimestamp(assigned_ms / 1000, timezone.utc) if assigned_ms else at if value else None
    )


def _target(group: Group, key: dict[str, Any], value: dict[str, Any] | None, _at: datetime | None) -> None:
    if value is None:
        group.targets.pop(key["member_id"], None)
    else:
        group.targets[key["member_id"]] = _tasks(value, "{}_tasks")


def _current(group: Group, key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is not None:
        member = group.member(key["member_id"], at)
        group.set_readiness(member, MEMBER_STATES.get(value["state"], "UNKNOWN"), value["member_epoch"])
        member.previous_member_epoch = value["previous_member_epoch"]
        member.current = _tasks(value, "{}_tasks")
        member.pending_revocation = _tasks(value, "{}_tasks_pending_revocation")
    elif known := group.members.get(key["member_id"]):
        group.set_readiness(known, known.member_state, LEFT_EPOCH)
        known.previous_member_epoch = LEFT_EPOCH
        known.current, known.pending_revocation = {}, {}


def _topology(group: Group, _key: dict[str, Any], value: dict[str, Any] | None, at: datetime | None) -> None:
    if value is None:
        group.topology_epoch, group.subtopologies = None, []
        return
    group.topology_epoch = value["epoch"]
    group.subtopologies = [_subtopology(value["epoch"], subtopology) for subtopology in value["subtopologies"]]
    group.epoch_step(value["epoch"], "first_seen_at", at)


_APPLY: dict[int, Callable[[Group, dict[str, Any], dict[str, Any] | None, datetime | None], None]] = {
    17: _metadata,
    19: _member,
    20: _assignment_epoch,
    21: _target,
    22: _current,
    23: _topology,
}
RECORD_TYPES = frozenset(_APPLY)


def _pairs(entries: list[dict[str, str]]) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in entries}


def _tasks(value: dict[str, Any], field_name: str) -> Tasks:
    return {task: epoch for role in ROLES for task, epoch in _role_tasks(role, value[field_name.format(role)], value)}


def _role_tasks(role: str, task_ids: list[dict[str, Any]], value: dict[str, Any]) -> Iterator[tuple[TaskId, int]]:
    for ids in task_ids:
        partitions, epochs = ids["partitions"], ids.get("assignment_epochs")
        if epochs is None or len(epochs) != len(partitions):  # the broker, too, lets the member's epoch stand for each
            epochs = [value.get("member_epoch", 0)] * len(partitions)
        for partition, epoch in zip(partitions, epochs, strict=True):
            yield (role, ids["subtopology_id"], partition), epoch


def _subtopology(epoch: int, value: dict[str, Any]) -> dict[str, Any]:
    return {
        "topology_epoch": epoch,
        "subtopology_id": value["subtopology_id"],
        "source_topics": value["source_topics"],
        "source_topic_regex": value["source_topic_regex"],
        "repartition_sink_topics": value["repartition_sink_topics"],
        "repartition_source_topics": [_internal_topic(topic) for topic in value["repartition_source_topics"]],
        "state_changelog_topics": [_internal_topic(topic) for topic in value["state_changelog_topics"]],
        "copartition_groups": [_names(value, group) for group in value["copartition_groups"]],
    }


def _internal_topic(topic: dict[str, Any]) -> dict[str, Any]:
    return {**topic, "topic_configs": list(_pairs(topic["topic_configs"]).items())}  # pairs: how Arrow spells a map


def _names(subtopology: dict[str, Any], copartition_group: dict[str, list[int]]) -> list[str]:
    """Names for the indexes of a copartition group; an index that names nothing is shown as such, not dropped."""
    named = []
    for kind in ("source_topics", "source_topic_regex", "repartition_source_topics"):
        topics = subtopology[kind]
        for index in copartition_group[kind]:
            topic = topics[index] if 0 <= index < len(topics) else f"{kind}[{index}]"
            named.append(topic if isinstance(topic, str) else topic["name"])
    return named
