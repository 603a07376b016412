"""An alert: a rule and a group (or the job), from its begin to its end. Only data.

An alert is a row of the table `alerts`. The rules, `alerts.open_alerts`, the table and the sinks share this type.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.alerts.catalog import HEALTH_RULES, Rule, rules
from streaming_app.text import rank

WARNING, CRITICAL, INFO = "warning", "critical", "info"
_MOST_SEVERE_FIRST = (CRITICAL, WARNING, INFO)
PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"
"""The states of an alert: not open yet, open, ended. The last two are also events of notifications."""
STATES = {PENDING: "pending", FIRING: "open", RESOLVED: "ended"}
"""The states in the words that users read; notifications have those of Alertmanager."""
HEALTH = "health"
"""The subject of all rules about the verdict on a group: a group has at most one alert with this subject."""
NEWS = "types"
"""The evidence in which one more value is another message of an open alert: an unknown type of records."""
BY_EVIDENCE, IGNORED, NOT_ENABLED = "evidence", "ignored", "not enabled"
"""Why an alert ended: its condition is over, the configuration ignores the group, or it disables the rule."""


def severity_rank(severity: str | None) -> int:
    """Return a sort key: the most severe first. A severity that only a later release has comes last."""
    return rank(severity, _MOST_SEVERE_FIRST)


def severity_by(settings: Rule | None, found: str | None) -> str | None:
    """Return the severity of a case by the settings of its rule, which may raise and lower it.

    A case that is milder than the rule by default (NotReady with nothing to do) is not raised. Of a severity that this
    returned it returns the same. None: the case has no severity, or the rule is disabled (`settings` is None).
    """
    if settings is None or found is None:
        return None
    if found == rules()[settings.name].severity:
        return settings.severity
    return max(found, settings.severity, key=severity_rank)


class AlertKey(NamedTuple):
    """A subject, which is a rule or `HEALTH`, and a group. At most one alert with a key is open."""

    subject: str
    group_id: str | None
    """None: the alert is of the job or the cluster."""


@dataclass(frozen=True)
class Holds:
    """The condition of a rule holds: since when, and the context."""

    since: datetime | None
    """None: not known. Then it counts since it was first found."""
    summary: str
    """One line for an operator who was just woken: what is wrong, with which group, and why."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: numbers, names, times as ISO 8601 text. No value is null."""
    severity: str | None = None
    """The severity of this case; None: that of the rule."""
    verdict: str | None = None
    causes: Sequence[str] = ()
    """Proven causes, which other alerts may share: `missing_topic:orders`, `broker_away:3`."""


class Over(NamedTuple):
    """The condition of a rule is over. For the subject `HEALTH`, it has the good verdict and its text."""

    verdict: str | None = None
    why: str = ""


OVER = Over()
Truth = Holds | Over | None
"""Whether a condition holds. None: it is not known, and the alert stays as it is."""


class Line(NamedTuple):
    """A line in the timeline of an alert: it opened, became worse or better, or ended."""

    at: datetime
    verdict: str | None
    """The verdict on the group; None for a rule that is not about a verdict."""
    rule: str
    severity: str
    """Rule and severity of the alert from this time on: the worst so far."""
    why: str


@dataclass(frozen=True)
class Delivery:
    """The state of one notification of an alert to one sink; `event` is `firing` or `resolved`."""

    sink: str
    event: str
    sent_at: datetime | None = None
    attempts: int = 0
    """How many attempts have begun. An attempt without a known result may have arrived."""
    error: str | None = None
    """Why the last attempt failed; None after it was sent."""
    repeat: int = 0
    """How often the alert has become worse before this notification; 0 for the first one."""


@dataclass(frozen=True)
class Alert:
    """A row of `alerts`."""

    alert_id: str
    """Identifies the alert across restarts and in every sink."""
    cluster: str
    group_id: str | None
    rule: str
    """The rule. For the subject `HEALTH`, it is the rule of the worst verdict so far."""
    severity: str
    """The worst so far."""
    since: datetime
    """Since when the condition holds: the broker's time if the log has it."""
    opened_at: datetime | None
    """When the alert opened (fired); None while it is pending."""
    ended_at: datetime | None
    ended_by: str | None
    """`evidence`; by a person `retired` or `planned`; by the configuration `ignored` or `not enabled`."""
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
        """Whether it was over before it opened: then it has no notification and no row."""
        return self.opened_at is None and self.ended_at is not None

    @property
    def was(self) -> tuple[tuple[str, str], ...]:
        """The earlier pairs of rule and severity since it opened, in order: receivers route by them."""
        before = dict.fromkeys((line.rule, line.severity) for line in self.timeline)
        return tuple(one for one in before if one != (self.rule, self.severity))

    @property
    def key(self) -> AlertKey:
        """The subject and the group."""
        return AlertKey(self.subject, self.group_id)

    @property
    def urgency(self) -> tuple[Any, ...]:
        """A sort key: open alerts first, then the most severe, then the oldest."""
        state = (FIRING, PENDING, RESOLVED).index(self.state)
        return (state, severity_rank(self.severity), self.since, self.rule, self.group_id or "")


def is_old(one: Alert, first_started_at: datetime) -> bool:
    """Return whether an alert of a group began more than a day before the job first started on the cluster."""
    return one.group_id is not None and one.since < first_started_at - timedelta(days=1)


def end_of(one: Alert, at: datetime, by: str, sinks: Container[str], *, is_muted: bool = False) -> Alert:
    """Return the ended alert, with a `resolved` notification due to each of `sinks` that may know the alert.

    A muted alert has no other notification due, and `resolved` only to sinks for which an attempt has begun.
    """
    notified = dict.fromkeys(d.sink for d in one.deliveries if d.attempts or d.repeat or not is_muted)
    kept = (d for d in one.deliveries if d.attempts or not is_muted)
    due = (Delivery(sink, RESOLVED) for sink in notified if sink in sinks)
    return replace(one, ended_at=max(at, one.opened_at or at), ended_by=by, deliveries=(*kept, *due))


def with_delivery(one: Alert, delivery: Delivery) -> Alert:
    """Return an alert with a new state of one of its deliveries; unchanged if this notification is obsolete."""
    key = delivery.sink, delivery.event, delivery.repeat
    changed = (delivery if (other.sink, other.event, other.repeat) == key else other for other in one.deliveries)
    return replace(one, deliveries=tuple(changed))
