"""What an alert is: the data that rules, the life cycle, the table, and the sinks share. Only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

WARNING, CRITICAL, INFO = "warning", "critical", "info"
PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"


class AlertKey(NamedTuple):
    """At most one alert of a key is open at a time; `group_id` is None for alerts about the job or the cluster."""

    rule: str
    group_id: str | None


@dataclass(frozen=True)
class Finding:
    """A rule's condition holds, since when, and what to know about it."""

    since: datetime
    summary: str
    """One line for a person who was just woken: what is wrong with what, and why."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else to know, as JSON: numbers, names, times as ISO 8601 text. No value of it is null."""


@dataclass(frozen=True)
class Delivery:
    """What became of one notification of an alert: `event` is `firing` or `resolved`."""

    sink: str
    event: str
    sent_at: datetime | None = None
    attempts: int = 0
    error: str | None = None
    """Why the last try failed; None once it was sent."""
    repeat: int = 0
    """Which telling it is, where alerts that go on are told again: 0 for the first."""


@dataclass(frozen=True)
class Alert:
    """A row of `alerts`."""

    cluster: str
    group_id: str | None
    rule: str
    severity: str
    state: str
    pending_since: datetime
    """Since when the condition has held: the broker's time where the log tells it."""
    opened_at: datetime | None
    """When it fired; None while pending."""
    resolved_at: datetime | None
    summary: str
    details: Mapping[str, Any]
    deliveries: tuple[Delivery, ...] = ()

    @property
    def key(self) -> AlertKey:
        """What it is about."""
        return AlertKey(self.rule, self.group_id)

    @property
    def fingerprint(self) -> str:
        """Names this one alert, over restarts: `cluster/rule/group_id/opened_at`; what receivers tell doubles by."""
        opened = self.opened_at.isoformat() if self.opened_at else ""
        return "/".join((self.cluster, self.rule, self.group_id or "", opened))
