"""A model of a group of Kafka Streams with the classic protocol: the record 2 that each of its rebalances ends with.

What a rebalance waits for is that of the classes of Kafka 4.4, and of what `tests/long/test_classic_applications.py`
sees of real applications. Members that have gone hold it up until their sessions end; clients do not leave when they
are closed; a task that changes hands is in no member until the rebalance that follows at once; and a static member that
is back in time gets its tasks without one. There are no standbys and no warm-ups.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from tests.groups.classic_records import AT_ONCE, NO_REBALANCE, assignment, generation, subscription, thread
from tests.histories.coordinator import STABLE, Group, Member, Task, balance

RECORD = 2
_AT_END, _MISSING = -2, 1


@dataclass
class ClassicGroup(Group):
    """A group with the classic protocol. `epoch` counts causes of rebalances; `assignment_epoch` is the last served."""

    generation: int = 0
    gone: set[str] = field(default_factory=set)
    """The members that do not answer any more, and whose sessions have not ended."""
    entered_ms: int | None = None
    """When the generation began."""

    leaves_on_close = False

    @property
    def required_topics(self) -> tuple[str, ...]:
        """The source topics: the leader creates the internal ones."""
        return self.sources

    def join(self, member: Member, now: float) -> None:
        if not self.members:
            self.first_join_at = now
        self.exists, self.members[member.member_id] = True, member
        self.epoch += 1

    def replace(self, old: Member, new: Member) -> None:
        self.members = {new.member_id if one == old.member_id else one: it for one, it in self.members.items()}
        self.members[new.member_id] = new
        new.tasks, new.epoch, new.state = dict(old.tasks), old.epoch, STABLE
        self.gone.discard(old.member_id)
        if self.epoch == self.assignment_epoch:
            self._write(entered_ms=self.entered_ms)

    def heartbeat(self, member: Member, now: float, *, revoked: bool = False) -> None:  # noqa: ARG002 - as of streams
        is_other = (self.metadata_hash, self.last_configs) != (self._hash(), self.configs)
        if is_other and self.epoch == self.assignment_epoch:
            self.epoch += 1
        self._rebalance(now)

    def end_initial_delay(self, now: float) -> None:
        self._rebalance(now)

    def can_assign(self, now: float) -> bool:
        return not self.gone and super().can_assign(now)

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self.gone.discard(member.member_id)
        self.epoch += 1
        if not self.members:
            self.assignment_epoch, self.generation = self.epoch, self.generation + 1
            self._write()

    def misses(self, member: Member) -> None:
        self.gone.add(member.member_id)

    def leave_temporarily(self, member: Member) -> None:
        self.misses(member)

    def delete(self, *, converted: bool = False) -> None:
        self.write(self, [(RECORD, {}, {} if converted else None)])
        self.reset()

    def _rebalance(self, now: float) -> None:
        if not self.can_assign(now):
            return
        self.assignment_epoch, self.assigned_at, self.generation = self.epoch, now, self.generation + 1
        self.metadata_hash, self.last_configs = self._hash(), dict(self.configs)
        had = {member_id: set(one.tasks) for member_id, one in self.members.items()}
        targets, owners = balance(self.tasks(), list(self.members), had), dict[Task, str]()
        for member_id, tasks in had.items():
            owners |= dict.fromkeys(tasks, member_id)
        for member_id, one in self.members.items():
            free = {task for task in targets[member_id] if owners.get(task, member_id) == member_id}
            one.tasks, one.epoch, one.state = dict.fromkeys(sorted(free), 0), self.assignment_epoch, STABLE
        if any(targets[member_id] != one.tasks.keys() for member_id, one in self.members.items()):
            self.epoch += 1  # the rebalance that follows at once
        self._write(had)

    def _write(self, had: dict[str, set[Task]] | None = None, entered_ms: int | None = None) -> None:
        """Write the record of the generation. `had` are the tasks of the members before it."""
        members = [self._thread(one, (had or {}).get(one.member_id, {*one.tasks})) for one in self.members.values()]
        self.write(
            self, [(RECORD, {}, {**generation(self.generation, *members), "current_state_timestamp": entered_ms})]
        )

    def _thread(self, member: Member, had: set[Task]) -> dict[str, Any]:
        sums = {(0, partition): _AT_END for _, partition in had} if self.changelogs else {}
        told = subscription(uuid5(NAMESPACE_OID, member.process.rpartition("-")[0]), sums)
        follows = AT_ONCE if self.epoch > self.assignment_epoch else NO_REBALANCE
        assigned = assignment(
            [(0, partition) for _, partition in member.tasks],
            next_rebalance=follows,
            error=0 if self.ready else _MISSING,
            sources={0: self.sources},
        )
        one = thread(member.member_id, told, assigned, instance=member.instance_id, client_host=f"/{member.host}")
        return {**one, "client_id": member.client_id, "rebalance_timeout": int(member.rebalance_timeout * 1000)}
