"""What a rule is: one entry of data, with its documentation. The rules themselves are in the `*_rules` modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from streaming_app.core.alert import WARNING, Finding
from streaming_app.core.facts import GroupFacts

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

Thresholds = Mapping[str, float]
"""Name to value; durations are in seconds."""

GROUP_ID = "GROUP_ID"
"""Stands for the group's id in the SQL of a rule's documentation."""


@dataclass(frozen=True)
class Look:
    """One look at everything: what the rules know besides the facts."""

    now: datetime
    """Aware, UTC."""
    rebalances: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    """When new assignments were made, by group, the oldest first; groups without recent ones may be left out."""
    descriptions_since: datetime | None = None
    """Since when the cluster is known to keep topology descriptions; None while it is not, see `descriptions_since`."""


class Threshold(NamedTuple):
    """A number that a rule compares with. Where `seconds`, the settings take durations such as `10m`."""

    default: float
    about: str
    seconds: bool = False


class Terms(NamedTuple):
    """A rule's settings as they apply to one group, or to the job."""

    severity: str
    grace: float
    """How long, in seconds, the condition must hold before the alert fires."""
    thresholds: Thresholds
    while_catching_up: bool = False


Facts = TypeVar("Facts")


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[Facts]):
    """A condition that people are told of.

    `find` is pure: it gives what is wrong, and since when, or None. A finding's summary and details hold nothing that
    changes while nothing happens, such as an age: what changes is written to the table.
    """

    name: str
    find: Callable[[Facts, Thresholds, Look], Finding | None]
    severity: str = WARNING
    grace: float | None = 0.0
    """The default of `for`, in seconds. None: the rule is about a moment or a rate, and has no grace but its window."""
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    while_catching_up: bool = False
    """It may fire before the job has caught up, as it does not look at the groups."""

    meaning: str
    """What it means, in a few sentences; and why the defaults are what they are."""
    look_at: Mapping[str, str]
    """Question to SQL (DataFusion's) that answers it; `GROUP_ID` stands for the group's id."""
    to_do: tuple[str, ...]
    """Steps, the most likely first."""

    @property
    def terms(self) -> Terms:
        """The settings of those who set nothing."""
        values = {name: threshold.default for name, threshold in self.thresholds.items()}
        return Terms(self.severity, self.grace or 0.0, values, self.while_catching_up)

    def queries(self, group_id: str) -> dict[str, str]:
        """`look_at` with the group's id put in."""
        return {question: sql.replace(GROUP_ID, group_id.replace("'", "''")) for question, sql in self.look_at.items()}


@dataclass(frozen=True, kw_only=True)
class GroupRule(Rule[GroupFacts]):
    """A rule about each streams group. `find` is asked only of groups in these states and description statuses."""

    states: frozenset[str]
    statuses: frozenset[str] | None = None
    """None: whatever the description's status."""
    of_descriptions: bool = False
    """It says nothing on a cluster that does not keep topology descriptions."""


def later(*times: datetime | None) -> datetime | None:
    """The latest of the times that are known."""
    return max((time for time in times if time is not None), default=None)


def known_since(time: datetime | None, group: GroupFacts, now: datetime) -> datetime:
    """`time`, or if the log has none, the next best that is not earlier, so that nothing fires early."""
    return time or group.updated_at or group.first_seen_at or now


def is_recent(time: datetime | None, seconds: float, now: datetime) -> bool:
    """Tell whether something happened in the last `seconds`; what the broker's clock puts in the future did."""
    return time is not None and now - time < timedelta(seconds=seconds)


def iso(time: datetime) -> str:
    """A time for the details of a finding."""
    return time.isoformat()


def clock(time: datetime) -> str:
    """A time for a summary: to the second, UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def count(number: int, thing: str) -> str:
    """`1 member`, `2 members`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
