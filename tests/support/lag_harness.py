"""A cluster in miniature for the lag tracker: one group, some partitions, a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_app.lag.model import NO_TASKS, Commit, GroupTasks, LagRow, LogEnds, Owner, ReadUntil, Tail
from streaming_app.lag.tracker import LagTracker

GROUP, TOPIC, TOPIC_ID = "payments", "orders", "b5Wb5ZLaQh2q0mFYH7Yb2A"
STEP = 30.0
ALICE, BOB = Owner("alice", "process-1", "10.0.0.1"), Owner("bob", "process-2", "10.0.0.2")
TASKS = GroupTasks(subtopology_of={TOPIC: "0"}, owners={("0", 0): ALICE}, has_members=True)


@dataclass
class MiniCluster:
    """One partition by default; `step` is a pass, 30 s after the one before."""

    tracker: LagTracker = field(default_factory=LagTracker)
    now: float = 1_000_000.0
    tasks: GroupTasks = NO_TASKS
    end: int | None = 0
    start: int | None = 0
    start_at: float | None = None
    """When the leader was asked for the start; None: now."""
    topic_id: str | None = TOPIC_ID
    commit: Commit | None = None
    commits_until: float | None = None
    """Until when the commits are known; None: until now."""
    members_until: float | None = None
    tail: Tail | None = None

    def produce(self, count: int) -> None:
        assert self.end is not None
        self.end += count

    def commit_offset(self, offset: int, *, at: float | None = None, topic_id: str | None = TOPIC_ID) -> None:
        self.commit = Commit(offset, topic_id, 0, self.now if at is None else at)

    def step(self, seconds: float = STEP) -> LagRow:
        """Pass `seconds` later; return the row."""
        self.now += seconds
        (row,) = self.rows()
        return row

    def rows(self) -> list[LagRow]:
        commits = {} if self.commit is None else {(GROUP, TOPIC, 0): self.commit}
        start_at = self.start_at or self.now
        times = (self.now, start_at, 1, self.now)
        ends = {(TOPIC, 0): LogEnds(self.end, self.start, self.end, self.topic_id, *times, self.tail)}
        until = ReadUntil(self.commits_until or self.now, self.members_until or self.now)
        return self.tracker.observe(commits, ends, {GROUP: self.tasks}, self.now, {GROUP: until})


def keep_up(cluster: MiniCluster, passes: int = 10, seconds: float = STEP) -> None:
    """Let a consumer read what was produced before the pass before."""
    for _ in range(passes):
        assert cluster.end is not None
        cluster.commit_offset(cluster.end)
        cluster.produce(100)
        cluster.step(seconds)


def fall_behind(cluster: MiniCluster, passes: int = 20) -> LagRow:
    """Let a consumer read half of what is produced, so that it is BEHIND; return the last row."""
    offset = cluster.end or 0
    for _ in range(passes):
        offset += 50
        cluster.commit_offset(offset)
        cluster.produce(100)
        found = cluster.step()
    assert found.status == "BEHIND"
    return found


def row(**fields: Any) -> LagRow:
    """Return a row of partition 0 with a lag of 10, changed by `fields`."""
    values: Mapping[str, Any] = {
        "group_id": GROUP,
        "topic": TOPIC,
        "partition": 0,
        "committed_offset": 90,
        "log_end_offset": 100,
        "lag": 10,
        "lag_seconds": 5.0,
        "lag_seconds_is_lower_bound": False,
        "status": "OK",
        "observed_at": 1_000_000.0,
    }
    return LagRow(**{**dict.fromkeys(LagRow._fields), **values, **fields})
