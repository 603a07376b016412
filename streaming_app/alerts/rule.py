"""What the rules see: what is observed of a cluster, and their settings. Only data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from streaming_app.alerts.problem import Problem, ProblemKey
from streaming_app.alerts.survey import NO_SURVEY, ClusterSurvey, LostDescription, TopicDifference
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import GroupHistory
from streaming_app.health.verdict import Away
from streaming_app.job_status import JobStatus
from streaming_app.lag.work import GroupWork


class RuleSettings(NamedTuple):
    """A rule's settings as they apply to one group, or to the job."""

    severity: str
    for_seconds: float
    """How long, in seconds, the condition must hold before a problem opens."""
    while_catching_up: bool = False


RuleSettingsLookup = Callable[[str | None], Mapping[str, RuleSettings]]
"""Returns the settings of each rule that is enabled for a group, by the rule's name; for None, those for the job."""


@dataclass(frozen=True)
class Observed:
    """What is known of a cluster at one time."""

    groups: Mapping[str, GroupSnapshot]
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    """What happened lately, by group; groups to which nothing happened are missing."""
    job: JobStatus | None = None
    """None: the rules about the job are not evaluated, and it has caught up."""
    copies: Sequence[GroupCopies] | None = ()
    """What is known of copies of tasks; None while it is not known."""
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """What waits for each group; None while the lag is not known."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a topic keeps records."""
    away: Away = field(default_factory=dict)
    """The partitions without a leader by the broker that led them."""
    lost_descriptions: Sequence[LostDescription] | None = ()
    """The descriptions that the plugin does not return; None before the job has looked."""
    topic_differences: Sequence[TopicDifference] | None = ()
    """What of internal topics is not as it was asked for; None before the job has looked."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """Problems that a person ended, by id, and why."""
    is_muted: Callable[[Problem], bool] | None = None
    """Tells whether a problem is muted; None: no mute is active."""


@dataclass(frozen=True)
class Facts:
    """What the conditions of the rules about groups see: what is observed, and what is known of the cluster."""

    now: datetime
    """Aware, UTC."""
    observed: Observed
    open: Mapping[ProblemKey, Problem] = field(default_factory=dict)
    """The problems that are pending or open."""
    survey: ClusterSurvey = NO_SURVEY
    descriptions_since: datetime | None = None
    """Since when the cluster is known to keep topology descriptions, see `DescriptionSupport`; None if it is not."""
    descriptions_required: bool = False
    """Every group is to have a description, also one that never had any: `descriptions: always`."""

    @cached_property
    def copies(self) -> Mapping[str, GroupCopies]:
        """What is known of copies of tasks, by group."""
        return {one.group_id: one for one in self.observed.copies or ()}

    @cached_property
    def lost(self) -> Mapping[str, LostDescription]:
        """The descriptions that the plugin does not return, by group."""
        return {one.group_id: one for one in self.observed.lost_descriptions or ()}

    @cached_property
    def topic_differences(self) -> Mapping[str, Sequence[TopicDifference]]:
        """What of internal topics is not as it was asked for, by group."""
        those = sorted(self.observed.topic_differences or ())
        return {group_id: list(some) for group_id, some in groupby(those, attrgetter("group_id"))}
