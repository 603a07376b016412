"""What the rules need to know of a cluster besides one group: its other groups, and the brokers' plugin. Pure.

A missing description is worth an alert only where the brokers have a description plugin. `DescriptionSupport` decides
that. The setting `alerts.descriptions` says it, or, with `auto`, one of these is evidence: the brokers' configuration
names a plugin, a group's records prove a push, or an earlier run of the job found either. It ends once the brokers'
configuration was read and names none, until there is newer evidence: what the plugin stored before stays in the groups'
records.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import NONE
from streaming_app.text import EPOCH

_PUSHED = frozenset({"CURRENT", "UNCERTAIN", "FAILED"})


class ClusterSurvey(NamedTuple):
    """The streams groups of a cluster at one time."""

    described: int = 0
    """How many groups with members have, or once had, a topology description."""
    undescribed: int = 0
    """How many groups with members never had one, as far as their records show."""
    newest_push_at: datetime | None = None
    """When a description was last pushed, or cleaned up: the brokers had a plugin then."""
    newest_first_description_at: datetime | None = None
    """When a group last got its first description: while clients are upgraded, this goes on."""
    plugin_since: datetime | None = None
    """The earliest time for which the groups' records prove a plugin; a record without a time counts as 1970."""


NO_SURVEY = ClusterSurvey()


class LostDescription(NamedTuple):
    """A description that the log says is stored, and that the plugin does not return."""

    group_id: str
    status: str
    """NOT_STORED or ERROR."""
    topology_epoch: int | None
    since: datetime
    """When the broker first said so."""


class TopicDifference(NamedTuple):
    """An internal topic of a group that is not as its topology asks for."""

    group_id: str
    topic: str
    name: str
    """`partitions`, `replication_factor` or the name of a config of topics."""
    value: str
    """`ACTUAL, asked for WANTED`."""
    since: datetime
    """When the job first saw it."""


def survey_group(group: GroupSnapshot) -> ClusterSurvey:
    """Survey a cluster of one group: as long as that stays the same for all groups, the survey of all does."""
    has_members = bool(group.member_count)
    if not had_description(group):
        return ClusterSurvey(undescribed=has_members)
    first_at, at, unsolicited_at = group.first_described_at, group.description_since, group.last_unsolicited_push_at
    pushed_at = at if group.description_status in _PUSHED else None
    if unsolicited_at is not None:
        pushed_at = latest(pushed_at, unsolicited_at)
    return ClusterSurvey(has_members, 0, pushed_at, first_at, first_at or at or group.first_seen_at or EPOCH)


def survey_cluster(groups: Iterable[GroupSnapshot]) -> ClusterSurvey:
    """Survey all groups of a cluster."""
    described, undescribed, pushed, first, since = zip(NO_SURVEY, *map(survey_group, groups), strict=True)
    plugin_since = min((at for at in since if at), default=None)
    return ClusterSurvey(sum(described), sum(undescribed), latest(*pushed), latest(*first), plugin_since)


def latest(*times: datetime | None) -> datetime | None:
    """Return the latest of the times that are known."""
    return max((time for time in times if time is not None), default=None)


def had_description(group: GroupSnapshot) -> bool:
    """Tell whether the group's records prove that a description of it was ever pushed.

    One that was stored, failed or started, or was unsolicited, also proves that the brokers had a plugin.
    """
    return (
        group.stored_description_epoch != NONE
        or group.first_described_at is not None
        or group.failed_description_epoch != NONE
        or group.unsolicited_pushes > 0
    )


DescriptionMode = Literal["auto", "always", "never"]


class DescriptionSupport:
    """Whether and since when the cluster keeps descriptions; with `auto` it keeps the earliest time of any evidence.

    This time stays known if the group with the evidence is deleted: the heartbeat file keeps `known_since` across
    restarts.
    """

    def __init__(self, mode: DescriptionMode, *, known_since: datetime | None = None) -> None:
        """Start from what an earlier run knew."""
        self._mode = mode
        self._plugin_since: datetime | None = None
        self._removed_at: datetime | None = None
        self.known_since = known_since

    @property
    def required(self) -> bool:
        """Every group is to have a description, whether it is known to be able to send one or not."""
        return self._mode == "always"

    def plugin_found(self, at: datetime) -> None:
        """Record that the brokers' configuration named a plugin at this time."""
        self._plugin_since = self._plugin_since or at
        self._removed_at = None

    def plugin_absent(self, at: datetime) -> None:
        """Record that the brokers' configuration was read at this time and named no plugin."""
        self._plugin_since = self.known_since = None
        self._removed_at = self._removed_at or at

    def since(self, survey: ClusterSurvey) -> datetime | None:
        """Return since when the cluster keeps descriptions; None if it does not, or there is no evidence yet."""
        if self._mode != "auto":
            return EPOCH if self.required else None
        pushed_at = survey.newest_push_at
        if self._removed_at is None:
            evidence = survey.plugin_since
        else:  # only what came after that is evidence
            evidence = pushed_at if pushed_at and pushed_at > self._removed_at else None
        known = (self.known_since, self._plugin_since, evidence)
        self.known_since = min((since for since in known if since), default=None)
        return self.known_since
