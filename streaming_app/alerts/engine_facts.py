"""The input of the engine and the rules: settings, facts about a cluster, and whether it keeps descriptions. Pure.

A missing description is worth an alert only if the brokers have a description plugin. `DescriptionSupport` decides
this. The setting `alerts.descriptions` may state it. With `auto` there must be evidence: the brokers' configuration
names a plugin, the records of a group prove a push, or an earlier run of the job found one of these. If the brokers'
configuration names no plugin any more, only newer evidence counts, because records keep older results of a plugin.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from streaming_app.alerts.alert import Alert, AlertKey
from streaming_app.alerts.catalog import Rule
from streaming_app.groups.group import CLASSIC
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import NONE
from streaming_app.health.board import Known
from streaming_app.health.time_intervals import TimeInterval
from streaming_app.job_status import JobStatus
from streaming_app.text import EPOCH

_PUSHED = frozenset({"CURRENT", "UNCERTAIN", "FAILED"})
_NEARLY_ALL = 0.9  # of the groups
_UPGRADED_FOR = timedelta(days=7)  # since a group of the cluster got its first description

RuleSettingsLookup = Callable[[str | None], Mapping[str, Rule]]
"""Group id, or None for the job -> its enabled rules by name, with the settings for this group."""


@dataclass(frozen=True)
class EngineSettings:
    """The settings of the engine. Functions take a group id, or an alert."""

    cluster: str
    rule_settings_of: RuleSettingsLookup
    sinks: tuple[str, ...] = ()
    lag_of_all_groups: bool = False
    of_classic_groups: bool = False
    """Whether rules apply to Kafka Streams with the classic protocol. These groups get verdicts all the same."""
    late_seconds: float = 120.0
    """If the job reads records later than this, verdicts stay as they are."""
    running_hours_of: Callable[[str], Sequence[TimeInterval]] = lambda _group_id: ()
    """When a group has to run (`running_hours`); empty: always."""
    successors: Mapping[str, str] = field(default_factory=dict)
    """Group -> the group that takes over from it (`alerts.successors`)."""
    labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {}
    is_muted: Callable[[Alert], object] = lambda _one: False
    first_started_at: datetime | None = None
    """When the job first started on the cluster; None: not known, and no alert is old."""


class LostDescription(NamedTuple):
    """A description that is stored by the log, but that the plugin does not return."""

    status: str
    """NOT_STORED or ERROR."""
    topology_epoch: int | None
    since: datetime
    """When the broker first answered this."""


class TopicDifference(NamedTuple):
    """A difference between an internal topic and what the topology of its group asks for."""

    topic: str
    name: str
    """`partitions`, `replication_factor` or the name of a config of topics."""
    value: str
    """`ACTUAL, asked for WANTED`."""
    since: datetime
    """When the job first saw it."""


@dataclass(frozen=True)
class Observed(Known):
    """The facts about a cluster at one time, also those that only the rules need."""

    job: JobStatus | None = None
    """None: rules about the job are not evaluated, and the job counts as caught up."""
    lost_descriptions: Mapping[str, LostDescription] | None = field(default_factory=dict)
    """Group -> the description that the plugin does not return; None before the job has asked."""
    topic_differences: Mapping[str, Sequence[TopicDifference]] | None = field(default_factory=dict)
    """Group -> the differences of its internal topics; None before the job has asked."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """Id of an alert that a person ended -> the reason."""


def latest(*times: datetime | None) -> datetime | None:
    """Return the latest of the known times."""
    return max((time for time in times if time is not None), default=None)


def had_description(group: GroupSnapshot) -> bool:
    """Return whether the group's records prove that a member ever pushed a description.

    A push that was stored, failed, started or unsolicited also proves that the brokers had a plugin. With the classic
    protocol there are no descriptions.
    """
    return group.protocol != CLASSIC and (
        group.stored_description_epoch != NONE
        or group.first_described_at is not None
        or group.failed_description_epoch != NONE
        or group.unsolicited_pushes > 0
    )


DescriptionMode = Literal["auto", "always", "never"]


class DescriptionSupport:
    """Whether and since when the cluster keeps topology descriptions, and which groups should have one.

    With `auto` this is since the earliest evidence. It stays known after the group with the evidence is deleted: the
    heartbeat file keeps `known_since` and `removed_at` across restarts. While the brokers' configuration is not known,
    nothing changes.
    """

    def __init__(
        self, mode: DescriptionMode, *, known_since: datetime | None = None, removed_at: datetime | None = None
    ) -> None:
        self._mode, self.known_since = mode, known_since
        self.removed_at = removed_at
        """When the brokers were first seen without a plugin; None: they have one, or it is not known."""
        self._pushed_at: datetime | None = None  # the newest push: at this time the brokers had a plugin
        self._upgraded_at: datetime | None = None  # when a group last got its first description, after an upgrade
        self.described = self.undescribed = 0
        """How many groups with members have or had a description, and how many never had one."""

    @property
    def since(self) -> datetime | None:
        """Since when the cluster keeps descriptions; None if it does not, or there is no evidence yet."""
        return {"always": EPOCH, "never": None}.get(self._mode, self.known_since)

    def plugin_read(self, at: datetime, *, exists: bool | None) -> None:
        """Note whether the brokers' configuration named a plugin at this time; None: that is not known."""
        if exists:
            self.known_since, self.removed_at = min(self.known_since or at, at), None
        elif exists is not None:
            self.removed_at = self.removed_at or at
            self.known_since = self._pushed_since_removal(self._pushed_at)

    def group_changed(self, old: GroupSnapshot | None, new: GroupSnapshot | None) -> None:
        """Update from a changed group; None: the group did not exist before, or is gone."""
        for group, by in ((old, -1), (new, 1)):
            if group and group.member_count and group.protocol != CLASSIC:
                had = had_description(group)
                self.described, self.undescribed = self.described + by * had, self.undescribed + by * (not had)
        if new is None or not had_description(new):
            return
        first_at, at = new.first_described_at, new.description_since
        pushed_at = latest(new.last_unsolicited_push_at, at if new.description_status in _PUSHED else None)
        self._pushed_at, self._upgraded_at = latest(self._pushed_at, pushed_at), latest(self._upgraded_at, first_at)
        proven_at = first_at or at or new.metadata_at or new.first_seen_at or EPOCH  # 1970: a record without a time
        evidence = self._pushed_since_removal(pushed_at) if self.removed_at else proven_at
        self.known_since = min((one for one in (self.known_since, evidence) if one), default=None)

    def _pushed_since_removal(self, at: datetime | None) -> datetime | None:
        return at if at and self.removed_at and at > self.removed_at else None

    def expects_one(self, group: GroupSnapshot, asked_since: datetime | None, now: datetime) -> bool:
        """Return whether a description of a group is expected.

        It is with `always`, and if the group had one before. For other groups see `alerts.group_conditions`.
        """
        if self._mode == "always" or had_description(group):
            return True
        is_after = self._pushed_at is not None and asked_since is not None and self._pushed_at > asked_since
        return is_after and self.expects_first_ones(now)

    def expects_first_ones(self, now: datetime) -> bool:
        """Return whether a group that never had a description may be expected to have one."""
        if self._mode == "always":
            return True
        if self.since is None or self._pushed_at is None or self._upgraded_at is None:
            return False
        are_nearly_all = self.described >= (self.described + self.undescribed - 1) * _NEARLY_ALL
        return are_nearly_all and now - self._upgraded_at >= _UPGRADED_FOR


@dataclass(frozen=True)
class EngineFacts:
    """The input of the conditions of the rules about groups."""

    now: datetime
    """Aware, UTC."""
    observed: Observed
    open: Mapping[AlertKey, Alert] = field(default_factory=dict)
    descriptions: DescriptionSupport = field(default_factory=lambda: DescriptionSupport("never"))
    not_judged: Mapping[str, str] = field(default_factory=dict)
    """Group whose verdict could not be decided -> the error."""
