"""What a rule is: one entry of data, with its documentation. The rules themselves are in the `*_rules` modules."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from streaming_app.alerts.problem import WARNING, Finding, ProblemKey
from streaming_app.alerts.survey import NO_SURVEY, ClusterSurvey, LostDescription
from streaming_app.groups.copies_status import GroupCopies
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import DEAD, STATES
from streaming_app.health.history import GroupHistory
from streaming_app.job_status import DifferingGroup
from streaming_app.lag.group_lag import GroupLag

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

MAX_NEW_GROUPS = 100

Thresholds = Mapping[str, float]
"""Name to value; durations are in seconds."""

GROUP_ID = "GROUP_ID"
"""Placeholder for the group's id in the SQL of a rule's documentation."""


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
    firing_problems: Container[ProblemKey] = ()
    """Those of `open_problems` that are not pending."""
    differing_groups: Sequence[DifferingGroup] = ()
    """The groups that the self-check reports; they need not be in the tables."""
    copies: Sequence[GroupCopies] | None = ()
    """The copies of the tasks of each group that the brokers described lately; None before they were asked."""
    lag: Mapping[str, GroupLag] | None = field(default_factory=dict)
    """The groups with whose lag something is wrong; None while the lag is not known."""
    max_new_groups: int = MAX_NEW_GROUPS
    """Of how many new groups there are findings: of the oldest."""
    left_out: set[str] = field(default_factory=set)
    """The new groups whose findings are left out; `evaluate` fills it."""
    failed: set[ProblemKey] = field(default_factory=set)
    """Rules that could not be evaluated for a group; `evaluate` fills it."""
    lost_descriptions: Sequence[LostDescription] | None = ()
    """The descriptions that the plugin does not return; None before the job has looked."""


class Threshold(NamedTuple):
    """A number that a rule compares with. With `seconds`, the settings accept durations such as `10m`."""

    default: float
    about: str
    seconds: bool = False


class RuleSettings(NamedTuple):
    """A rule's settings as they apply to one group, or to the job."""

    severity: str
    for_seconds: float
    """How long, in seconds, the condition must hold before the alert fires."""
    thresholds: Thresholds
    while_catching_up: bool = False


RuleSettingsLookup = Callable[[str | None], Mapping[str, RuleSettings]]
"""Returns the settings of each rule that is enabled for a group, by the rule's name; for None, those for the job."""

Snapshot = TypeVar("Snapshot")


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[Snapshot]):
    """An alert condition, with its defaults and its documentation.

    `find` is pure: it returns what is wrong and since when, or None. The summary and details of a finding must not
    change while nothing happens, as an age would: every change is written to the table.
    """

    name: str
    find: Callable[[Snapshot, Thresholds, EvaluationContext], Finding | None]
    severity: str = WARNING
    for_seconds: float | None = 0.0
    """The default of `for`. None: the rule is about an event or a rate, and has a window instead of `for`."""
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    while_catching_up: bool = False
    """It may fire before the job has caught up, because it does not read the groups."""

    meaning: str
    """What the alert means, in a few sentences, and the reasons for the defaults."""
    queries: Mapping[str, str]
    """Question to the SQL (DataFusion's) that answers it; `GROUP_ID` is the placeholder for the group's id."""
    steps: tuple[str, ...]
    """What to do, the most likely first."""

    @property
    def default_settings(self) -> RuleSettings:
        """The settings that apply where the configuration sets nothing."""
        values = {name: threshold.default for name, threshold in self.thresholds.items()}
        return RuleSettings(self.severity, self.for_seconds or 0.0, values, self.while_catching_up)

    def queries_for(self, group_id: str) -> dict[str, str]:
        """Return `queries` for this group."""
        return {question: sql.replace(GROUP_ID, group_id.replace("'", "''")) for question, sql in self.queries.items()}


def always(_group: GroupSnapshot) -> bool:
    """Tell that a rule is about every group in its states and statuses."""
    return True


@dataclass(frozen=True, kw_only=True)
class GroupRule(Rule[GroupSnapshot]):
    """A rule that is checked for each streams group in one of these states and description statuses."""

    states: frozenset[str]
    statuses: frozenset[str] | None = None
    """None: any description status."""
    about: Callable[[GroupSnapshot], object] = always
    """What of the group it is about: where that is absent, or zero, it has no finding."""
    requires_descriptions: bool = False
    """Not checked on a cluster that does not keep topology descriptions."""
    hidden_by: frozenset[str] = frozenset()
    """Rules that say the same and more: with a finding of one of them for the group, this rule has none."""


NOT_DEAD = frozenset(STATES) - {DEAD}
"""The states of a group that exists."""


def latest(*times: datetime | None) -> datetime | None:
    """Return the latest of the times that are known."""
    return max((time for time in times if time is not None), default=None)


def since_or_fallback(time: datetime | None, group: GroupSnapshot) -> datetime | None:
    """Return `time`, or if the log has none, the best known time that is not earlier, so that nothing fires early."""
    return time or group.updated_at or group.first_seen_at


def is_recent(time: datetime | None, seconds: float, now: datetime) -> bool:
    """Tell whether something happened in the last `seconds`. A time ahead of `now` counts as recent."""
    return time is not None and now - time < timedelta(seconds=seconds)


def to_iso(time: datetime) -> str:
    """Format a time for the details of a finding."""
    return time.isoformat()


def format_time(time: datetime) -> str:
    """Format a time for a summary: to the second, UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
