"""What the engine and the rules see: the settings, what is observed of a cluster, and what follows from it. Pure.

A missing description is worth an alert only where the brokers have a description plugin. `DescriptionSupport` decides
that. The setting `alerts.descriptions` says it, or, with `auto`, one of these is evidence: the brokers' configuration
names a plugin, a group's records prove a push, or an earlier run of the job found either. It ends once the brokers'
configuration was read and names none, until there is newer evidence: what the plugin stored before stays in the groups'
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from streaming_app.alerts.catalog import Rule
from streaming_app.alerts.problem import Problem, ProblemKey
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
"""Returns each rule that is enabled for a group, or for the job if that is None, by name, with its settings there."""


@dataclass(frozen=True)
class EngineSettings:
    """What the engine needs of the configuration; functions are of a group's id, or of a problem."""

    cluster: str
    rule_settings_of: RuleSettingsLookup
    sinks: tuple[str, ...] = ()
    """The names of the sinks that get alerts."""
    lag_of_all_groups: bool = False
    late_seconds: float = 120.0
    """How long ago the records may be read for groups to be judged by them."""
    running_hours_of: Callable[[str], Sequence[TimeInterval]] = lambda _group_id: ()
    """When a group is meant to run, if that is declared."""
    successors: Mapping[str, str] = field(default_factory=dict)
    """Group to the one that is declared to take over from it."""
    labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {}
    is_muted: Callable[[Problem], object] = lambda _one: False
    """Whether a problem is muted now."""


class LostDescription(NamedTuple):
    """A description that the log says is stored, and that the plugin does not return."""

    status: str
    """NOT_STORED or ERROR."""
    topology_epoch: int | None
    since: datetime
    """When the broker first said so."""


class TopicDifference(NamedTuple):
    """An internal topic that is not as the topology of its group asks for."""

    topic: str
    name: str
    """`partitions`, `replication_factor` or the name of a config of topics."""
    value: str
    """`ACTUAL, asked for WANTED`."""
    since: datetime
    """When the job first saw it."""


@dataclass(frozen=True)
class Observed(Known):
    """What is known of a cluster at one time: also what only the rules look at."""

    job: JobStatus | None = None
    """None: the rules about the job are not evaluated, and it has caught up."""
    lost_descriptions: Mapping[str, LostDescription] | None = field(default_factory=dict)
    """By group the description that the plugin does not return; None before the job has looked."""
    topic_differences: Mapping[str, Sequence[TopicDifference]] | None = field(default_factory=dict)
    """By group what of internal topics is not as it was asked for; None before the job has looked."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """Problems that a person ended, by id, and why."""


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
    """Whether and since when the cluster keeps topology descriptions, and which groups are to have one.

    With `auto` that is since the earliest time of any evidence. It stays known if the group with the evidence is
    deleted: the heartbeat file keeps `known_since` and `removed_at` across restarts. While the brokers' configuration
    is not known, it is as it was.
    """

    def __init__(
        self, mode: DescriptionMode, *, known_since: datetime | None = None, removed_at: datetime | None = None
    ) -> None:
        """Start from what an earlier run knew."""
        self._mode, self.known_since = mode, known_since
        self.removed_at = removed_at
        """When the brokers were first seen without a plugin; None: they have one, or that is not known."""
        self._pushed_at: datetime | None = None  # the newest push: the brokers had a plugin then
        self._upgraded_at: datetime | None = None  # the newest first description: clients were upgraded then
        self.described = self.undescribed = 0
        """How many groups with members have, or once had, a description, and how many never had one."""

    @property
    def since(self) -> datetime | None:
        """Since when the cluster keeps descriptions; None if it does not, or there is no evidence yet."""
        return {"always": EPOCH, "never": None}.get(self._mode, self.known_since)

    def plugin_found(self, at: datetime) -> None:
        """Record that the brokers' configuration named a plugin at this time."""
        self.known_since, self.removed_at = min(self.known_since or at, at), None

    def plugin_absent(self, at: datetime) -> None:
        """Record that the brokers' configuration was read at this time and named no plugin."""
        self.removed_at = self.removed_at or at
        self.known_since = self._pushed_since_removal(self._pushed_at)

    def group_changed(self, old: GroupSnapshot | None, new: GroupSnapshot | None) -> None:
        """Take in the records of a group."""
        for group, by in ((old, -1), (new, 1)):
            if group and group.member_count:
                had = had_description(group)
                self.described, self.undescribed = self.described + by * had, self.undescribed + by * (not had)
        if new is None or not had_description(new):
            return
        first_at, at = new.first_described_at, new.description_since
        pushed_at = latest(new.last_unsolicited_push_at, at if new.description_status in _PUSHED else None)
        self._pushed_at, self._upgraded_at = latest(self._pushed_at, pushed_at), latest(self._upgraded_at, first_at)
        proven_at = first_at or at or new.first_seen_at or EPOCH  # a record without a time counts as 1970
        evidence = self._pushed_since_removal(pushed_at) if self.removed_at else proven_at
        self.known_since = min((one for one in (self.known_since, evidence) if one), default=None)

    def _pushed_since_removal(self, at: datetime | None) -> datetime | None:
        return at if at and self.removed_at and at > self.removed_at else None

    def expects_one(self, group: GroupSnapshot, asked_since: datetime | None, now: datetime) -> bool:
        """Tell whether the clients of a group are known, or can be expected, to send a description when asked.

        Every group is with `always`, and one that had a description. Of any other one see `alerts.conditions`.
        """
        if self._mode == "always" or had_description(group):
            return True
        if self._pushed_at is None or self._upgraded_at is None or asked_since is None:
            return False
        are_nearly_all = self.described >= (self.described + self.undescribed - 1) * _NEARLY_ALL
        return self._pushed_at > asked_since and are_nearly_all and now - self._upgraded_at >= _UPGRADED_FOR


@dataclass(frozen=True)
class Facts:
    """What the conditions of the rules about groups see: what is observed, and what is known of the cluster."""

    now: datetime
    """Aware, UTC."""
    observed: Observed
    open: Mapping[ProblemKey, Problem] = field(default_factory=dict)
    """The problems that are pending or open."""
    descriptions: DescriptionSupport = field(default_factory=lambda: DescriptionSupport("never"))
