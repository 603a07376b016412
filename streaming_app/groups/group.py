"""One streams group and its members, as their records describe them, its times, and what a fold takes in and says.

Only data; what each record does to a group is in `replay`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from streaming_app.groups.state_rules import DESCRIPTION_STATUS_RULES, NONE, STABLE_MEMBER, STATE_RULES

WARMUP = "warmup"
ROLES = ("active", "standby", WARMUP)
"""In which a member has a task."""
STORED_AT = "description_stored_at"
READ_AGAIN = -2
"""The highest `last_offset` of a row whose group is read again from the beginning: the row counts no longer. Each
offset below it stands for one that the row had, see `read_again.marked`."""
SINCE = {"state": "state_since", "description_status": "description_since"}
"""Field of `Group` that holds what was derived from the records, to the field that says since when it has its value."""
_RULES = {"state": STATE_RULES, "description_status": DESCRIPTION_STATUS_RULES}
LEFT_EPOCH = -1  # member epoch after the tombstone of record 22

TaskId = tuple[str, str, int]  # role, subtopology id, partition
Tasks = dict[TaskId, int]  # task -> assignment epoch; 0 where the record has none


@dataclass(slots=True)
class Member:
    """A member: records 19 (its description) and 22 (its epoch and tasks); None where that record has not been read."""

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
    updated_at: datetime | None = None
    current: Tasks = field(default_factory=dict)
    pending_revocation: Tasks = field(default_factory=dict)

    @property
    def state_and_epoch(self) -> tuple[str | None, int | None]:
        """The member's state and epoch, which together decide whether the group is Stable."""
        return self.member_state, self.member_epoch


_VALUES = attrgetter(*(one.name for one in fields(Member)))


