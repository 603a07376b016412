"""A group of Kafka Streams and its members as their records describe them, and the input and output of a fold.

Only data: `replay` has the effect of each record on a group.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, TypedDict

from streaming_app.groups.state_rules import DESCRIPTION_STATUS_RULES, NONE, STABLE_MEMBER, STATE_RULES

STREAMS, CLASSIC = "streams", "classic"
"""The protocols of Kafka Streams: KIP-1071, and the one of consumers with an assignor of its own."""
ASSIGNMENT_ERRORS = {
    1: "INCOMPLETE_SOURCE_TOPIC_METADATA: source topics are missing",
    3: "ASSIGNMENT_ERROR: the assignor failed",
    4: "SHUTDOWN_REQUESTED: a member asked all of them to shut down",
}
"""With the classic protocol: the codes that the leader may tell all members instead of tasks (`AssignorError`, Kafka
4.4), without 2, which asks them to join again."""
LASTING_ERRORS = frozenset({1, 3})
"""Those that do not end by themselves."""
ROLES = ACTIVE, STANDBY, WARMUP = ("active", "standby", "warmup")
"""The roles in which a member can have a task."""
STORED_AT = "description_stored_at"
READ_AGAIN = -2
"""The highest `last_offset` of an obsolete row, whose group is read again from the beginning. Lower values encode the
offset that the row had before, see `read_again.marked`."""
SINCE = {"state": "state_since", "description_status": "description_since"}
"""Derived field of `Group` -> the field with the time since which it has its value."""
_RULES = {"state": STATE_RULES, "description_status": DESCRIPTION_STATUS_RULES}
LEFT_EPOCH = -1  # member epoch after the tombstone of record 22

TaskId = tuple[str, str, int]  # role, subtopology id, partition
Tasks = dict[TaskId, int]  # task -> assignment epoch; 0 where the record has none


@dataclass(slots=True)
class Member:
    """A member, from records 19 (its description) and 22 (its epoch and tasks). None: that record was not read.

    With the classic protocol a member is a thread, from record 2: see `classic`.
    """

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
    session_timeout_ms: int | None = None
    """With the classic protocol: when the coordinator removes it, after its last heartbeat."""
    updated_at: datetime | None = None
    client_version: int | None = None
    """With the classic protocol: the newest version of SubscriptionInfo that it supports, see `classic.RELEASES`."""
    assignment_error: int | None = None
    """With the classic protocol: the error code in its assignment; None for none."""
    current: Tasks = field(default_factory=dict)
    pending_revocation: Tasks = field(default_factory=dict)
    task_sums: dict[tuple[str, int], int] = field(default_factory=dict)
    """With the classic protocol: task -> the sum of its offsets in the changelogs, as it reported when it joined."""

    @property
    def state_and_epoch(self) -> tuple[str | None, int | None]:
        """The member's state and epoch, which together decide whether the group is Stable."""
        return self.member_state, self.member_epoch


_VALUES = attrgetter(*(one.name for one in fields(Member)))


