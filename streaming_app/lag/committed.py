"""Committed offsets from two sources: the log, which has the time of each commit, and the coordinators.

The log cannot tell whether the transaction of a commit is open or was aborted. OffsetFetch can, but has no times. So
values come from OffsetFetch, and times from the log where both have the same value. A coordinator answers from memory,
a hundred groups in a request. It is asked for:

- Streams groups, at every pass.
- Any other group while what the log has differs from the newest answer: it has committed since, commits were deleted,
  or a transaction is open or was aborted, of whose end there is no trace in the log. And every five minutes.
- All groups, while the job reads the log late: then the coordinators alone know what is committed now.

A coordinator that does not answer leaves what it answered before. The log is believed of groups that may not be asked,
and of those whose coordinator never answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import Commit, CommitKey

_AGAIN_SECONDS = 300.0

Commits = Mapping[TopicPartition, Commit]
"""What one group has committed in each partition."""


class _Answer(NamedTuple):
    at: float
    commits: Commits


class CommittedOffsets:
    """Chooses the groups to ask for, and merges the answers."""

    def __init__(self) -> None:
        self._in_log: Mapping[str, Commits] = {}
        self._answers: dict[str, _Answer] = {}
        """The newest of each group."""
        self._changed: set[str] = set()
        """Groups of which the log had other commits at this pass than at the one before."""
        self._unanswered: set[str] = set()
        """Groups that were asked for at this pass, and whose coordinators have not answered."""
        self._is_late = False
        self._merged: Mapping[CommitKey, Commit] = {}

    def choose(
        self, in_log: Mapping[CommitKey, Commit], always: Collection[str], now: float, *, is_late: bool = False
    ) -> set[str]:
        """Take in what the log has now, and return the groups to ask their coordinators for.

        `is_late`: the newest commits are not in it yet.
        """
        by_group: defaultdict[str, dict[TopicPartition, Commit]] = defaultdict(dict)
        for (group_id, topic, partition), commit in in_log.items():
            by_group[group_id][topic, partition] = commit
        chosen = set(always)
        for group_id, commits in by_group.items():
            answer = self._answers.get(group_id)
            is_new = answer is not None and 0 <= now - answer.at < _AGAIN_SECONDS
            if group_id not in chosen and (is_late or answer is None or not is_new or _differ(commits, answer)):
                chosen.add(group_id)
        self._answers = {one: answer for one, answer in self._answers.items() if one in by_group or one in chosen}
        self._changed = {group_id for group_id, commits in by_group.items() if self._in_log.get(group_id) != commits}
        self._in_log, self._unanswered, self._is_late = by_group, set(chosen), is_late
        return chosen

    def known_until(self, group_id: str, log_read_until: float) -> float:
        """Return until when all commits of a group are known; those that the log has are until `log_read_until`."""
        answer = self._answers.get(group_id)
        if answer is None:
            return log_read_until
        return answer.at if group_id in self._unanswered else max(answer.at, log_read_until)

    def merge(
        self, fetched: Mapping[str, Commits], now: float, denied: Collection[str] = ()
    ) -> dict[CommitKey, Commit]:
        """Return all committed offsets; of `denied` groups, which may not be asked, as the log has them."""
        for group_id in denied:
            self._answers.pop(group_id, None)
        self._answers |= {group_id: _Answer(now, commits) for group_id, commits in fetched.items()}
        self._unanswered.difference_update(fetched, denied)
        merged: dict[CommitKey, Commit] = {}
        for group_id, commits in self._in_log.items():
            if group_id not in self._answers:
                merged |= {(group_id, *key): commit for key, commit in commits.items()}
        for group_id, answer in self._answers.items():
            in_log = self._in_log.get(group_id, {})
            for key, commit in answer.commits.items():
                one = (group_id, *key)
                merged[one] = self._commit(group_id, in_log.get(key), self._merged.get(one), commit)
        self._merged = merged
        return merged

    def _commit(self, group_id: str, in_log: Commit | None, before: Commit | None, fetched: Commit) -> Commit:
        """Return what is committed, with its time if that is known, where a coordinator has this offset."""
        # If not that in the log, it is that of the pass before: then the one in the log was not committed in the end.
        for known in (in_log, before):
            if known is not None and known.offset == fetched.offset:  # but the log's metadata may be of another commit
                return known._replace(partition_time=fetched.partition_time)
        # The coordinator has what was committed since the log was read.
        if in_log and before and group_id in self._changed and not self._is_late:
            has_moved = (before.offset or 0) < (in_log.offset or 0) < (fetched.offset or 0)
            return in_log if has_moved else fetched
        return fetched


def _differ(in_log: Commits, answer: _Answer) -> bool:
    """Tell whether the log has other commits of a group than its coordinator had."""
    return in_log.keys() != answer.commits.keys() or any(
        (one.offset, one.partition_time) != (in_log[key].offset, in_log[key].partition_time)
        for key, one in answer.commits.items()
    )
