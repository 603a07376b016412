"""What the rules need to know of a cluster besides one group: its other groups, and the brokers' plugin. Pure.

A missing description is worth an alert only where the brokers have a description plugin. `DescriptionSupport` decides
that. The setting `alerts.descriptions` says it, or, with `auto`, one of these is evidence: the brokers' configuration
names a plugin, a group's records prove a push, or an earlier run of the job found either. It ends once the brokers'
configuration was read and names none, until there is newer evidence: what the plugin stored before stays in the groups'
records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import NONE
from streaming_app.text import EPOCH

_PUSHED = frozenset({"CURRENT", "UNCERTAIN", "FAILED"})


@dataclass(frozen=True)
class ClusterSurvey:
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
    """The earliest time for which the groups' records prove a plugin."""
    stored: tuple[str, ...] = ()
    """The groups whose description is stored, or may be, as far as the log says."""


NO_SURVEY = ClusterSurvey()


class LostDescription(NamedTuple):
    """A description that the log says is stored, and that the plugin does not return."""

    group_id: str
    status: str
    """NOT_STORED or ERROR."""
    topology_epoch: int | None
    since: datetime
    """When the broker first said so."""


class PluginStatus(NamedTuple):
    """Which brokers have a plugin for topology descriptions, as far as their configs may be read."""

    brokers_with: tuple[int, ...] = ()
    brokers_without: tuple[int, ...] = ()
    left_behind: tuple[tuple[str, datetime], ...] = ()
    """The groups that were deleted without their descriptions, and when; the newest first."""


def survey_cluster(groups: Iterable[GroupSnapshot]) -> ClusterSurvey:
    """Survey all groups of a cluster."""
    counted = [counts_as(group) for group in groups]
    with_members = [one.is_described for one in counted if one.has_members]
    return ClusterSurvey(
        described=with_members.count(True),
        undescribed=with_members.count(False),
        newest_push_at=max((one.pushed_at for one in counted if one.pushed_at), default=None),
        newest_first_description_at=max((one.first_at for one in counted if one.first_at), default=None),
        plugin_since=min((one.evidence_since for one in counted if one.evidence_since), default=None),
        stored=tuple(sorted(one.stored for one in counted if one.stored is not None)),
    )


class Counted(NamedTuple):
    """All that a survey says of a group: as long as that stays the same for each group, the survey does."""

    has_members: bool
    is_described: bool
    pushed_at: datetime | None
    first_at: datetime | None
    """When it got its first description."""
    evidence_since: datetime | None
    stored: str | None
    """Its id, if its description is stored."""


def counts_as(group: GroupSnapshot) -> Counted:
    """Return what a group adds to the survey."""
    is_described = had_description(group)
    pushed_at = group.description_since if group.description_status in _PUSHED else None
    pushes = [at for at in (pushed_at, group.last_unsolicited_push_at) if at and is_described]
    return Counted(
        bool(group.member_count),
        is_described,
        max(pushes, default=None),
        group.first_described_at,
        _evidence_since(group) if is_described else None,
        group.group_id if group.stored_description_epoch != NONE else None,
    )


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


def _evidence_since(group: GroupSnapshot) -> datetime:
    """Return the time of the proof; a record without a timestamp counts as 1970."""
    return group.first_described_at or group.description_since or group.first_seen_at or EPOCH


NO_PLUGIN = PluginStatus()
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
        if self._mode == "never":
            return None
        if self._mode == "always":
            return EPOCH
        pushed_at = survey.newest_push_at
        if self._removed_at is None:
            evidence = survey.plugin_since
        else:  # only what came after that is evidence
            evidence = pushed_at if pushed_at and pushed_at > self._removed_at else None
        known = (self.known_since, self._plugin_since, evidence)
        self.known_since = min((since for since in known if since), default=None)
        return self.known_since
