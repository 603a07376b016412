"""Committed offsets from two sources: the log, which has the time of each commit, and the coordinators.

The log does not show whether the transaction of a commit is open or was aborted. OffsetFetch does, but returns no
times. So offsets come from OffsetFetch, and the time of a commit comes from the log if both have the same offset. A
coordinator answers from memory, for a hundred groups in one request. A pass asks for:

- each group every five minutes, and while the log differs from the newest answer: the group has committed since,
  commits were deleted, or a transaction is open or was aborted (the log does not show its end);
- all groups while the job reads the log late: then only the coordinators know the current commits.

If a coordinator does not answer, its last answer stays valid. Offsets come from the log alone if the job may not ask
for a group, or if its coordinator never answered.

OffsetFetch leaves out topics that the principal may not describe, as if the group had committed nothing there. So where
the log has a commit and the answer has none, it is only known that there is no commit (it was deleted, or its
transaction is open or was aborted) if the topic may be described. Otherwise the commit is not known.

An aborted commit of a group that the job may not ask for must end nothing. So if an offset moves after it did not for a
while, or stays as it is, the job reads the record of the commit with READ_COMMITTED (`LagTracker.doubtful`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import Commit, CommitKey

_AGAIN_SECONDS = 300.0

Commits = Mapping[TopicPartition, Commit]
"""The commits of one group by partition."""


class _Answer(NamedTuple):
    at: float
    commits: Commits


class CommittedOffsets:
    """Chooses the groups to ask for, and merges the answers."""

    def __init__(self) -> None:
        self._log: Mapping[CommitKey, Commit] = {}
        self._in_log: Mapping[str, Commits] = {}
        """The same by group."""
        self._answers: dict[str, _Answer] = {}
        """Group -> its newest answer."""
        self._changed: set[str] = set()
        """Groups whose commits in the log changed since the pass before."""
        self._asked: frozenset[str] = frozenset()
        """Groups in the requests of this pass. The newest answer of any other group agrees with the log."""
        self._unanswered: set[str] = set()
        """Those whose coordinators have not answered."""
        self._is_late = False
        self._proofs: dict[CommitKey, tuple[Commit, bool]] = {}
        """Commits that only the log has, and whether they are known to be committed or aborted."""
        self._merged: Mapping[CommitKey, Commit] = {}

    def choose(
        self, in_log: Mapping[CommitKey, Commit], groups: Collection[str], now: float, *, is_late: bool = False
    ) -> set[str]:
        """Note the commits in the log, and return the groups to request from their coordinators.

        `groups`: those to request also if they have no commit. `is_late`: `in_log` does not have the newest commits
        yet. If `in_log` is the same object as at the pass before, it has not changed.
        """
        self._changed = set()
        if in_log is not self._log:
            by_group: defaultdict[str, dict[TopicPartition, Commit]] = defaultdict(dict)
            for (group_id, topic, partition), commit in in_log.items():
                by_group[group_id][topic, partition] = commit
            self._changed = {one for one, commits in by_group.items() if self._in_log.get(one) != commits}
            self._log, self._in_log = in_log, by_group
        chosen, known = set[str](), {*self._in_log, *groups}
        for group_id in known:
            answer = self._answers.get(group_id)
            is_new = answer is not None and 0 <= now - answer.at < _AGAIN_SECONDS
            if is_late or answer is None or not is_new or _differ(self._in_log.get(group_id, {}), answer):
                chosen.add(group_id)
        self._answers = {one: answer for one, answer in self._answers.items() if one in known}
        self._asked, self._unanswered, self._is_late = frozenset(chosen), set(chosen), is_late
        return chosen

    def known_until(self, group_id: str, log_read_until: float) -> float:
        """Return the time up to which all commits of a group are known. The log is read up to `log_read_until`."""
        answer = self._answers.get(group_id)
        if answer is None:
            return log_read_until
        return answer.at if group_id in self._unanswered else max(answer.at, log_read_until)

    def left_out(self, fetched: Mapping[str, Commits]) -> set[str]:
        """Return the topics with a commit in the log that the answers do not have."""
        return {
            topic
            for group_id, answer in fetched.items()
            for topic, _ in self._in_log.get(group_id, {}).keys() - answer.keys()
        }

    def merge(
        self, fetched: Mapping[str, Commits], now: float, denied: Collection[str] = (), shown: Collection[str] = ()
    ) -> dict[CommitKey, Commit]:
        """Return all committed offsets. For `denied` groups, which the job may not request, they come from the log.

        `shown`: those topics of `left_out` that the principal may describe.
        """
        for group_id in denied:
            self._answers.pop(group_id, None)
        self._answers |= {group_id: _Answer(now, commits) for group_id, commits in fetched.items()}
        self._unanswered.difference_update(fetched, denied)
        merged = dict(self._log)
        for group_id, answer in self._answers.items():
            if group_id not in self._asked:
                continue
            in_log = self._in_log.get(group_id, {})
            for key, commit in answer.commits.items():
                one = (group_id, *key)
                merged[one] = self._commit(group_id, in_log.get(key), self._merged.get(one), commit)
            for key in in_log.keys() - answer.commits.keys():
                one = (group_id, *key)
                if group_id not in fetched or key[0] not in shown:
                    merged[one] = in_log[key]._replace(is_known=False)
                else:
                    del merged[one]
        self._merged = merged
        return merged

    def without_proof(self, commits: Mapping[CommitKey, Commit], doubtful: Iterable[CommitKey]) -> list[CommitKey]:
        """Return those `doubtful` commits of which it is not known whether they were aborted. Forget others."""
        self._proofs = {key: one for key, one in self._proofs.items() if commits.get(key) == one[0]}
        return [key for key in doubtful if key not in self._proofs]

    def prove(
        self, commits: dict[CommitKey, Commit], asked: Collection[CommitKey], proofs: Mapping[CommitKey, bool]
    ) -> None:
        """Note what the log says of the transactions of commits. Those `asked` without a proof are not known."""
        self._proofs |= {key: (commits[key], is_committed) for key, is_committed in proofs.items()}
        aborted = (key for key, (_, is_committed) in self._proofs.items() if not is_committed)
        for key in {*aborted, *(key for key in asked if key not in proofs)}:
            commits[key] = commits[key]._replace(is_known=False)

    def _commit(self, group_id: str, in_log: Commit | None, before: Commit | None, fetched: Commit) -> Commit:
        # If it is not the commit in the log but that of the pass before, the transaction of the one in the log aborted.
        for known in (in_log, before):
            if known is not None and known.offset == fetched.offset:  # the log's metadata may belong to another commit
                return known._replace(partition_time=fetched.partition_time)
        # The coordinator has a commit that is newer than the job's reading of the log.
        if in_log and before and group_id in self._changed and not self._is_late:
            has_moved = (before.offset or 0) < (in_log.offset or 0) < (fetched.offset or 0)
            return in_log if has_moved else fetched
        return fetched


def _differ(in_log: Commits, answer: _Answer) -> bool:
    return in_log.keys() != answer.commits.keys() or any(
        (one.offset, one.partition_time) != (in_log[key].offset, in_log[key].partition_time)
        for key, one in answer.commits.items()
    )
