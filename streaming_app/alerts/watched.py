"""Of the groups of a cluster those that rules may have findings of: only what has changed is looked at. Pure.

Theory of operation
-------------------
Rules are evaluated every few seconds, and of nearly all groups nothing has changed, and no rule can say anything. Each
rule about a single group names what of a snapshot it is about (`GroupRule.about`); where that is absent it has no
finding, whatever the time is and whatever the other groups are. So a group is looked at once when it has changed, and
then only if a rule may have a finding of it, or as long as it is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from streaming_app.alerts.evaluate import may_concern
from streaming_app.alerts.survey import NO_SURVEY, ClusterSurvey, counts_as, survey_cluster
from streaming_app.groups.snapshot import GroupSnapshot, changed, is_newcomer


class WatchedGroups:
    """The groups of one cluster as of the last `update`."""

    def __init__(self) -> None:
        self._groups: Mapping[str, GroupSnapshot] = MappingProxyType({})
        self._at: datetime | None = None
        self._concerned: dict[str, GroupSnapshot] = {}
        self._with_descriptions: dict[str, GroupSnapshot] = {}  # only where the cluster keeps descriptions
        self._new: dict[str, GroupSnapshot] = {}
        self.survey: ClusterSurvey = NO_SURVEY

    def update(self, groups: Mapping[str, GroupSnapshot], now: datetime) -> None:
        """Take in all groups of the cluster. A mapping never changes: the next one is another."""
        before, is_same = self._groups, True
        if self._at and now < self._at:  # the clock was set back: groups may be new again
            self._new = {group_id: group for group_id, group in before.items() if is_newcomer(group, now)}
        for group_id in changed(before, groups):
            old, group = before.get(group_id), groups.get(group_id)
            is_same = is_same and old is not None and group is not None and counts_as(old) == counts_as(group)
            for kept in (self._concerned, self._with_descriptions, self._new):
                kept.pop(group_id, None)
            if group is None:
                continue
            if may_concern(group, with_descriptions=False):
                self._concerned[group_id] = group
            elif may_concern(group, with_descriptions=True):
                self._with_descriptions[group_id] = group
            if is_newcomer(group, now):
                self._new[group_id] = group
        for group_id in [one for one, group in self._new.items() if not is_newcomer(group, now)]:
            del self._new[group_id]
        if not is_same:
            self.survey = survey_cluster(groups.values())
        self._groups, self._at = groups, now

    def groups(self, *, with_descriptions: bool) -> list[GroupSnapshot]:
        """Return the groups of which a rule may have a finding, and those that are new."""
        found = self._concerned | self._new
        if with_descriptions:
            found |= self._with_descriptions
        return list(found.values())
