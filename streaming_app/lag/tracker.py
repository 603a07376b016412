"""The state of lag from pass to pass: the ends of each log that a group reads, and the progress of each group."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType

from streaming_app.lag.ends import NO_ENDS, EndSamples, LogEnds, TopicPartition
from streaming_app.lag.measure import Seen, is_recreated, owned_from
from streaming_app.lag.model import NO_TASKS, Commit, CommitKey, GroupPass, GroupTasks, LagRow, ReadUntil
from streaming_app.lag.partition_progress import STALLED_SECONDS, Standing
from streaming_app.lag.work import NO_WORK, GroupWork, group_work

LATE_SECONDS = 60.0
_TIMES = 5  # of a partition: each is a request to all leaders
_found = attrgetter("end", "start", "stable", "topic_id", "leader", "tail")  # all of `LogEnds` but times
_LEAST_PATIENCE = 60.0  # two passes: with less, an offset could count as stalled although it moves all the time


class LagTracker:
    """The lag of all groups of one cluster. Not thread-safe."""

    def __init__(
        self, late_seconds: float = LATE_SECONDS, patience: Callable[[str], float] = lambda _group_id: STALLED_SECONDS
    ) -> None:
        """Begin without knowledge. `patience` returns that of a group id; `GroupPass` describes both values."""
        self.late_seconds, self._patience = late_seconds, patience
        self.samples: dict[TopicPartition, EndSamples] = {}
        self._standings: dict[CommitKey, Standing] = {}
        # The input of the newest pass: what finds the same again takes most of its standing from the one before.
        self._commits: Mapping[CommitKey, Commit] = {}
        self._ends: Mapping[TopicPartition, LogEnds] = {}
        self._passes: Mapping[str, GroupPass] = {}
        self.work: Mapping[str, GroupWork] = {}
        """Group -> its work at the newest pass. Each pass makes a new mapping."""
        self.read_uncommitted: dict[str, float] = {}
        """Group that has proven to read records of open transactions -> the time of the commit that proves it."""

    def observe(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        groups: Mapping[str, GroupTasks],
        now: float,
        read_until: Mapping[str, ReadUntil] = MappingProxyType({}),
    ) -> list[LagRow]:
        """Update from a pass, and return a row for each commit. Read the commits before the ends.

        `read_until`: group -> up to when its records are known; for other groups, up to `now`. Partitions that are not
        in `commits` or `ends` any more are forgotten.
        """
        recreated, moved = self._take_ends(ends, now)
        self._take_isolation(commits, ends, groups)
        rest = {at for at in ends.keys() & self._ends.keys() - moved if _found(ends[at]) == _found(self._ends[at])}
        passes, like = dict[str, GroupPass](), set[str]()
        standings: dict[CommitKey, Standing] = {}
        of_groups: defaultdict[str, list[Standing]] = defaultdict(list)
        for key, commit in commits.items():
            group_id, at = key[0], key[1:]
            if (one := passes.get(group_id)) is None:
                until, tasks = read_until.get(group_id, ReadUntil(now, now)), groups.get(group_id, NO_TASKS)
                patience = max(_LEAST_PATIENCE, self._patience(group_id))
                uncommitted = group_id in self.read_uncommitted
                one = passes[group_id] = GroupPass(now, until, tasks, patience, self.late_seconds, uncommitted)
                if now - until.commits <= self.late_seconds and one[2:] == self._passes.get(group_id, ())[2:]:
                    like.add(group_id)  # all but the times are as before
            before = self._standings.get(key)
            if before is not None and before.is_of_former_members(commit, one.tasks):
                before = None
            standing = standings[key] = Standing(LagRow(*key)) if before is None else before.copy()
            is_same = at in rest and group_id in like and commit == self._commits.get(key)
            if at in recreated:
                standing.forget_log()
            seen = Seen(commit, ends.get(at, NO_ENDS), self.samples.get(at), at not in moved)
            standing.update(seen, one, is_same=is_same)
            of_groups[group_id].append(standing)
        self._standings, self._commits, self._ends, self._passes = standings, commits, ends, passes
        self.work = {
            group_id: work
            for group_id, those in of_groups.items()
            if (work := group_work(group_id, those, passes[group_id], self.work.get(group_id, NO_WORK)))
        }
        return [one.row for one in standings.values()]

    def unseen(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        now: float,
        groups: Mapping[str, GroupTasks] = MappingProxyType({}),
    ) -> dict[TopicPartition, Sequence[float]]:
        """Return the partitions with lag, or without a commit, that have no samples -> times in their past, in order.

        These are the times of the newest commits of groups that wait there, at most `_TIMES`; 0 if unknown. Without a
        commit, since when members have the tasks.
        """
        found = defaultdict[TopicPartition, set[float]](set)
        for (group_id, topic, partition), commit in commits.items():
            key, at = (topic, partition), commit.committed_at or 0.0
            if commit.offset is None:
                at = owned_from(groups.get(group_id, NO_TASKS), now)
            if key not in self.samples and (ends[key].end or 0) > (commit.offset or 0):
                found[key].add(min(now, at))
        ordered = {key: sorted(times) for key, times in found.items()}
        return {key: times[: _TIMES - 1] + times[_TIMES - 1 :][-1:] for key, times in ordered.items()}

    def resting(
        self, commits: Mapping[CommitKey, Commit], ends: Mapping[TopicPartition, LogEnds]
    ) -> dict[TopicPartition, set[int]]:
        """Return the partitions where offset and last stable offset have not moved since the pass before.

        They are mapped to the offsets below the last stable one from which on records may wait.
        """
        found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        for key, commit in commits.items():
            one, before = ends[key[1:]], self._standings.get(key)
            if before is None or (position := before.position) is None or one.stable is None:
                continue
            has_moved = (commit.offset, one.stable) != (before.row.committed_offset, before.row.last_stable_offset)
            if not has_moved and max(position, one.start or 0) < one.stable:
                found[key[1:]].add(max(position, one.start or 0))
        return found

    def doubtful(self, commits: Mapping[CommitKey, Commit], now: float) -> tuple[list[CommitKey], list[CommitKey]]:
        """Return which of these commits would end a wait, unless they were aborted, and which stayed as they are."""
        ends, rests = list[CommitKey](), list[CommitKey]()
        for key, commit in commits.items():
            one = self._standings.get(key)
            if one is not None and commit.offset is not None and one.is_doubtful(commit, now):
                (rests if commit.offset == one.offset else ends).append(key)
        return ends, rests

    def restore_samples(
        self, topic: str, partition: int, topic_id: str | None, samples: Iterable[tuple[int, float]]
    ) -> None:
        """Begin with the samples that an earlier run stored."""
        self.samples[topic, partition] = EndSamples(samples, topic_id)

    def restore_row(self, row: LagRow) -> None:
        """Begin with a row that an earlier run stored."""
        was_owned = row.member_id is not None and row.log_end_offset is not None
        if row.committed_offset is not None or row.lag is not None or was_owned:
            self._standings[row.group_id, row.topic, row.partition] = Standing.restore(row)

    def _take_isolation(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        groups: Mapping[str, GroupTasks],
    ) -> None:
        """Note the groups that have committed an offset beyond the last stable one of the same pass.

        Only a commit of the current members counts, and it counts until all of them have been replaced: a new version
        of the application may have another isolation level, and a tool may set any offset while there are no members.
        """
        for (group_id, topic, partition), commit in commits.items():
            one, at = ends.get((topic, partition), NO_ENDS), commit.committed_at
            if commit.offset is None or at is None or one.end is None or one.stable is None:
                continue
            if one.stable < commit.offset <= one.end and not is_recreated(commit, one):
                self.read_uncommitted[group_id] = max(at, self.read_uncommitted.get(group_id, at))
        of_groups = {group_id for group_id, *_ in commits}
        for group_id, at in list(self.read_uncommitted.items()):
            tasks = groups.get(group_id, NO_TASKS)
            if group_id not in of_groups or tasks.has_members is False or at < (tasks.members_since or at):
                del self.read_uncommitted[group_id]

    def _take_ends(
        self, ends: Mapping[TopicPartition, LogEnds], now: float
    ) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Add samples. Return the partitions of topics that were created again, and the partitions whose end moved."""
        self.samples = {key: samples for key, samples in self.samples.items() if key in ends}
        recreated, moved = set(), set()
        for key, one in ends.items():
            samples = self.samples.get(key)
            if samples is not None and one.topic_id is not None and samples.topic_id not in {None, one.topic_id}:
                recreated.add(key)
                samples = self.samples[key] = EndSamples(topic_id=one.topic_id)
            if one.end is None:
                continue
            if samples is None:
                samples = self.samples[key] = EndSamples()
            samples.topic_id = one.topic_id or samples.topic_id
            if samples.add(one.end, now if one.at is None else one.at):
                moved.add(key)
        return recreated, moved
