"""Finds the group that has taken over from a group that ended, as in a blue-green deployment: proven or declared.

Theory of operation
-------------------
A group is the successor of an ended one if all of these hold:

- It has members.
- Its topology has the same topics. Names of internal topics are compared without the prefix of the group.
- Its commits have passed the last offsets of the ended group.
- It did not begin beyond these offsets: its first commit, or the end of the log when it began, was at or before them,
  or its first commit was before the end of the log when it began.

A topology without internal topics proves nothing: applications without state that read the same topics look the same.
For such a group, declare the successor in the configuration (`alerts.successors`).

Nothing else counts, and not how long both groups ran at the same time. So if two groups process every record, and one
of them ends, the other one is its successor.

A declared successor has taken over when it has members and its commits have passed the last offsets.

The successor must keep its members for as long as the ended group had until its verdict would be Down. If it ends
before, for example on a host that both groups lose, it has not taken over.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice

from streaming_app.groups.snapshot import GroupSnapshot, shown_at
from streaming_app.groups.state_rules import EMPTY
from streaming_app.health.facts import Facts
from streaming_app.health.verdict import OFF, SUCCESSOR
from streaming_app.lag.model import TopicNode
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.work import GroupWork

_MOST = 100  # candidates with one topology: a tenant may have thousands of groups, and end all of them


class Successors:
    """Finds successors, from the facts about all groups at one time."""

    def __init__(self, groups: Mapping[str, GroupSnapshot], work: Mapping[str, GroupWork]) -> None:
        self._groups, self._work = groups, work

    def of(self, facts: Facts) -> str | None:
        """Return the successor of an Empty group, or None."""
        work, previous, settings, since = facts.work, facts.previous, facts.settings, facts.state_since
        known = previous.evidence.get(SUCCESSOR) if previous and previous.verdict == OFF else None
        if known and previous and since <= previous.at and self._stayed(known, since + settings.patience):
            return str(known)
        if not facts.waits:  # of what is not known now, the last offsets are not known either
            return None
        declared = settings.successor
        if declared and self._has_members(declared) and self._has_passed(declared, work, is_declared=True):
            return declared
        others = islice(self._running.get(work.tasks.content, ()), _MOST)
        return next((other for other in others if self._has_passed(other, work)), None)

    def _has_members(self, group_id: str) -> bool:
        return group_id in self._groups and self._groups[group_id].member_count > 0

    def _stayed(self, group_id: str, until: datetime) -> bool:
        group = self._groups.get(group_id)
        if group is None or group.state != EMPTY:
            return True
        since = group.state_since or shown_at(group)
        return since is None or since > until

    @cached_property
    def _running(self) -> Mapping[frozenset[TopicNode], Sequence[str]]:
        """Topology with internal topics -> the groups with members that have it."""
        found: defaultdict[frozenset[TopicNode], list[str]] = defaultdict(list)
        for group_id, work in self._work.items():
            if self._has_members(group_id) and any(node.is_internal for node in work.tasks.content):
                found[work.tasks.content].append(group_id)
        return found

    def _has_passed(self, other: str, ended: GroupWork, *, is_declared: bool = False) -> bool:
        """Return whether a group has passed the last offsets of an ended one, where work waits for that one or may.

        Internal topics of the ended group are ignored.
        """
        progress = self._work[other].progress if other in self._work else {}
        prefix = f"{ended.group_id}-"
        internal = {node.name for node in ended.tasks.content if node.is_internal}
        passed = [
            key in progress and _is_beyond(progress[key], one.offset, may_begin_anywhere=is_declared)
            for key, one in ended.progress.items()
            if one.offset is not None and (one.waits_since is not None or one.waits is None)
            if key in progress or not (is_declared or key[0].removeprefix(prefix) in internal)
        ]
        return bool(passed) and all(passed)


def _is_beyond(one: Standing, offset: int, *, may_begin_anywhere: bool) -> bool:
    if one.offset is None or one.offset <= offset or one.first is None:
        return False
    began_before = one.baseline is not None and (one.baseline <= offset or one.first < one.baseline)
    return may_begin_anywhere or one.first <= offset or began_before
