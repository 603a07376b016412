"""All partitions that any group commits or reads, from pass to pass: the ends of their logs, and where groups stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from streaming_app.lag.ends import NO_ENDS, EndSamples, LogEnds, TopicPartition
from streaming_app.lag.model import NO_TASKS, Commit, CommitKey, GroupPass, GroupTasks, LagRow, ReadUntil
from streaming_app.lag.progress import STALLED_SECONDS, Standing
from streaming_app.lag.work import NO_WORK, GroupWork, group_work

LATE_SECONDS = 60.0
_LEAST_PATIENCE = 60.0  # two passes: of less, an offset that moves all the time would never be seen to move


class LagTracker:
    """What is kept of one cluster; for one thread."""

    def __init__(
        self,
        allowed_lag: Callable[[str], int] = lambda _group_id: 0,
        late_seconds: float = LATE_SECONDS,
        patience: Callable[[str], float] = lambda _group_id: STALLED_SECONDS,
    ) -> None:
        """Begin without knowledge. `GroupPass` says what these are; the functions return it for a group."""
        self._allowed_lag, self.late_seconds, self._patience = allowed_lag, late_seconds, patience
        self._samples: dict[TopicPartition, EndSamples] = {}
        self._standings: dict[CommitKey, Standing] = {}
        self.work: Mapping[str, GroupWork] = {}
        """What waits for each group, as of the newest pass; no later pass changes it."""

    def observe(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        groups: Mapping[str, GroupTasks],
        now: float,
        read_until: Mapping[str, ReadUntil] = MappingProxyType({}),
    ) -> list[LagRow]:
        """Take in a pass, of which the commits were read before the ends, and return a row for each commit.

        What a group did is known up to now, unless `read_until` says otherwise of it. What is in `commits` no more is
        forgotten, and so are the samples of partitions that nobody commits.
        """
        recreated, moved = self._take_ends(ends, now)
        passes: dict[str, GroupPass] = {}
        standings: dict[CommitKey, Standing] = {}
        of_groups: defaultdict[str, list[Standing]] = defaultdict(list)
        for key, commit in commits.items():
            group_id, at = key[0], key[1:]
            if (one := passes.get(group_id)) is None:
                until, tasks = read_until.get(group_id, ReadUntil(now, now)), groups.get(group_id, NO_TASKS)
                allowed, patience = self._allowed_lag(group_id), max(_LEAST_PATIENCE, self._patience(group_id))
                one = passes[group_id] = GroupPass(now, until, tasks, allowed, patience, self.late_seconds)
            before = self._standings.get(key)
            standing = standings[key] = Standing(LagRow(*key)) if before is None else before.copy()
            if at in recreated:
                standing.forget_log()
            standing.take(commit, ends.get(at, NO_ENDS), self._samples.get(at), one, rests=at not in moved)
            of_groups[group_id].append(standing)
        self._standings = standings
        self.work = {
            group_id: work
            for group_id, those in of_groups.items()
            if (work := group_work(group_id, those, passes[group_id], self.work.get(group_id, NO_WORK)))
        }
        return [one.row for one in standings.values()]

    def unseen(
        self, commits: Mapping[CommitKey, Commit], ends: Mapping[TopicPartition, LogEnds], now: float
    ) -> dict[TopicPartition, float]:
        """Return the partitions with lag that have no samples yet, with the time of the newest commit: 0 if unknown."""
        found: dict[TopicPartition, float] = {}
        for (_, topic, partition), commit in commits.items():
            key = (topic, partition)
            if key not in self._samples and commit.offset is not None and (ends[key].end or 0) > commit.offset:
                found[key] = min(now, max(found.get(key, 0.0), commit.committed_at or 0.0))
        return found

    def resting(
        self, commits: Mapping[CommitKey, Commit], ends: Mapping[TopicPartition, LogEnds]
    ) -> dict[TopicPartition, set[int]]:
        """Return offsets below ends where neither has moved since the pass before, and no transaction is open."""
        found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        for key, commit in commits.items():
            one, offset, before = ends[key[1:]], commit.offset, self._standings.get(key)
            if before is None or offset is None or one.end is None:
                continue
            has_moved = (offset, one.end) != (before.row.committed_offset, before.row.log_end_offset)
            if not has_moved and max(offset, one.start or 0) < one.end == one.stable:
                found[key[1:]].add(max(offset, one.start or 0))
        return found

    def samples(self) -> Mapping[TopicPartition, EndSamples]:
        """Return the samples by topic and partition."""
        return self._samples

    def restore_samples(
        self, topic: str, partition: int, topic_id: str | None, samples: Iterable[tuple[int, float]]
    ) -> None:
        """Begin with the samples that an earlier run kept."""
        self._samples[topic, partition] = EndSamples(samples, topic_id)

    def restore_row(self, row: LagRow) -> None:
        """Begin with what an earlier run knew of a commit."""
        if row.committed_offset is not None:
            self._standings[row.group_id, row.topic, row.partition] = Standing.restore(row)

    def _take_ends(
        self, ends: Mapping[TopicPartition, LogEnds], now: float
    ) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Add the samples; return the partitions whose topics were created again, and those whose end moved."""
        self._samples = {key: samples for key, samples in self._samples.items() if key in ends}
        recreated, moved = set(), set()
        for key, one in ends.items():
            samples = self._samples.get(key)
            if samples is not None and one.topic_id is not None and samples.topic_id not in {None, one.topic_id}:
                recreated.add(key)
                samples = self._samples[key] = EndSamples(topic_id=one.topic_id)
            if one.end is None:
                continue
            if samples is None:
                samples = self._samples[key] = EndSamples()
            samples.topic_id = one.topic_id or samples.topic_id
            if samples.add(one.end, now if one.at is None else one.at):
                moved.add(key)
        return recreated, moved