@dataclass(slots=True)
class Group:
    """A group: values of its records, and what the fold derives from them. A deleted group keeps its epochs."""

    group_id: str
    source_partition: int = 0
    last_offset: int = -1
    log_epoch: int | None = None
    """The leader epoch of the record at `last_offset`. The writer of the row sets it, as records do not contain it."""
    group_type: str = STREAMS
    protocol: str = STREAMS
    """The protocol of the members in the row: a deleted streams group keeps it if a classic group takes over the id."""
    group_epoch: int | None = None
    metadata_at: datetime | None = None
    """When the newest record 17 was written."""
    assignment_epoch: int | None = None
    assigned_at: datetime | None = None
    metadata_hash: int | None = None
    topology_epoch: int | None = None
    validated_topology_epoch: int = NONE
    stored_description_epoch: int = NONE
    failed_description_epoch: int = NONE
    assignment_configs: dict[str, str] = field(default_factory=dict)
    subtopologies: list[dict[str, Any]] = field(default_factory=list)
    topology_epochs: dict[int, dict[str, datetime | None]] = field(default_factory=dict)
    """Topology epoch -> the time of each step that it has reached (`first_seen_at`, and the keys of `replay.REACHED`).
    None: the log does not prove the time."""
    readiness_recorded: bool = False
    undecoded_members: int | None = None
    """With the classic protocol: the number of members whose bytes are not those of Kafka Streams, at least in part."""
    tasks_moving: bool | None = None
    """With the classic protocol: tasks change hands, and another rebalance follows at once."""
    probing_rebalance_at: datetime | None = None
    """With the classic protocol: when a member is to rejoin because of warm-ups."""
    assignment_error: int | None = None
    """With the classic protocol: the error that the leader told the members instead of tasks. It stays when they have
    left, until others join."""
    client_host: str | None = None
    """The host of its first member, as the broker saw it: a tenant chooses ids, but not this address."""
    is_deleted: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)
    members_in: Counter[tuple[str | None, int | None]] = field(default_factory=Counter)
    """(member state, member epoch) -> number of members, so that `all_members_stable` does not visit every member."""

    first_seen_at: datetime | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None
    state: str | None = None
    """After the last operation, like `description_status`."""
    state_since: datetime | None = None
    description_status: str | None = None
    description_since: datetime | None = None
    not_ready_reason: str | None = None
    missing_topics: list[str] | None = None
    """The source topics that were missing when the group was last NotReady; None once it is ready."""
    causes_since_assignment: str | None = None
    replacing: str | None = None
    """The members that left recently, see `events`."""
    topology_hash: str | None = None
    """The hash of the newest topology under this group id. It stays when the group is deleted and created again."""
    unsolicited_pushes: int = 0
    last_unsolicited_push_at: datetime | None = None
    last_changes: list[LastChange] = field(default_factory=list)
    known_before: str | None = None
    """While the group is read again: facts from its old row, as JSON, see `read_again`."""
    set_aside_at: datetime | None = None
    """When the group was set aside: the time of its newest record then. Its records are not folded until a release."""
    set_aside_reason: str | None = None
    set_aside_release: str | None = None
    """The version of this project that set it aside. Another version reads the group again."""

    @property
    def is_known(self) -> bool:
        """Whether a record of the group has been read and the group is not deleted."""
        return self.last_offset >= 0 and not self.is_deleted

    @property
    def is_classic(self) -> bool:
        """Whether it is of Kafka Streams with the classic protocol."""
        return self.protocol == CLASSIC

    @property
    def assignment_epoch_or_first(self) -> int:
        """The assignment epoch, or without a record 20 the first one of a group: 1, or 0 in Kafka 4.1 and 4.2.

        The state is the same in both cases, because the group epoch of the first record 17 is one higher.
        """
        if self.assignment_epoch is not None:
            return self.assignment_epoch
        return 1 if (self.group_epoch or 0) > 1 else 0

    @property
    def reported_assignment_epoch(self) -> int | None:
        """The assignment epoch as StreamsGroupDescribe reports it; None until a record contains one."""
        is_known = self.group_epoch is None or self.is_classic
        return self.assignment_epoch if is_known else self.assignment_epoch_or_first

    @property
    def all_members_stable(self) -> bool:
        """Whether every member is STABLE at the assignment epoch."""
        return self.members_in[STABLE_MEMBER, self.assignment_epoch_or_first] == len(self.members)

    def derive(self) -> dict[str, str]:
        """Return `state` (StreamsGroupDescribe's names, and Dead and Unknown) and `description_status`."""
        return {name: next(value for value, matches in rules if matches(self)) for name, rules in _RULES.items()}

    def get_or_add_member(self, member_id: str, at: datetime | None) -> Member:
        """Return the member with this id. An unknown id is added as a member that joined at `at`."""
        if member_id not in self.members:
            self.add_member(Member(member_id, joined_at=at))
        return self.members[member_id]

    def add_member(self, member: Member) -> None:
        """Add a member that is not in the group yet."""
        self.members[member.member_id] = member
        self.members_in[member.state_and_epoch] += 1

    def remove_member(self, member_id: str) -> None:
        """Remove a member; an unknown one is ignored."""
        if member := self.members.pop(member_id, None):
            self.members_in[member.state_and_epoch] -= 1

    def set_member_state(self, member: Member, state: str | None, epoch: int | None) -> None:
        """Set a member's state and epoch."""
        self.members_in[member.state_and_epoch] -= 1
        member.member_state, member.member_epoch = state, epoch
        self.members_in[member.state_and_epoch] += 1

    def copy(self) -> Group:
        """Return a copy that later changes of this group do not affect. Collections of a `Member` are never mutated."""
        return replace(
            self,
            members={name: Member(*_VALUES(member)) for name, member in self.members.items()},
            targets=dict(self.targets),
            topology_epochs={epoch: dict(times) for epoch, times in self.topology_epochs.items()},
            members_in=Counter(self.members_in),
            last_changes=list(self.last_changes),
        )

    def create_again(self, at: datetime | None) -> Group:
        """Return the new group that has the same id, when its first known record 17 is read at `at`.

        Compaction may have removed older records 17 of the new group, but not its other records. A coordinator does
        not delete a group with members, so everything written after the last known record 17 belongs to the new group.
        Members with records of this time joined in this operation.
        """
        group = self.created(at)
        group.topology_epoch, group.subtopologies = self.topology_epoch, self.subtopologies
        for member in self.members.values():
            # By its time, as in the row: a batch may have ended within the operation.
            if at is not None and member.updated_at == at:
                own = replace(member, member_epoch=None, previous_member_epoch=None, member_state=None)
                own.current, own.pending_revocation = {}, {}
                group.add_member(own)
            elif self._is_newer(member.joined_at):
                group.add_member(member)
                if target := self.targets.get(member.member_id):
                    group.targets[member.member_id] = target
        group.client_host = next((one.client_host for one in group.members.values() if one.client_host), None)
        if self._is_newer(self.assigned_at):
            group.assignment_epoch, group.assigned_at = self.assignment_epoch, self.assigned_at
        return group

    def created(self, at: datetime | None, protocol: str = STREAMS) -> Group:
        """Return a new group with this id and no values of records. Hashes of two protocols cannot be compared."""
        kept = ["source_partition", "last_offset", "updated_at", "known_before"]
        kept += ["topology_hash"] if protocol == self.protocol else []
        of_id = {name: getattr(self, name) for name in kept}
        return Group(self.group_id, first_seen_at=at, group_type=protocol, protocol=protocol, **of_id)

    def _is_newer(self, at: datetime | None) -> bool:
        """Return whether a time is after the newest record 17; False if one of the two is unknown."""
        return at is not None and self.metadata_at is not None and at > self.metadata_at

    def was_description_stored(self, topology_epoch: int | None) -> bool:
        """Return whether the description of a topology epoch was ever stored."""
        return topology_epoch is not None and STORED_AT in self.topology_epochs.get(topology_epoch, {})

    def see_topology_epoch(self, epoch: int, at: datetime | None) -> dict[str, datetime | None]:
        """Return the times of a topology epoch; a new epoch was first seen at `at`."""
        return self.topology_epochs.setdefault(epoch, {"first_seen_at": at})


class LogRecord(NamedTuple):
    """A decoded record of a group; `timestamp` is None if the record has none."""

    offset: int
    timestamp: datetime | None
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any] | None
    size: int = 0
    """Bytes of key and value."""


class GroupEvent(NamedTuple):
    """A row of `group_events`, without the columns that are the same for the whole group."""

    at: datetime | None
    kind: str
    member_id: str | None
    old: str | None
    new: str | None
    offset: int
    cause: str | None = None
    """Why there is a new group epoch or assignment, see `groups.events`; None for other kinds."""
    client_host: str | None = None
    """The host of a member that joined or left."""
    instance_id: str | None = None
    """The static instance id of a member that joined or left."""
    protocol: str = STREAMS


class LastChange(TypedDict):
    """A change by the newest operation, with what is needed to retract its event and to emit it again."""

    what: str
    member_id: str | None
    old: str | None
    offset: int
