"""Committed offsets from two sources: the log, which has the time of each commit, and the coordinators.

The log cannot tell whether the transaction of a commit is open or was aborted. OffsetFetch can, but has no times. So
values come from OffsetFetch, and times from the log where both have the same value. A coordinator answers from memory,
a hundred groups in a request. It is asked for:

- Streams groups, at every pass.
- Any other group at the first pass, and whenever the log has other commits of it than at the pass
  before. Again at every pass while the answer differs from the log, since the end of a transaction leaves no trace
  here; and every five minutes while the commits rest, since offsets expire. Where the coordinator is further than the
  log, the commit in the log, with its time, is true, too: the coordinator has what was committed since it was read.
- All groups, while the job reads the log late: then the coordinators alone know what is committed now.

A coordinator that does not answer leaves what it answered before. The log is believed of groups that may not be asked,
and of those whose coordinator never answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import Commit, CommitKey

_AGAIN_SECONDS = 300.0

Fetched = Mapping[TopicPartition, Commit]
"""What a coordinator has of each partition that a group has committed."""
_ByGroup = dict[str, dict[TopicPartition, Commit]]


class CommittedOffsets:
    """Chooses the groups to ask for, and merges the answers."""

    def __init__(self) -> None:
        self._in_log: _ByGroup = {}
        self._fetched: dict[str, Fetched] = {}
        self._fetched_at: dict[str, float] = {}
        self._changed: set[str] = set()
        """The groups of which the log had other commits at this pass than at the one before."""
        self._differing: set[str] = set()
        """Those of which the coordinator had other offsets than the log."""
        self._unanswered: set[str] = set()
        self._is_late = False
        self._merged: Mapping[CommitKey, Commit] = {}

    def choose(
        self, in_log: Mapping[CommitKey, Commit], always: Collection[str], now: float, *, is_late: bool = False
    ) -> set[str]:
        """Take in what the log has now, and return the groups to ask their coordinators for.

        `is_late`: the newest commits are not in it yet.
        """
        by_group: _ByGroup = defaultdict(dict)
        for (group_id, topic, partition), commit in in_log.items():
            by_group[group_id][topic, partition] = commit
        chosen = set(always) | (by_group.keys() if is_late else self._differing & by_group.keys())
        self._changed = {group_id for group_id, commits in by_group.items() if self._in_log.get(group_id) != commits}
        chosen |= self._changed
        for group_id in by_group:
            at = self._fetched_at.get(group_id)
            if at is None or not 0 <= now - at < _AGAIN_SECONDS:
                chosen.add(group_id)
        for group_id in self._fetched.keys() - by_group.keys() - chosen:
            del self._fetched[group_id]
        for group_id in self._fetched_at.keys() - by_group.keys() - chosen:
            del self._fetched_at[group_id]
        self._in_log, self._is_late = dict(by_group), is_late
        self._unanswered = set(chosen)
        return chosen

    def known_until(self, group_id: str, log_read_until: float) -> float:
        """Return until when all commits of a group are known; those that the log has are until `log_read_until`."""
        at = self._fetched_at.get(group_id) if group_id in self._fetched else None
        if at is None or group_id in self._unanswered:
            return log_read_until if at is None else at
        return max(at, log_read_until)

    def merge(
        self, fetched: Mapping[str, Fetched], now: float, denied: Collection[str] = ()
    ) -> dict[CommitKey, Commit]:
        """Return all committed offsets; of `denied` groups, which may not be asked, as the log has them."""
        for group_id in denied:
            self._fetched.pop(group_id, None)
            self._fetched_at.pop(group_id, None)
        self._unanswered.difference_update(fetched, denied)
        self._fetched.update(fetched)
        self._fetched_at.update(dict.fromkeys(fetched, now))
        merged = {
            (group_id, key[0], key[1]): commit
            for group_id, commits in self._in_log.items()
            if group_id not in self._fetched
            for key, commit in commits.items()
        }
        self._differing = set()
        for group_id, offsets in self._fetched.items():
            in_log = self._in_log.get(group_id, {})
            if any(key not in offsets or offsets[key].offset != commit.offset for key, commit in in_log.items()):
                self._differing.add(group_id)
            for key, commit in offsets.items():
                one = (group_id, *key)
                merged[one] = self._commit(group_id, in_log.get(key), self._merged.get(one), commit)
        self._merged = merged
        return merged

    def _commit(self, group_id: str, in_log: Commit | None, before: Commit | None, fetched: Commit) -> Commit:
        """Return what is committed, with its time if that is known, where a coordinator has this offset."""
        if in_log is not None and in_log.offset == fetched.offset:
            return _with_partition_time(in_log, fetched)
        if before is None or before.offset is None or fetched.offset is None:
            return fetched
        if before.offset == fetched.offset:  # the commit in the log is of an open or aborted transaction
            return _with_partition_time(before, fetched)
        goes_on = in_log is not None and in_log.offset is not None and before.offset <= in_log.offset < fetched.offset
        if in_log is not None and goes_on and group_id in self._changed and not self._is_late:
            return in_log
        return fetched


def _with_partition_time(commit: Commit, fetched: Commit) -> Commit:
    """Return a commit with the coordinator's time of the input: that in the log may be of an aborted transaction."""
    time = fetched.partition_time
    return commit if commit.partition_time == time else commit._replace(partition_time=time)
