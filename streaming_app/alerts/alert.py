"""What an alert is: the data that the rules, the lifecycle, the table and the sinks share. Only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.text import rank

WARNING, CRITICAL, INFO = "warning", "critical", "info"
_MOST_SEVERE_FIRST = (CRITICAL, WARNING, INFO)
PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"
INCIDENT = "incident"
"""The key of the details with the id of an incident."""
WAS = "was"
"""The key of the details with what an alert was before: rule and severity, as text, for each."""


def severity_rank(severity: str) -> int:
    """Return the place of a severity, the most severe first; one that only a later release has is the last."""
    return rank(severity, _MOST_SEVERE_FIRST)


class Identity(NamedTuple):
    """What receivers route by, and which changes when an alert becomes worse."""

    rule: str
    severity: str

    def __str__(self) -> str:
        return " ".join(self)

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Return that of a text as `str` makes it."""
        rule, severity, *_ = text.split(" ")
        return cls(rule, severity)


class AlertKey(NamedTuple):
    """A rule and a group; `group_id` is None for the job or the cluster. At most one alert per key is open.

    Of an alert about an incident, the id of that takes the place of the rule, which changes with the verdict.
    """

    rule: str
    group_id: str | None


@dataclass(frozen=True)
class Finding:
    """The result of a rule whose condition holds: since when, and the context."""

    since: datetime | None
    """None: not known; it then counts from when it was first found."""
    summary: str
    """One line for an operator who was just woken: what is wrong, with what, and why."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further context, as JSON: numbers, names, times as ISO 8601 text. No value is null."""
    rule: str | None = None
    """The rule that it is of, if it is not the one in the key."""
    severity: str | None = None
    """What follows from it for whoever it is about, if that is not always as severe as the rule."""


@dataclass(frozen=True)
class Delivery:
    """The state of one notification of an alert to one sink; `event` is `firing` or `resolved`."""

    sink: str
    event: str
    sent_at: datetime | None = None
    attempts: int = 0
    error: str | None = None
    """Why the last attempt failed; None once it was sent."""
    repeat: int = 0
    """The number of the repetition, with `repeat_after`: 0 for the first notification."""


@dataclass(frozen=True)
class Alert:
    """A row of `alerts`."""

    cluster: str
    group_id: str | None
    rule: str
    severity: str
    state: str
    pending_since: datetime
    """Since when the condition has held: the broker's time, where the log has it."""
    opened_at: datetime | None
    """When it fired; None while pending."""
    resolved_at: datetime | None
    summary: str
    details: Mapping[str, Any]
    deliveries: tuple[Delivery, ...] = ()

    @property
    def incident_id(self) -> str | None:
        """The incident that it is about; None of a rule that is not about incidents."""
        return self.details.get(INCIDENT)

    @property
    def identity(self) -> Identity:
        """What receivers route it by now."""
        return Identity(self.rule, self.severity)

    @property
    def was(self) -> tuple[Identity, ...]:
        """What it was before while it fired, the first one first."""
        return tuple(Identity.parse(text) for text in self.details.get(WAS, ()))

    @property
    def key(self) -> AlertKey:
        """The rule, or the incident, and the group of the alert."""
        return AlertKey(self.incident_id or self.rule, self.group_id)

    @property
    def urgency(self) -> tuple[Any, ...]:
        """A sort key: alerts that fire first, then the most severe, then those that have lasted longest."""
        state = (FIRING, PENDING, RESOLVED).index(self.state)
        return (state, severity_rank(self.severity), self.pending_since, self.rule, self.group_id or "")

    @property
    def fingerprint(self) -> str:
        """Identifies this alert across restarts: `cluster/rule/group_id/opened_at`. Receivers deduplicate by it."""
        opened = self.opened_at.isoformat() if self.opened_at else ""
        return "/".join((self.cluster, self.key.rule, self.group_id or "", opened))
