"""What rules get to see: the context of an evaluation, their settings, and what they have in common. Only data."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.alerts.problem import ProblemKey
from streaming_app.alerts.survey import NO_SURVEY, ClusterSurvey, LostDescription
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.history import GroupHistory
from streaming_app.lag.work import GroupWork

MAX_NEW_GROUPS = 100


@dataclass(frozen=True)
class EvaluationContext:
    """What one evaluation passes to every rule, in addition to the snapshot that the rule checks."""

    now: datetime
    """Aware, UTC."""
    histories: Mapping[str, GroupHistory] = field(default_factory=dict)
    """What happened lately, by group; groups to which nothing happened are missing."""
    survey: ClusterSurvey = NO_SURVEY
    """What the rules about one group need to know of the others."""
    descriptions_since: datetime | None = None
    """Since when the cluster is known to keep topology descriptions, see `DescriptionSupport`; None if it is not."""
    descriptions_required: bool = False
    """Every group is to have a description, also one that never had any: `descriptions: always`."""
    open_problems: Container[ProblemKey] = ()
    """Those that are pending or open."""
    copies: Sequence[GroupCopies] | None = ()
    """The copies of the tasks of each group that the brokers described lately; None before they were asked."""
    work: Mapping[str, GroupWork] | None = field(default_factory=dict)
    """What waits for each group; None while the lag is not known."""
    max_new_groups: int = MAX_NEW_GROUPS
    """Of how many new groups there are findings: of the oldest."""
    left_out: set[str] = field(default_factory=set)
    """The new groups whose findings are left out; `evaluate` fills it."""
    failed: set[ProblemKey] = field(default_factory=set)
    """Rules that could not be evaluated for a group; `evaluate` fills it."""
    lost_descriptions: Sequence[LostDescription] | None = ()
    """The descriptions that the plugin does not return; None before the job has looked."""


class RuleSettings(NamedTuple):
    """A rule's settings as they apply to one group, or to the job."""

    severity: str
    for_seconds: float
    """How long, in seconds, the condition must hold before a problem opens."""
    while_catching_up: bool = False


RuleSettingsLookup = Callable[[str | None], Mapping[str, RuleSettings]]
"""Returns the settings of each rule that is enabled for a group, by the rule's name; for None, those for the job."""


def latest(*times: datetime | None) -> datetime | None:
    """Return the latest of the times that are known."""
    return max((time for time in times if time is not None), default=None)


def since_or_fallback(time: datetime | None, group: GroupSnapshot) -> datetime | None:
    """Return `time`, or if the log has none, the best known time that is not earlier, so that nothing fires early."""
    return time or group.updated_at or group.first_seen_at


def is_recent(time: datetime | None, window: timedelta, now: datetime) -> bool:
    """Tell whether something happened within the last `window`. A time ahead of `now` counts as recent."""
    return time is not None and now - time < window


def to_iso(time: datetime) -> str:
    """Format a time for the evidence of a finding."""
    return time.isoformat()


def format_time(time: datetime) -> str:
    """Format a time for a summary: to the second, UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
