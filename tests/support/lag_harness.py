"""A small cluster for tests of the lag tracker: one group, some partitions, a clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streaming_app.lag.ends import LogEnds, Tail
from streaming_app.lag.model import NO_TASKS, Commit, GroupPass, GroupTasks, LagRow, Owner, ReadUntil
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import NO_WORK, GroupWork, group_work

GROUP, TOPIC, TOPIC_ID = "payments", "orders", "b5Wb5ZLaQh2q0mFYH7Yb2A"
STEP = 30.0
ALICE, BOB = Owner("alice", "process-1", "10.0.0.1"), Owner("bob", "process-2", "10.0.0.2")
TASKS = GroupTasks(subtopology_of={TOPIC: "0"}, owners={("0", 0): ALICE}, has_members=True)


@dataclass
class MiniCluster:
    """One partition by default; `step` makes a pass, by default 30 s after the previous one."""

    tracker: LagTracker = field(default_factory=LagTracker)
    now: float = 1_000_000.0
    tasks: GroupTasks = NO_TASKS
    end: int | None = 0
    start: int | None = 0
    stable: int | None = None
    """The last stable offset; None: the end."""
    start_at: float | None = None
    """When the leader was asked for the log start; None: now."""
    topic_id: str | None = TOPIC_ID
    commit: Commit | None = None
    commits_until: float | None = None
    """Up to when the commits are known; None: up to now."""
    members_until: float | None = None
    tail: Tail | None = None

    def produce(self, count: int) -> None:
        assert self.end is not None
        self.end += count

    def commit_offset(self, offset: int, *, topic_id: str | None = TOPIC_ID) -> None:
        self.commit = Commit(offset, topic_id, 0, self.now)

    def step(self, seconds: float = STEP) -> LagRow:
        """Make a pass `seconds` later; return the row."""
        self.now += seconds
        (row,) = self.rows()
        return row

    def rows(self) -> list[LagRow]:
        commits = {} if self.commit is None else {(GROUP, TOPIC, 0): self.commit}
        start_at = self.start_at or self.now
        times, stable = (self.now, start_at, 1, self.now), self.end if self.stable is None else self.stable
        ends = {(TOPIC, 0): LogEnds(self.end, self.start, stable, self.topic_id, *times, self.tail)}
        until = ReadUntil(self.commits_until or self.now, self.members_until or self.now)
        return self.tracker.observe(commits, ends, {GROUP: self.tasks}, self.now, {GROUP: until})


def keep_up(cluster: MiniCluster, passes: int = 10) -> None:
    """Let a consumer read everything that was produced before the previous pass."""
    for _ in range(passes):
        assert cluster.end is not None
        cluster.commit_offset(cluster.end)
        cluster.produce(100)
        cluster.step()


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
        "offset_status": "OK",
        "observed_at": 1_000_000.0,
    }
    return LagRow(**{**values, **fields})


def at_pass(now: float) -> GroupPass:
    return GroupPass(now, ReadUntil(now, now), NO_TASKS, 300.0, 60.0)


def work_of(rows: Iterable[LagRow], now: float) -> dict[str, GroupWork]:
    """Return the work of each group after a single pass with these rows, from their lag and statuses alone."""
    found: dict[str, list[Standing]] = {}
    for one in rows:
        since = now - (one.lag_seconds or 0.0) if one.lag else None
        standing = Standing(one, bool(one.lag), since, offset=90, moved_at=since or now)
        standing.rewound_at = standing.status_since
        found.setdefault(one.group_id, []).append(standing)
    return {name: work for name, those in found.items() if (work := group_work(name, those, at_pass(now), NO_WORK))}


def pass_over(
    tracker: LagTracker, rows: Iterable[LagRow], tasks: Mapping[str, GroupTasks], now: float, tail: Tail | None = None
) -> list[LagRow]:
    """Give a tracker the inputs of such rows: their commits, the ends of their logs, and the owners of their tasks."""
    rows = list(rows)
    groups = {
        name: replace(
            one,
            subtopology_of={row.topic: "0" for row in rows},
            owners={("0", row.partition): Owner(row.member_id, "p", "h") for row in rows if row.member_id},
        )
        for name, one in tasks.items()
    }
    return tracker.observe(
        {
            (row.group_id, row.topic, row.partition): Commit(row.committed_offset, "id", 0, row.committed_at)
            for row in rows
        },
        {
            (row.topic, row.partition): LogEnds(
                row.log_end_offset, row.log_start_offset, row.log_end_offset, "id", now, now, 1, now, tail
            )
            for row in rows
        },
        groups,
        now,
    )
