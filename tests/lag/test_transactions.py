"""What a group may read ends at the last stable offset, and what proves that it reads further."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streaming_app.lag.model import Commit, GroupTasks, LagRow
from streaming_app.lag.open_transactions import held_for_long
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import GroupWork
from tests.support.lag_harness import ALICE, GROUP, TOPIC, TOPIC_ID, MiniCluster

T0 = 1_000_000.0
RUNS = GroupTasks(
    subtopology_of={TOPIC: "0"}, owners={("0", 0): ALICE}, has_members=True, members_since=T0 - 600, stable_since=T0
)


@dataclass
class Log(MiniCluster):
    """One partition with a last stable offset, and passes over it every 30 s; each commits what it is told."""

    tasks: GroupTasks = RUNS
    last: list[LagRow] = field(default_factory=list)

    def seen(
        self, committed: int | None, stable: int, end: int, at: float | None = None, start: int | None = 0
    ) -> GroupWork:
        """Make a pass; `at` is the time of the commit, by default now."""
        self.end, self.start, self.stable = end, start, stable
        self.commit = Commit(committed, TOPIC_ID, 0, None if committed is None else self.now if at is None else at)
        self.last = self.rows()
        self.now += 30.0
        return self.tracker.work[GROUP]

    def restarted(self) -> Log:
        """Return the same log for a job that begins with what is stored."""
        tracker = LagTracker()
        for (topic, partition), samples in self.tracker.samples.items():
            tracker.restore_samples(topic, partition, samples.topic_id, samples.pairs())
        for row in self.last:
            tracker.restore_row(row)
        tracker.read_uncommitted = dict(self.tracker.read_uncommitted)
        return replace(self, tracker=tracker)


def held(log: Log, passes: int = 40) -> GroupWork:
    """Let a group stand at the last stable offset while an open transaction goes on behind it."""
    log.seen(100, 100, 100)
    for number in range(passes):
        found = log.seen(100, 100, 110 + number, at=T0)
    return found


def reads_uncommitted(log: Log, at: float | None = None) -> None:
    log.seen(90, 100, 100)
    log.seen(110, 100, 120, at=log.now if at is None else at)


def test_who_has_committed_beyond_it_reads_uncommitted_records_also_after_a_restart_of_the_job() -> None:
    log = Log()
    reads_uncommitted(log)
    for again in (log, log.restarted()):
        for _ in range(12):
            found = again.seen(110, 100, 120, at=T0 + 30)
        assert (found.waiting, found.stalled is not None, found.held) == (1, True, {})


def test_a_deployment_or_a_commit_from_before_the_members_proves_no_isolation_level() -> None:
    log = Log()
    reads_uncommitted(log)
    log.tasks = replace(RUNS, members_since=log.now)
    assert log.seen(110, 100, 120, at=T0 + 30).held
    by_a_tool = Log()
    reads_uncommitted(by_a_tool, at=T0 - 900)
    assert by_a_tool.tracker.read_uncommitted == {}


def test_only_where_a_group_is_held_for_longer_than_its_patience_is_its_producer_asked_for() -> None:
    log = Log()
    assert held_for_long([held(log, 10)]) == []
    assert held_for_long([held(log, 12)]) == [(TOPIC, 0)]
    assert held_for_long([log.seen(150, 150, 150)]) == []
    held_there = {(TOPIC, number): T0 - number for number in range(5_000)}
    asked = held_for_long([GroupWork(GROUP, T0 + 300.0, held=held_there)])
    assert (len(asked), asked[0]) == (1_000, (TOPIC, 4_999))


# A partition without a commit


def test_what_came_since_members_have_the_task_waits_without_a_commit_also_for_a_job_that_starts_later() -> None:
    """The last record came before the job started, and the search by time has found the first one."""
    tracker = LagTracker()
    tracker.restore_samples(TOPIC, 0, TOPIC_ID, [(40, T0 + 60), (40, T0 + 300), (41, T0 + 300)])
    log = Log(tracker, now=T0 + 7_200)
    assert log.seen(None, 90, 90).stalled is None  # the second pass confirms it
    stalled = log.seen(None, 90, 90).stalled
    assert stalled is not None
    assert (stalled.since, stalled.offsets, stalled.count) == (T0 + 300, 50, 1)
    (row,) = log.last
    assert (row.lag, row.lag_seconds_is_lower_bound, row.waits_since) == (50, True, T0 + 300)
    again = log.restarted()
    again.tasks = replace(RUNS, stable_since=log.now - 90)  # a rebalance meanwhile changes nothing
    found = again.seen(None, 90, 90).stalled
    assert (found and found.since, found and found.offsets) == (T0 + 300, 50)


def test_a_repartition_topic_without_a_commit_is_read_from_its_start() -> None:
    log = Log(tasks=replace(RUNS, repartition=frozenset({TOPIC})))
    log.seen(None, 46_000, 46_000, start=1_000)
    (row,) = log.last
    assert (row.lag, row.lag_seconds_is_lower_bound, row.is_unknown) == (45_000, True, False)
    assert log.seen(None, 46_000, 46_000, start=46_000).waiting == 0
    assert log.last[0].lag == 0
    log.seen(None, 46_000, 46_000, start=None)
    assert log.last[0].lag is None
