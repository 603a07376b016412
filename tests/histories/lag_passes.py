"""The passes over the lag that the job of a history does, and what they leave in the tables."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.groups.group import Group
from streaming_app.groups.row import to_row
from streaming_app.job.lag_ends import SEED_SECONDS
from streaming_app.lag.ends import NO_ENDS, LogEnds, TopicPartition
from streaming_app.lag.model import NO_TASKS, Commit, CommitKey, GroupTasks, LagRow, ReadUntil, group_tasks
from streaming_app.lag.tracker import LagTracker
from streaming_app.lag.work import GroupWork
from tests.histories.clients import START
from tests.histories.traffic import Seen


class StoredLag(NamedTuple):
    """What the tables have of lag."""

    samples: Mapping[TopicPartition, tuple[str | None, Sequence[tuple[int, float]]]] = MappingProxyType({})
    """Partition -> the id of its topic, and pairs of end offset and time."""
    rows: Sequence[LagRow] = ()


class LagPasses:
    """The passes of a job over the lag, as `job.lag_pass` does them, over what the traffic of a history shows."""

    def __init__(
        self,
        seen: Sequence[Seen],
        states: Mapping[str, Group],
        before: StoredLag,
        patience: Callable[[str], float],
    ) -> None:
        """Begin with what the passes of the run before left in the tables."""
        self._seen, self._states = seen, states
        self._next: int | None = None
        self._tracker = LagTracker(patience=patience)
        self._rows = before.rows
        self._tasks: dict[str, tuple[int, GroupTasks]] = {}
        self.work: Mapping[str, GroupWork] | None = None
        """That of the newest pass of this run; None before the first one."""
        self.away: dict[str, frozenset[str]] = {}
        for (topic, partition), (topic_id, pairs) in before.samples.items():
            self._tracker.restore_samples(topic, partition, topic_id, pairs)
        for row in before.rows:
            self._tracker.restore_row(row)

    def stored(self) -> StoredLag:
        """Return what the tables have after the newest pass."""
        samples = {key: (one.topic_id, one.pairs()) for key, one in self._tracker.samples.items()}
        return StoredLag(samples, self._rows)

    def read(self, after: float, at: float) -> None:
        """Do the newest pass that is due at a time; the first one is none that was due `after` or earlier."""
        if self._next is None:
            self._next = bisect_right(self._seen, after, key=attrgetter("at"))
        first = self._next
        while self._next < len(self._seen) and self._seen[self._next].at <= at:
            self._next += 1
        seen = self._seen[first : self._next]
        newest = {one.group_id: one for one in seen if one.at == seen[-1].at and one.group_id in self._states}
        if not newest:
            return
        commits = {(g, *key): commit for g, one in newest.items() for key, commit in one.commits.items()}
        ends = {key: end for one in newest.values() for key, end in one.ends.items()}
        away = frozenset(f"{topic}-{partition}" for (topic, partition), end in ends.items() if end == NO_ENDS)
        self.away = {"broker 1 (kafka-1:9092)": away} if away else {}
        tasks = {group_id: self._group_tasks(group_id) for group_id in newest}
        now = START.timestamp() + at
        self._seed(commits, ends, tasks, at)
        until = {
            one.group_id: ReadUntil(START.timestamp() + one.commits_until, now)
            for one in newest.values()
            if one.commits_until is not None
        }
        self._rows = self._tracker.observe(commits, ends, tasks, now, until)
        self.work = self._tracker.work

    def _seed(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        tasks: Mapping[str, GroupTasks],
        at: float,
    ) -> None:
        """Find earlier ends of logs that are seen for the first time with lag, as `job.lag_ends` does."""
        for key, found in self._tracker.unseen(commits, ends, START.timestamp() + at, tasks).items():
            times, firsts = {at - age for age in SEED_SECONDS}, set[tuple[int, float]]()
            for committed_at in (max(0.0, one - START.timestamp()) for one in found):
                first_at = self._first_record_after(key, committed_at)
                times |= {committed_at, first_at}
                if (before := self._end_at(key, committed_at)) and first_at <= at:
                    firsts |= {(before + more, START.timestamp() + first_at) for more in (0, 1)}
            samples = [(end, START.timestamp() + time) for time in times if (end := self._end_at(key, time))]
            samples = sorted([*samples, *firsts], key=lambda sample: sample[::-1])
            self._tracker.restore_samples(key[0], key[1], ends[key].topic_id, samples)

    def _first_record_after(self, key: TopicPartition, time: float) -> float:
        """Return when the first record after a time came, as far as passes saw it."""
        first = bisect_right(self._seen, time, key=attrgetter("at"))
        before = self._end_at(key, time)
        later = (one.at for one in self._seen[first:] if key in one.ends and (one.ends[key].end or 0) > (before or 0))
        return next(later, time)

    def _end_at(self, key: TopicPartition, time: float) -> int | None:
        """Return the end of a log at a time; None if it had not begun, or does not reach back so far now."""
        before = bisect_right(self._seen, time, key=attrgetter("at"))
        known = (one.ends[key].end for one in reversed(self._seen[:before]) if key in one.ends)
        return next(known, None)

    def next_at(self) -> float | None:
        is_done = self._next is None or self._next == len(self._seen)
        return None if is_done else self._seen[self._next or 0].at

    def _group_tasks(self, group_id: str) -> GroupTasks:
        state = self._states[group_id]
        known = self._tasks.get(group_id)
        if known is None or known[0] != state.last_offset:
            tasks = group_tasks(to_row("default", state), lambda _pattern: ())
            if tasks is NO_TASKS and state.is_classic:
                tasks = replace(NO_TASKS, has_members=bool(state.members))
            known = self._tasks[group_id] = state.last_offset, tasks
        return known[1]
