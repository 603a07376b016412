"""What a problem is: a rule and a group (or the job), from when it opens until it ends. Only data.

A row of the table `alerts` is a problem. The rules, `alerts.problems`, the table and the sinks share it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.text import rank

WARNING, CRITICAL, INFO = "warning", "critical", "info"
_MOST_SEVERE_FIRST = (CRITICAL, WARNING, INFO)
PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"
"""Of a problem that has not opened yet, that is open, and that has ended; the last two are events of sinks, too."""
HEALTH = "health"
"""The subject of all rules about the verdict on a group: a group has one problem with its health at a time."""
BY_EVIDENCE, IGNORED, NOT_ENABLED = "evidence", "ignored", "not enabled"
"""What ended a problem: its condition is over, or the configuration ignores the group, or disables the rule."""


def severity_rank(severity: str | None) -> int:
    """Return the place of a severity, the most severe first; one that only a later release has is the last."""
    return rank(severity, _MOST_SEVERE_FIRST)


class ProblemKey(NamedTuple):
    """A subject, which is a rule or `HEALTH`, and a group. At most one problem with a key is open."""

    subject: str
    group_id: str | None
    """None: the problem is of the job or the cluster."""


@dataclass(frozen=True)
class Finding:
    """A rule's condition holds: since when, and the context."""

    since: datetime | None
    """None: not known; it then counts from when it was first found."""
    summary: str
    """One line for an operator who was just woken: what is wrong, with what, and why."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, names, times as ISO 8601 text: as JSON. No value is null."""
    severity: str | None = None
    """What follows from it for whoever it is about, if that is not always as severe as the rule."""
    verdict: str | None = None
    """The verdict that it comes from."""
    causes: Sequence[str] = ()
    """What is proven to be the cause, and may be that of other problems: `missing_topic:orders`, `broker_away:3`."""


class Over(NamedTuple):
    """A rule's condition is over; of the health of a group a good verdict says so, and why."""

    verdict: str | None = None
    why: str = ""


OVER = Over()
Truth = Finding | Over | None
"""Whether a condition holds. None: that is not known, and everything stays as it is."""


class Line(NamedTuple):
    """A line of the time line of a problem: it opened, became worse or better, or ended."""

    at: datetime
    verdict: str | None
    """The verdict on the group; None of a rule that is about something else."""
    rule: str
    severity: str
    """Rule and severity are those of the problem from then on: the worst so far."""
    why: str


@dataclass(frozen=True)
class Delivery:
    """The state of one notification of a problem to one sink; `event` is `firing` or `resolved`."""

    sink: str
    event: str
    sent_at: datetime | None = None
    attempts: int = 0
    """How many have begun: one may have arrived though its result is not known."""
    error: str | None = None
    """Why the last attempt failed; None once it was sent."""
    repeat: int = 0
    """How often the problem had become worse before: 0 for the first notification."""


@dataclass(frozen=True)
class Problem:
    """A row of `alerts`."""

    alert_id: str
    """Identifies it across restarts and in every sink."""
    cluster: str
    group_id: str | None
    rule: str
    """The rule that it is of now: of the worst verdict so far, if it is about the health of a group."""
    severity: str
    """The worst so far."""
    since: datetime
    """Since when the condition holds: the broker's time, where the log has it."""
    opened_at: datetime | None
    """When it fired; None while it is pending."""
    ended_at: datetime | None
    ended_by: str | None
    """`evidence`; `retired` or `planned` by a person; `ignored` or `not enabled` by the configuration."""
    cause: str | None
    labels: Mapping[str, str]
    summary: str
    evidence: Mapping[str, Any]
    timeline: tuple[Line, ...] = ()
    deliveries: tuple[Delivery, ...] = ()

    @property
    def state(self) -> str:
        """`pending`, `firing` or `resolved`."""
        return PENDING if self.opened_at is None else FIRING if self.ended_at is None else RESOLVED

    @property
    def subject(self) -> str:
        """The rule, or `HEALTH`."""
        return HEALTH if self.rule in HEALTH_RULES else self.rule

    @property
    def is_forgotten(self) -> bool:
        """It was over before it opened: nobody is told, and it has no row."""
        return self.opened_at is None and self.ended_at is not None

    @property
    def was(self) -> tuple[tuple[str, str], ...]:
        """The rules and severities, by which receivers route, that it had before while it was open, in their order."""
        before = dict.fromkeys((line.rule, line.severity) for line in self.timeline)
        return tuple(one for one in before if one != (self.rule, self.severity))

    @property
    def key(self) -> ProblemKey:
        """What it is about."""
        return ProblemKey(self.subject, self.group_id)

    @property
    def urgency(self) -> tuple[Any, ...]:
        """A sort key: what is open first, then the most severe, then what has lasted longest."""
        state = (FIRING, PENDING, RESOLVED).index(self.state)
        return (state, severity_rank(self.severity), self.since, self.rule, self.group_id or "")


def end_of(one: Problem, at: datetime, by: str, sinks: Container[str], *, is_muted: bool = False) -> Problem:
    """Return a problem as it ends, with a notification due to each of these sinks that has or may have one of it.

    Of one that is muted, only that it is over is due, and that only where it may be known.
    """
    notified = dict.fromkeys(d.sink for d in one.deliveries if d.attempts or d.repeat or not is_muted)
    kept = (d for d in one.deliveries if d.attempts or not is_muted)
    due = (Delivery(sink, RESOLVED) for sink in notified if sink in sinks)
    return replace(one, ended_at=max(at, one.opened_at or at), ended_by=by, deliveries=(*kept, *due))


def with_delivery(one: Problem, delivery: Delivery) -> Problem:
    """Return a problem with what came of one of its deliveries, unless that is due once more by now."""
    key = delivery.sink, delivery.event, delivery.repeat
    changed = (delivery if (other.sink, other.event, other.repeat) == key else other for other in one.deliveries)
    return replace(one, deliveries=tuple(changed))
