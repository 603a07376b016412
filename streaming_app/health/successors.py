"""Who has taken over from a group that ended, such as the other colour of a deployment: that is proven, or declared.

Theory of operation
-------------------
A group has taken over if it has members, its topology is made of the same topics, its own commits have passed the
offsets at which the other one ended, and it did not begin beyond them: its first commit was before them, or before the
end that the log had when it came, or that end was. Internal topics are compared without each group's own prefix.

A topology without internal topics proves nothing: every application that only reads and writes looks like all others
that read the same topics. Of these a successor has to be declared.

Nothing else counts: how long both ran side by side does not. Two copies that process every record look like this, too;
when one of them ends, the other one is its successor.

A group that somebody declared as the successor has taken over once it has members and its commits have passed.

Who has taken over stays the successor, as the verdict says, if its members stay for as long as the group would have had
until it was down. One that ends before, as on a host that both lose, has taken nothing over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import EMPTY
from streaming_app.health.facts import Facts
from streaming_app.health.verdict import OFF, SUCCESSOR
from streaming_app.lag.model import Node
from streaming_app.lag.progress import Standing
from streaming_app.lag.work import GroupWork

_MOST = 100  # groups with one topology that are looked at: a tenant may have thousands, each of which ends


class Successors:
    """Finds who has taken over, by what is known of all groups at one time."""

    def __init__(self, groups: Mapping[str, GroupSnapshot], work: Mapping[str, GroupWork]) -> None:
        self._groups, self._work = groups, work

    def of(self, facts: Facts) -> str | None:
        """Return who has taken over from a group that is Empty."""
        work, previous, settings, since = facts.work, facts.previous, facts.settings, facts.state_since
        known = previous.evidence.get(SUCCESSOR) if previous and previous.verdict == OFF else None
        if known and previous and since <= previous.at and self._stayed(known, since + settings.patience):
            return str(known)
        if not work.waiting:
            return None
        declared = settings.successor
        if declared and self._has_members(declared) and self._has_passed(declared, work, is_declared=True):
            return declared
        others = islice(self._running.get(work.tasks.content, ()), _MOST)
        return next((other for other in others if self._has_passed(other, work)), None)

    def _has_members(self, group_id: str) -> bool:
        return group_id in self._groups and self._groups[group_id].member_count > 0

    def _stayed(self, group_id: str, until: datetime) -> bool:
        """Tell whether a group that has taken over has, or had, members for so long."""
        group = self._groups.get(group_id)
        return group is None or group.state != EMPTY or group.state_since is None or group.state_since > until

    @cached_property
    def _running(self) -> Mapping[frozenset[Node], Sequence[str]]:
        """The groups that have members, by a topology that proves something."""
        found: defaultdict[frozenset[Node], list[str]] = defaultdict(list)
        for group_id, work in self._work.items():
            if self._has_members(group_id) and any(node.is_internal for node in work.tasks.content):
                found[work.tasks.content].append(group_id)
        return found

    def _has_passed(self, other: str, ended: GroupWork, *, is_declared: bool = False) -> bool:
        """Tell whether a group has passed another one, in all partitions but those of internal topics of their own."""
        progress = self._work[other].progress if other in self._work else {}
        prefix = f"{ended.group_id}-"
        internal = {node.name for node in ended.tasks.content if node.is_internal}
        passed = [
            key in progress and _is_beyond(progress[key], one.offset, may_begin_anywhere=is_declared)
            for key, one in ended.progress.items()
            if one.offset is not None and one.waits_since is not None
            if key in progress or not (is_declared or key[0].removeprefix(prefix) in internal)
        ]
        return bool(passed) and all(passed)


def _is_beyond(one: Standing, offset: int, *, may_begin_anywhere: bool) -> bool:
    if one.offset is None or one.offset <= offset or one.first is None:
        return False
    began_before = one.baseline is not None and (one.baseline <= offset or one.first < one.baseline)
    return may_begin_anywhere or one.first <= offset or began_before
