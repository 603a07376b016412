"""A model of the group coordinator of broker 4.4.0: what its operations write to `__consumer_offsets`, in its order.

The order of the records was read from the classes of the release and checked with real brokers, see
`test_coordinator.py`. There are no network, no offsets and no standby tasks. What happens when is decided by
`simulation.py`: this module only knows what a heartbeat, a departure or a removal writes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.groups.classic_records import generation, thread

CONFIGS = {"num.standby.replicas": "0"}
NONE, UNCERTAIN = -1, -2
INITIAL_REBALANCE_DELAY, ASSIGNMENT_INTERVAL = 3.0, 1.0  # seconds, the defaults of the release

Write = tuple[int, dict[str, Any], dict[str, Any] | None]
"""Record type, key without the group id, value."""
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
    warmups: dict[Task, int] = field(default_factory=dict)

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
            "warmup_tasks": _by_subtopology(self.warmups),
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


@dataclass
class Group:
    """A streams group of the coordinator. `write` gets the records of each operation; `topics` are those that exist."""

    group_id: str
    sources: tuple[str, ...]
    topics: Mapping[str, int]
    write: Callable[[Group, list[Write]], None]
    changelogs: tuple[str, ...] = ()
    exists: bool = False
    epoch: int = 1
    assignment_epoch: int = 1
    assigned_at: float = 0.0
    first_join_at: float = 0.0
    metadata_hash: int = 0
    validated: int = NONE
    stored: int = NONE
    failed: int = NONE
    configs: dict[str, str] = field(default_factory=lambda: dict(CONFIGS))
    last_configs: dict[str, str] | None = None
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, set[Task]] = field(default_factory=dict)
    owners: dict[Task, str] = field(default_factory=dict)
    """The member that owns each task, or is still to revoke it."""
    leaves_on_close = True
    """Whether a client leaves when it is closed, or its session has to end."""
    left_out: frozenset[int] = frozenset()
    """Partitions whose tasks the assignor gives to nobody."""

    @property
    def required_topics(self) -> tuple[str, ...]:
        """The topics without which the group is NotReady."""
        return (*self.sources, *self.changelogs)

    @property
    def missing(self) -> list[str]:
        """The required topics that do not exist."""
        return [topic for topic in self.required_topics if topic not in self.topics]

    @property
    def unequal(self) -> bool:
        """The source topics, which are joined, have different numbers of partitions."""
        return len({self.topics[topic] for topic in self.sources if topic in self.topics}) > 1

    @property
    def ready(self) -> bool:
        """The topology is valid for the topics that exist."""
        return not self.missing and not self.unequal

    def tasks(self) -> list[Task]:
        """Return all tasks; none while the group is not ready."""
        return [("0", partition) for partition in range(self.topics[self.sources[0]])] if self.ready else []

    def topology(self) -> dict[str, Any]:
        """Return the value of record 23."""
        indexes = list(range(len(self.sources)))
        copartition = {"source_topics": indexes, "source_topic_regex": [], "repartition_source_topics": []}
        internal = {"partitions": 0, "replication_factor": 0, "topic_configs": []}
        return {
            "epoch": 0,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": list(self.sources),
                    "source_topic_regex": [],
                    "repartition_sink_topics": [],
                    "repartition_source_topics": [],
                    "state_changelog_topics": [{"name": name, **internal} for name in self.changelogs],
                    "copartition_groups": [copartition] if len(indexes) > 1 else [],
                }
            ],
        }

    def metadata(self) -> dict[str, Any]:
        """Return the value of record 17."""
        return {
            "epoch": self.epoch,
            "metadata_hash": self.metadata_hash,
            "validated_topology_epoch": self.validated,
            "last_assignment_configs": [{"key": k, "value": v} for k, v in (self.last_configs or {}).items()],
            "stored_description_topology_epoch": self.stored,
            "failed_description_topology_epoch": self.failed,
        }

    # Operations: each writes its records in one batch

    def join(self, member: Member, now: float) -> None:
        """Process the first heartbeat of a member."""
        records: list[Write] = []
        if not self.members:
            self.first_join_at = now
        records.append((19, {"member_id": member.member_id}, member.metadata()))
        if not self.exists:
            self.exists = True
            records.append((23, {}, self.topology()))
        self.members[member.member_id] = member
        self._raise_epoch(records)
        self._assign(records, now)
        self._reconcile(member, records, is_joining=True)
        self.write(self, records)

    def replace(self, old: Member, new: Member) -> None:
        """Process the first heartbeat of a static member that takes the place of another one."""
        records = self._remove_records(old)
        del self.members[old.member_id]
        self.members[new.member_id] = new
        process, new.process = new.process, old.process
        new.tasks, new.epoch, new.previous_epoch, new.state = dict.fromkeys(old.tasks, 0), JOINING_EPOCH, 0, STABLE
        self.targets[new.member_id] = self.targets.pop(old.member_id, set())
        for task in [*old.tasks, *old.revoking]:
            self.owners[task] = new.member_id
        key = {"member_id": new.member_id}
        records.append((19, key, new.metadata()))
        records.append((21, key, target_value(self.targets[new.member_id])))
        records.append((22, key, new.assignment()))
        if process != new.process:  # only then the group epoch rises, and no new assignment is made
            new.process = process
            records.append((19, key, new.metadata()))
            is_assigned = self.assignment_epoch == self.epoch
            self._raise_epoch(records)
            if is_assigned:
                self.assignment_epoch = self.epoch
                records.append((20, {}, self._assignment_metadata()))
        self._reconcile(new, records)
        self.write(self, records)

    def heartbeat(self, member: Member, now: float, *, revoked: bool = False) -> None:
        """Process a heartbeat; `revoked`: the member reports that it no longer owns the tasks that it is to revoke."""
        records: list[Write] = []
        if (
            self.metadata_hash != self._hash()
            or self.validated != self._validated()
            or self.last_configs != self.configs
        ):
            self._raise_epoch(records)
        self._assign(records, now)
        if revoked:
            for task in member.revoking:
                self.owners.pop(task, None)
            member.revoking = {}
        self._reconcile(member, records)
        if records:
            self.write(self, records)

    def end_initial_delay(self, now: float) -> None:
        """Make the first assignment when the initial rebalance delay is over; members learn it by their heartbeats."""
        records: list[Write] = []
        self._assign(records, now)
        if records:
            self.write(self, records)

    def remove(self, member: Member) -> None:
        """Remove a member that left, or whose session or rebalance timeout expired."""
        records = self._remove_records(member)
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        self.owners = {task: owner for task, owner in self.owners.items() if owner != member.member_id}
        self.epoch += 1
        records.append((17, {}, self.metadata()))
        if not self.members:
            self.assignment_epoch = self.epoch
            records.append((20, {}, {"assignment_epoch": self.epoch, "assignment_timestamp": 0}))
        self.write(self, records)

    def leave_temporarily(self, member: Member) -> None:
        """Process the last heartbeat of a static member that is expected back."""
        member.epoch = AWAY_EPOCH
        member.tasks = dict.fromkeys(member.tasks, 0)
        self.write(self, [(22, {"member_id": member.member_id}, member.assignment())])

    def misses(self, member: Member) -> None:
        """Note that a member has gone without leaving."""

    def push_description(self, result: str) -> None:
        """Process a pushed description; the plugin's `result` is `stored`, `rejected` or `failing`."""
        if self.stored != UNCERTAIN:
            self.stored = UNCERTAIN
            self.write(self, [(17, {}, self.metadata())])
        if result == "failing":
            return
        if result == "stored":
            self.stored = 0
        else:
            self.failed = 0
        self.write(self, [(17, {}, self.metadata())])

    def clean_up_description(self) -> None:
        """Delete the description of an empty group whose offsets have expired."""
        for self.stored in (UNCERTAIN, NONE):
            self.write(self, [(17, {}, self.metadata())])

    def delete(self, *, converted: bool = False) -> None:
        """Delete the empty group; `converted`: a classic consumer takes its id (`classicGroupJoinToClassicGroup`)."""
        order = (20, 17, 23)
        records: list[Write] = [(kind, {}, None) for kind in order]
        if converted:
            records.append((2, {}, {}))
        self.write(self, records)
        if converted:  # its first generation shows that it is of other clients
            self.write(self, [(2, {}, {**generation(1, thread("other")), "protocol": "range"})])
        self.reset()

    def reset(self) -> None:
        """Forget everything, as after the deletion."""
        fresh = type(self)(self.group_id, self.sources, self.topics, self.write, self.changelogs)
        self.__dict__.update(fresh.__dict__)

    # Parts of operations

    def _hash(self) -> int:
        existing = [f"{topic}:{self.topics[topic]}" for topic in self.required_topics if topic in self.topics]
        return zlib.crc32(",".join(existing).encode()) if existing else 0

    def _validated(self) -> int:
        return 0 if self.ready else NONE

    def _raise_epoch(self, records: list[Write]) -> None:
        self.epoch += 1
        self.metadata_hash, self.validated, self.last_configs = self._hash(), self._validated(), dict(self.configs)
        records.append((17, {}, self.metadata()))

    def can_assign(self, now: float) -> bool:
        """Whether a heartbeat now would bring a new assignment."""
        return (
            self.epoch > self.assignment_epoch
            and now >= self.first_join_at + INITIAL_REBALANCE_DELAY
            and now >= self.assigned_at + ASSIGNMENT_INTERVAL
        )

    def _assignment_metadata(self) -> dict[str, Any]:
        return {"assignment_epoch": self.assignment_epoch, "assignment_timestamp": 0}

    def _assign(self, records: list[Write], now: float) -> None:
        if not self.can_assign(now):
            return
        before = self.targets
        tasks = [task for task in self.tasks() if task[1] not in self.left_out]
        self.targets = balance(tasks, list(self.members), before)
        for member_id, tasks in self.targets.items():
            if before.get(member_id) != tasks:
                records.append((21, {"member_id": member_id}, target_value(tasks)))
        self.assignment_epoch, self.assigned_at = self.epoch, now
        records.append((20, {}, self._assignment_metadata()))

    def _remove_records(self, member: Member) -> list[Write]:
        return [(kind, {"member_id": member.member_id}, None) for kind in (22, 21, 19)]

    def _reconcile(self, member: Member, records: list[Write], *, is_joining: bool = False) -> None:
        """Move the member towards its target, as `CurrentAssignmentBuilder` does."""
        before = (member.epoch, member.state, member.tasks, member.revoking)
        is_done = member.state == STABLE and member.epoch == self.assignment_epoch
        if member.epoch != AWAY_EPOCH and not member.revoking and not is_done:
            self._next_assignment(member)
        if is_joining or before != (member.epoch, member.state, member.tasks, member.revoking):
            records.append((22, {"member_id": member.member_id}, member.assignment()))

    def _next_assignment(self, member: Member) -> None:
        target = self.targets.get(member.member_id, set())
        kept = {task: epoch for task, epoch in member.tasks.items() if task in target}
        revoking = {task: epoch for task, epoch in member.tasks.items() if task not in target}
        if revoking:
            member.tasks, member.revoking, member.state = kept, revoking, UNREVOKED
            member.previous_epoch = member.epoch
            return
        new = target - kept.keys()
        free = {task for task in new if task not in self.owners}
        for task in free:
            self.owners[task] = member.member_id
        member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        member.tasks = {**kept, **dict.fromkeys(sorted(free), self.assignment_epoch)}
        member.state = STABLE if free == new else UNRELEASED