@dataclass(slots=True)
class Group:
    """A streams group: what its records say, and what the fold made of them. A deleted group keeps its last epochs."""

    group_id: str
    source_partition: int = 0
    last_offset: int = -1
    log_epoch: int | None = None
    """Of the record at `last_offset`; set where the row is written, as records do not hold it."""
    group_type: str = "streams"
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
    """When each was first seen, and reached what, see `replay.REACHED`; None where the log does not prove the time."""
    readiness_recorded: bool = False
    client_host: str | None = None
    """Of its first member, as the broker saw it: ids are a tenant's choice, and its address is not."""
    is_deleted: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)
    members_in: Counter[tuple[str | None, int | None]] = field(default_factory=Counter)
    """Number of members by state and epoch, so that `all_members_stable` need not visit every member."""

    first_seen_at: datetime | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None
    state: str | None = None
    """As of the last operation, as `description_status`."""
    state_since: datetime | None = None
    description_status: str | None = None
    description_since: datetime | None = None
    not_ready_reason: str | None = None
    missing_topics: list[str] | None = None
    """The source topics that were missing when the group was last NotReady; None once it is ready."""
    causes_since_assignment: str | None = None
    replacing: str | None = None
    """Members that left lately, see `deployments`."""
    topology_hash: str | None = None
    """Of the newest topology known under this group id; it stays when the group is deleted and created again."""
    unsolicited_pushes: int = 0
    last_unsolicited_push_at: datetime | None = None
    last_changes: list[Change] = field(default_factory=list)
    known_before: str | None = None
    """While the group is read again: what its row said before, see `read_again`."""
    set_aside_at: datetime | None = None
    """When the group was set aside: its newest record then. Its records are not folded until it is released."""
    set_aside_reason: str | None = None
    set_aside_release: str | None = None
    """The release of this project that set it aside; another one tries it again."""

    @property
    def is_known(self) -> bool:
        """Whether a record of the group has been read, and it is not deleted."""
        return self.last_offset >= 0 and not self.is_deleted

    @property
    def assignment_epoch_or_first(self) -> int:
        """The assignment epoch; without a record 20 that of a new group: 1, and 0 in releases 4.1 and 4.2.

        Both give the same state, because the group epoch of the first record 17 is one higher in either case.
        """
        if self.assignment_epoch is not None:
            return self.assignment_epoch
        return 1 if (self.group_epoch or 0) > 1 else 0

    @property
    def reported_assignment_epoch(self) -> int | None:
        """The assignment epoch as StreamsGroupDescribe reports it; None until a record contains one."""
        return self.assignment_epoch if self.group_epoch is None else self.assignment_epoch_or_first

    @property
    def all_members_stable(self) -> bool:
        """Every member is STABLE at the assignment epoch."""
        return self.members_in[STABLE_MEMBER, self.assignment_epoch_or_first] == len(self.members)

    def derive(self) -> dict[str, str]:
        """Return the state as StreamsGroupDescribe names it, or Dead or Unknown, and the status of the description."""
        return {name: next(value for value, matches in rules if matches(self)) for name, rules in _RULES.items()}

    def get_or_add_member(self, member_id: str, at: datetime | None) -> Member:
        """Return the member with this id; an unknown one is added as a member that joined at `at`."""
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
        """Return a copy, which changes no more when this group does: collections of members are replaced as a whole."""
        return replace(
            self,
            members={name: Member(*_VALUES(member)) for name, member in self.members.items()},
            targets=dict(self.targets),
            topology_epochs={epoch: dict(times) for epoch, times in self.topology_epochs.items()},
            members_in=Counter(self.members_in),
            last_changes=list(self.last_changes),
        )

    def create_again(self, at: datetime | None) -> Group:
        """Return the group as a new one, of which record 17 is read now.

        Compaction may have removed older records 17 of the new group, but not its other records, which came before. A
        group that has members is not deleted, so what was written since the last record 17 is of the new group. Members
        with records of this time joined with it.
        """
        group = self.created(at)
        group.topology_epoch, group.subtopologies = self.topology_epoch, self.subtopologies
        for member in self.members.values():
            # As in the row, which knows of its operation also where a batch ended within it.
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

    def created(self, at: datetime | None) -> Group:
        """Return a new group with this id, of which nothing is known yet."""
        kept = ("source_partition", "last_offset", "updated_at", "topology_hash", "known_before")
        return Group(self.group_id, first_seen_at=at, **{name: getattr(self, name) for name in kept})

    def _is_newer(self, at: datetime | None) -> bool:
        """Return whether a time is known to be after the newest record 17."""
        return at is not None and self.metadata_at is not None and at > self.metadata_at

    def was_description_stored(self, topology_epoch: int | None) -> bool:
        """Return whether the description of a topology epoch was stored before, whatever became of it since."""
        return topology_epoch is not None and STORED_AT in self.topology_epochs.get(topology_epoch, {})

    def see_topology_epoch(self, epoch: int, at: datetime | None) -> dict[str, datetime | None]:
        """Keep when a topology epoch was first seen; return what is kept of it."""
        return self.topology_epochs.setdefault(epoch, {"first_seen_at": at})


class LogRecord(NamedTuple):
    """A decoded record of a group; `timestamp` is None where the record has none."""

    offset: int
    timestamp: datetime | None
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any] | None
    size: int = 0
    """Bytes of its key and value."""


class Event(NamedTuple):
    """A row of `group_events`, without the columns that are the same for the whole group."""

    at: datetime | None
    kind: str
    member_id: str | None
    old: str | None
    new: str | None
    offset: int
    cause: str | None = None
    """Of a new group epoch or assignment: why, see `groups.events`."""
    client_host: str | None = None
    """Of a member that joined or left."""
    instance_id: str | None = None
    """The same."""


class Change(NamedTuple):
    """One change made by the newest operation: enough to retract its event and to emit the operation's events again."""

    what: str
    member_id: str | None
    old: str | None
    offset: int
    since: datetime | None = None
    """None: of releases up to 0.2.0."""
