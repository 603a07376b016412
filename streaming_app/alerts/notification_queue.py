"""The notifications that a sink has not accepted yet: which of them are sent together, and when. No threads, no clock.

Theory of operation
-------------------
The queue holds alerts, each with its deliveries that are due: the firing one comes before the resolved one. A sink for
people gets the alerts of one rule with the same event in one notification, as Alertmanager does with `group_by`: the
first of them waits `group_wait` for others, and those that come after a notification wait until `group_interval` after
it. Other sinks get each alert by itself and at once, because their receivers group.

A sink may refuse a notification for good because of one alert in it. So after such a refusal half as many alerts are
sent together, until the one to blame is alone; it then waits, and the others are sent.

All times are seconds of a monotonic clock, which the caller reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming_app.alerts.problem import FIRING, RESOLVED, Delivery, Problem

_IN_ORDER = (FIRING, RESOLVED)
_SENT_KEPT = 10_000  # sent notifications, which the caller may offer again until it has stored that they were sent

_Key = tuple[str, str]
"""What is sent together: a rule and an event."""


@dataclass(frozen=True)
class Grouping:
    """How alerts are put together for sinks that people read; the names are Alertmanager's, the defaults are not.

    There `group_wait` is 30 s and `group_interval` 5 minutes, for groups of alerts that its users choose by label,
    usually those of one application. Here all alerts of a rule are one group, whatever the application: a second
    application that breaks four minutes after a first one must not wait for the first one's interval. So the interval
    is as long as an on-call person may be left without news. What many groups lose at the same time, such as a broker,
    they lose within seconds, which `group_wait` covers; a rolling restart of brokers that takes ten minutes gives ten
    messages at most.
    """

    group_wait: float = 10.0
    """Seconds that the first alert of a rule waits for others."""
    group_interval: float = 60.0
    """Seconds between two notifications of one rule and event."""
    max_named: int = 20
    """How many alerts a notification names."""


class Attempt(NamedTuple):
    """What one attempt sends: alerts with the same event, each with its delivery."""

    event: str
    items: tuple[tuple[Problem, Delivery], ...]

    @property
    def alerts(self) -> tuple[Problem, ...]:
        """The alerts."""
        return tuple(alert for alert, _ in self.items)


@dataclass
class _QueuedAlert:
    alert: Problem
    due: dict[str, Delivery] = field(default_factory=dict)
    """By event; removed once sent."""
    not_before: float = 0.0
    in_flight: bool = False

    @property
    def event(self) -> str:
        return next(event for event in _IN_ORDER if event in self.due)

    @property
    def key(self) -> _Key:
        return self.alert.rule, self.event


class NotificationQueue:
    """The queue of the sink with this name; without `grouping`, each alert is sent by itself."""

    def __init__(self, sink: str, grouping: Grouping | None = None) -> None:
        self._sink, self._grouping = sink, grouping
        self.ranks: Mapping[str, int] = {}
        """Groups that come after all others, the lowest first."""
        self._queued: dict[str, _QueuedAlert] = {}
        self._ready_at: dict[_Key, float] = {}
        self._sent_at: dict[_Key, float] = {}
        self._sent: dict[tuple[str, str, int], None] = {}
        self._most_together: int | None = None

    def __len__(self) -> int:
        """Return the number of notifications that are not sent yet."""
        return sum(len(queued.due) for queued in self._queued.values())

    def add(self, alert: Problem, now: float) -> bool:
        """Queue what is due of an alert, and return whether anything is; the alert replaces its earlier version.

        What is queued already, or was just sent, is not queued twice.
        """
        fingerprint = alert.alert_id
        due = {
            delivery.event: delivery
            for delivery in alert.deliveries
            if delivery.sink == self._sink
            and delivery.sent_at is None
            and (fingerprint, delivery.event, delivery.repeat) not in self._sent
        }
        if queued := self._queued.get(fingerprint):
            queued.alert = alert
            queued.due = due | queued.due
        elif due:
            self._queued[fingerprint] = _QueuedAlert(alert, due)
            self._hold(self._queued[fingerprint].key, now)
        return bool(due)

    def withdraw(self, wanted: Callable[[Problem], bool]) -> list[Problem]:
        """Remove the alerts that are `wanted` from the queue, but for those that are being sent, and return them."""
        found = [one for one in self._queued.values() if not one.in_flight and wanted(one.alert)]
        for queued in found:
            del self._queued[queued.alert.alert_id]
        keys = {queued.key for queued in self._queued.values()}
        self._ready_at = {key: at for key, at in self._ready_at.items() if key in keys}
        return [queued.alert for queued in found]

    def has(self, fingerprint: str, event: str) -> bool:
        """Return whether this notification is queued."""
        return fingerprint in self._queued and event in self._queued[fingerprint].due

    @property
    def has_failed_ones(self) -> bool:
        """Whether a notification is queued that the sink did not accept before."""
        return any(due.attempts for queued in self._queued.values() for due in queued.due.values())

    @property
    def is_holding(self) -> bool:
        """Whether a notification is queued that was never attempted, and only waits for others."""
        return self._grouping is not None and any(
            not queued.in_flight and not queued.due[queued.event].attempts for queued in self._queued.values()
        )

    def next_at(self) -> float:
        """Return when the next attempt is due; infinity if nothing is queued."""
        return min(map(self._due_at, self._waiting()), default=math.inf)

    def take(self, now: float) -> Attempt | None:
        """Return what is to be sent now, and keep it as being sent until `sent` or `failed`; None if nothing is."""
        ready = [queued for queued in self._waiting() if self._due_at(queued) <= now]
        if not ready:
            return None
        first = min(ready, key=self._rank)
        together = [first]
        if self._grouping:
            together = sorted((queued for queued in ready if queued.key == first.key), key=self._rank)
            together = together[: self._most_together]
        event = first.event
        for queued in together:
            queued.in_flight = True
        return Attempt(event, tuple((queued.alert, queued.due[event]) for queued in together))

    def sent(self, attempt: Attempt, now: float) -> None:
        """Remove what the sink has accepted."""
        key = attempt.alerts[0].rule, attempt.event
        was_limited, self._most_together = self._most_together is not None, None
        for alert, delivery in attempt.items:
            queued = self._queued.pop(alert.alert_id)
            del queued.due[attempt.event]
            self._remember_sent(alert.alert_id, delivery)
            if queued.due:  # behind the others
                self._queue_again(queued)
                self._hold(queued.key, now)
        if self._grouping:
            self._sent_at[key] = now
            is_left = any(queued.key == key for queued in self._queued.values())
            if not is_left:
                self._ready_at.pop(key, None)
            elif not was_limited:
                self._ready_at[key] = now + self._grouping.group_interval

    def failed(self, attempt: Attempt, deliveries: Iterable[Delivery], retry_alone_at: float | None) -> None:
        """Queue the alerts again with their deliveries as attempted, behind the others, which may succeed.

        With `retry_alone_at`, the sink has refused them for good: if it was one alert, it is not sent before that.
        """
        for (alert, _), delivery in zip(attempt.items, deliveries, strict=True):
            queued = self._queued.pop(alert.alert_id)
            queued.due[attempt.event] = delivery
            if retry_alone_at is not None and len(attempt.items) == 1:
                queued.not_before = retry_alone_at
            self._queue_again(queued)
        if retry_alone_at is not None and len(attempt.items) > 1:
            self._most_together = (len(attempt.items) + 1) // 2

    def release(self) -> None:
        """Let nothing that is queued wait for others any longer."""
        self._ready_at = dict.fromkeys(self._ready_at, 0.0)

    def _rank(self, queued: _QueuedAlert) -> int:
        return self.ranks.get(queued.alert.group_id or "", 0)

    def _waiting(self) -> Iterator[_QueuedAlert]:
        return (queued for queued in self._queued.values() if not queued.in_flight)

    def _due_at(self, queued: _QueuedAlert) -> float:
        return max(queued.not_before, self._ready_at.get(queued.key, 0.0))

    def _hold(self, key: _Key, now: float) -> None:
        """Let the first notification of a rule and event wait for others."""
        if self._grouping and key not in self._ready_at:
            after_last = self._sent_at.get(key, -math.inf) + self._grouping.group_interval
            self._ready_at[key] = max(now + self._grouping.group_wait, after_last)

    def _queue_again(self, queued: _QueuedAlert) -> None:
        queued.in_flight = False
        self._queued[queued.alert.alert_id] = queued

    def _remember_sent(self, fingerprint: str, delivery: Delivery) -> None:
        self._sent[fingerprint, delivery.event, delivery.repeat] = None
        if len(self._sent) > _SENT_KEPT:
            del self._sent[next(iter(self._sent))]
