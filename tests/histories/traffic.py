"""Records that are produced and processed: committed offsets and the ends of logs, as the job's passes see them.

Time goes in steps of one pass over the lag. In each a running instance processes the tasks that its members have,
unless it hangs or the task restores its state, and commits those with progress, as Kafka Streams does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming_app.lag.ends import NO_ENDS, LogEnds, Tail
from streaming_app.lag.model import Commit
from tests.histories.coordinator import Group

PASS = 30.0  # seconds, the default of `lag.interval`
TopicPartition = tuple[str, int]


class Seen(NamedTuple):
    """What a pass at a time sees of a group: commits and ends by topic and partition."""

    at: float
    group_id: str
    commits: dict[TopicPartition, Commit]
    ends: dict[TopicPartition, LogEnds]
    commits_until: float | None = None
    """Up to when the commits are known; None: up to now."""
    left_over: frozenset[TopicPartition] = frozenset()
    """The partitions that it does not read any more."""


@dataclass
class Partition:
    """The log of one partition, and what its group does with it."""

    end: float = 0.0
    start: float = 0.0
    position: float = 0.0
    committed: int | None = None
    committed_at: float = 0.0
    instance: str | None = None
    """The one that last had the task."""
    restores_until: float = 0.0
    is_stuck: bool = False
    trailing: int = 0
    """Offsets after the last record: markers of transactions, and records of those that were aborted."""
    trailing_is_denied: bool = False
    """The job may not read the topic, so it cannot know what they are."""

    def tail(self) -> Tail | None:
        """Return what the job reads after the last record, as `job.lag_ends` does of an end that rests."""
        if not self.trailing:
            return None
        end = int(self.end) + self.trailing
        return Tail(end, is_denied=True) if self.trailing_is_denied else Tail(end, -1, int(self.end), end)


@dataclass
class Traffic:
    """What one group reads. Rates are records a second and partition."""

    group: Group
    rate: float
    """Produced."""
    capacity: float
    """Processed, at most."""
    commit_interval: float
    is_transactional: bool
    """The records are written in transactions, each of which ends with a marker."""
    restore_seconds: float
    """How long an instance restores the state of a task that another one had before."""
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    left_over: dict[TopicPartition, Partition] = field(default_factory=dict)
    without_leader: dict[int, float] = field(default_factory=dict)
    """Until when a partition of each topic has no leader: nothing is written or read, and its end is not known."""
    hung: set[str] = field(default_factory=set)
    """Instances whose processing hangs while they send heartbeats."""
    log_of: Traffic | None = None
    """Another group that reads the same logs, which are produced there."""
    begins: str = "earliest"
    """Where it begins: `earliest`, `latest`, or `committed`, where the other group is."""
    keeps_seconds: float | None = None
    """Retention of the topics; None: nothing is deleted."""
    empty_since: float | None = None
    """When the brokers' clean-up first found the group without members."""
    stepped_at: float | None = None
    generation: int = 0
    """How often the topics were deleted and created again."""
    recreated_at: float = -1.0

    def step(self, now: float, instances: dict[int, str]) -> None:
        """Go on to `now`; `instances` has the one that runs the task of each partition."""
        seconds, self.stepped_at = PASS if self.stepped_at is None else now - self.stepped_at, now
        for topic in self.group.sources:
            for number in range(self.group.topics.get(topic, 0)):
                if (topic, number) not in self.partitions:
                    self.partitions[topic, number] = self._first(topic, number, now)
        for (topic, number), partition in self.partitions.items():
            if now < self.without_leader.get(number, 0.0):
                continue
            if self.log_of is None:
                partition.end += self.rate * seconds
                if self.keeps_seconds is not None:
                    partition.start = max(partition.start, partition.end - self.rate * self.keeps_seconds)
            elif log := self.log_of.partitions.get((topic, number)):
                partition.end, partition.start = log.end, log.start
            self._process(partition, instances.get(number), now, seconds)
        for partition in self.left_over.values():
            partition.end += seconds

    def close(self, instance: str, now: float) -> None:
        """Let an instance commit what it has processed, as it does before it leaves in an orderly way."""
        for one in self.partitions.values():
            processes = one.instance == instance and instance not in self.hung and now >= one.restores_until
            if processes and not one.is_stuck and int(one.position) != one.committed:
                one.committed, one.committed_at = int(one.position), now

    def seen(self, now: float, epoch: float) -> Seen:
        """Return what a pass sees; `epoch` is when time began, by the clock of the group's broker."""
        topic_id, marker = f"id-{self.generation}", int(self.is_transactional)
        commits, ends = {}, {}
        known = {**self.partitions, **self.left_over} if self.group.exists else {}
        for key, one in known.items():
            at = epoch + one.committed_at
            commits[key] = Commit(None) if one.committed is None else Commit(one.committed, self._id(one), 0, at)
            end = int(one.end) + (marker if one.end else 0) + one.trailing
            is_away = now < self.without_leader.get(key[1], 0.0)
            ends[key] = NO_ENDS if is_away else LogEnds(end, int(one.start), end, topic_id, tail=one.tail())
        return Seen(now, self.group.group_id, commits, ends, left_over=frozenset(self.left_over))

    def _first(self, topic: str, number: int, now: float) -> Partition:
        log = self.log_of.partitions.get((topic, number)) if self.log_of else None
        if log is None:
            return Partition()
        committed = log.committed if self.begins == "committed" else None
        position = {"earliest": 0.0, "latest": log.end, "committed": float(log.committed or 0)}[self.begins]
        return Partition(position=position, committed=committed, committed_at=now)

    def of(self, numbers: Iterable[int] | None) -> list[Partition]:
        """Return the partitions with these numbers of every topic; None: all."""
        wanted = None if numbers is None else set(numbers)
        return [one for (_, number), one in self.partitions.items() if wanted is None or number in wanted]

    def _id(self, partition: Partition) -> str:
        is_old = partition.committed_at < self.recreated_at
        return f"id-{self.generation - 1}" if is_old else f"id-{self.generation}"

    def forget(self) -> None:
        """Let the committed offsets be gone: they have expired, or the group was deleted."""
        for one in (*self.partitions.values(), *self.left_over.values()):
            one.committed, one.instance, one.position = None, None, one.start

    def recreate(self, now: float) -> None:
        self.generation, self.recreated_at = self.generation + 1, now
        for one in self.partitions.values():
            one.end = one.start = one.position = 0.0

    def _process(self, partition: Partition, instance: str | None, now: float, seconds: float) -> None:
        if instance is not None and instance != partition.instance:
            partition.restores_until = now + self.restore_seconds if partition.instance else now
            partition.instance = instance
        is_still = instance is None or instance in self.hung or partition.is_stuck
        if is_still or now < partition.restores_until:
            return
        partition.position = min(partition.end, max(partition.position, partition.start) + self.capacity * seconds)
        is_due = now - partition.committed_at >= self.commit_interval
        if is_due and int(partition.position) != partition.committed:
            partition.committed, partition.committed_at = int(partition.position), now
