"""All partitions that any group commits or reads, from pass to pass: the ends of their logs, and the progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from streaming_app.lag.ends import NO_ENDS, EndSamples, LogEnds, TopicPartition
from streaming_app.lag.model import NO_TASKS, Commit, CommitKey, GroupPass, GroupTasks, LagRow, ReadUntil
from streaming_app.lag.progress import STALLED_SECONDS, Progress, Standing
from streaming_app.lag.work import GroupWork, group_work

LATE_SECONDS = 60.0


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
        self._topic_ids: dict[str, str] = {}
        self._progress: dict[CommitKey, Progress] = {}
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
        recreated, moved = self._observe_ends(ends, now)
        for key in self._progress.keys() - commits.keys():
            del self._progress[key]
        passes: dict[str, GroupPass] = {}
        found: defaultdict[str, list[Standing]] = defaultdict(list)
        for key, commit in commits.items():
            group_id, at = key[0], key[1:]
            if (one := passes.get(group_id)) is None:
                until, tasks = read_until.get(group_id, ReadUntil(now, now)), groups.get(group_id, NO_TASKS)
                allowed, patience = self._allowed_lag(group_id), self._patience(group_id)
                one = passes[group_id] = GroupPass(now, until, tasks, allowed, patience, self.late_seconds)
            progress = self._progress.get(key)
            if progress is None:
                progress = self._progress[key] = Progress()
            elif key[1] in recreated:
                progress.forget_log()
            standing = progress.observe(
                key, commit, ends.get(at, NO_ENDS), self._samples.get(at), one, rests=at not in moved
            )
            found[group_id].append(standing)
        self.work = {
            group_id: work
            for group_id, those in found.items()
            if (work := group_work(group_id, those, passes[group_id], self.work.get(group_id)))
        }
        return [one.row for those in found.values() for one in those]

    def samples(self) -> Mapping[TopicPartition, EndSamples]:
        """Return the samples by topic and partition."""
        return self._samples

    def topic_id(self, topic: str) -> str | None:
        """Return the id of the topic that the samples are of."""
        return self._topic_ids.get(topic)

    def restore_samples(
        self, topic: str, partition: int, topic_id: str | None, samples: Iterable[tuple[int, float]]
    ) -> None:
        """Begin with the samples that an earlier run kept."""
        if topic_id is not None:
            self._topic_ids[topic] = topic_id
        self._samples[topic, partition] = EndSamples(samples)

    def restore_row(self, row: LagRow) -> None:
        """Begin with what an earlier run knew of a commit."""
        if row.committed_offset is not None:
            progress = self._progress[row.group_id, row.topic, row.partition] = Progress()
            progress.restore(row)

    def _observe_ends(self, ends: Mapping[TopicPartition, LogEnds], now: float) -> tuple[set[str], set[TopicPartition]]:
        """Add the samples; return the topics that were created again, and the partitions whose end moved."""
        topic_ids = {topic: one.topic_id for (topic, _), one in ends.items() if one.topic_id is not None}
        recreated = {topic for topic, known in self._topic_ids.items() if topic_ids.get(topic, known) != known}
        known_ids = {topic: self._topic_ids[topic] for topic, _ in ends if topic in self._topic_ids}
        self._topic_ids = {**known_ids, **topic_ids}
        self._samples = {key: samples for key, samples in self._samples.items() if key in ends}
        moved = set()
        for key, one in ends.items():
            if one.end is None:
                continue
            samples = self._samples.get(key)
            if samples is None:
                samples = self._samples[key] = EndSamples()
            elif key[0] in recreated:
                samples.clear()
            if samples.add(one.end, now if one.at is None else one.at):
                moved.add(key)
        return recreated, moved
