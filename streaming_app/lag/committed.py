"""Committed offsets from two sources: the log, which has the time of each commit, and the coordinators.

The log cannot tell whether the transaction of a commit was aborted. OffsetFetch can, but has no times. So values come
from OffsetFetch where a wrong one would matter, and times from the log where both have the same value:

- Streams groups, at every pass. With exactly-once processing each of their commits is transactional, and they are what
  this project is about. A coordinator answers from memory, a hundred groups in a request.
- Any other group at the first pass, and whenever the log has another commit of it: that may be of a transaction that is
  open, or was aborted. Again every five minutes while it rests, since offsets expire.
- All groups, while the job reads the log late: then the coordinators alone know what is committed now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from streaming_app.lag.model import Commit, TopicPartition
from streaming_app.lag.tracker import CommitKey

_AGAIN_SECONDS = 300.0

Fetched = Mapping[TopicPartition, tuple[int, int | None]]
"""Offset and leader epoch of each partition that a group has committed."""
_ByGroup = dict[str, dict[TopicPartition, Commit]]


class CommittedOffsets:
    """Chooses the groups to ask for, and merges the answers."""

    def __init__(self) -> None:
        self._in_log: _ByGroup = {}
        self._fetched: dict[str, Fetched] = {}
        self._fetched_at: dict[str, float] = {}

    def choose(
        self, in_log: Mapping[CommitKey, Commit], always: Collection[str], now: float, *, is_late: bool = False
    ) -> set[str]:
        """Take in what the log has now, and return the groups to ask their coordinators for.

        `is_late`: the newest commits are not in it yet.
        """
        by_group: _ByGroup = defaultdict(dict)
        for (group_id, topic, partition), commit in in_log.items():
            by_group[group_id][topic, partition] = commit
        chosen = set(always) | (by_group.keys() if is_late or not self._in_log else set())
        for group_id, commits in by_group.items():
            at = self._fetched_at.get(group_id)
            if self._in_log.get(group_id) != commits:
                self._fetched.pop(group_id, None)
                self._fetched_at.pop(group_id, None)
                chosen.add(group_id)
            elif at is None or not 0 <= now - at < _AGAIN_SECONDS:
                chosen.add(group_id)
        for group_id in self._fetched.keys() - by_group.keys() - chosen:
            del self._fetched[group_id]
        for group_id in self._fetched_at.keys() - by_group.keys() - chosen:
            del self._fetched_at[group_id]
        self._in_log = dict(by_group)
        return chosen

    def known_until(self, group_id: str, log_read_until: float) -> float:
        """Return until when all commits of a group are known; those that the log has are until `log_read_until`."""
        at = self._fetched_at.get(group_id) if group_id in self._fetched else None
        return log_read_until if at is None else max(at, log_read_until)

    def merge(self, fetched: Mapping[str, Fetched], now: float) -> dict[CommitKey, Commit]:
        """Return all committed offsets; of a group whose coordinator did not answer, as the log has them."""
        self._fetched.update(fetched)
        self._fetched_at.update(dict.fromkeys(fetched, now))
        merged = {
            (group_id, key[0], key[1]): commit
            for group_id, commits in self._in_log.items()
            if group_id not in self._fetched
            for key, commit in commits.items()
        }
        for group_id, offsets in self._fetched.items():
            in_log = self._in_log.get(group_id, {})
            for key, (offset, leader_epoch) in offsets.items():
                commit = in_log.get(key)
                if commit is None or commit.offset != offset:
                    commit = Commit(offset, None, leader_epoch)
                merged[group_id, key[0], key[1]] = commit
        return merged
