"""What is due to each sink, and when: order, grouping, retries, mutes. No thread, no clock, no random number.

Theory of operation
-------------------
An `Outbox` is of one sink, which does one task at a time: `take` gives what is due now, and `answered` says what came
of it. A failed attempt is repeated after a pause that doubles with each failure in a row, and meanwhile nothing is
sent. A sink that needs what fires again and again, such as Alertmanager, gets that as a task of its own.

`Outboxes` are those of all sinks. Alerts that are muted are held back here, and offered to the sinks when their mute
has ended. What fired and was resolved within a mute is never sent: see `settle`.

Seconds are those of a monotonic clock, which the caller reads. Not safe in several threads: the caller has a lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from streaming_app.alerts.notification_queue import Attempt, Grouping, NotificationQueue
from streaming_app.alerts.problem import FIRING, RESOLVED, Delivery, Problem
from streaming_app.job_status import FailingSink

_MANY_FAILURES = 1_000  # enough for the longest pause
_MAX_RETRY_AFTER_SECONDS = 3600.0  # for a receiver that asks for a longer pause

IsMuted = Callable[[Problem], bool]
"""Tells whether an alert is muted now."""
Results = Sequence[tuple[str, Delivery]]
"""What came of an attempt: each alert's fingerprint, and the delivery that replaces its former one."""


class SinkTraits(NamedTuple):
    """What an outbox has to know of its sink."""

    name: str
    groups: bool = False
    """People read it: several alerts are one notification."""
    resend_seconds: float | None = None
    """It needs what fires again, that often."""


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with jitter: the pause doubles with each failure in a row."""

    first_seconds: float = 1.0
    max_seconds: float = 300.0
    jitter: Callable[[], float] = lambda: 1.0
    """Returns the part of the doubled time to wait, at most 1: it spreads the attempts of many jobs."""

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.max_seconds) * self.jitter()


@dataclass(frozen=True)
class SinkStatus:
    """The status of a sink; totals are since the start. Each alert counts, also where several are sent together."""

    name: str
    sent: int = 0
    """Notifications that it accepted."""
    failed: int = 0
    """Attempts that failed, including those to resend."""
    waiting: int = 0
    """Notifications that are not sent yet."""
    error: str | None = None
    """Why the last attempt failed; None if it succeeded."""
    failing: FailingSink | None = None
    """Since when no attempt has succeeded; None after one that has, and before the first one."""
    last_success_at: datetime | None = None


class Resend(NamedTuple):
    """A task: tell the sink again that these alerts fire."""

    alerts: Sequence[Problem]


Task = Attempt | Resend


class Failure(NamedTuple):
    """Why a sink did not do a task."""

    text: str
    retry: bool = True
    """It may succeed later without a change of the alert or the configuration."""
    after_seconds: float | None = None
    """How long the sink asks to wait."""


class Answer(NamedTuple):
    """What came of a task."""

    results: Results = ()
    line: str | None = None
    """A line for the operator if the sink starts to fail, or works again."""


class Outbox:
    """What is due to one sink."""

    def __init__(self, sink: SinkTraits, grouping: Grouping, backoff: Backoff) -> None:
        self._sink = sink
        # a sink that gets firing alerts again anyway is retried at least as often
        self._backoff = replace(backoff, max_seconds=min(backoff.max_seconds, sink.resend_seconds or math.inf))
        self._queue = NotificationQueue(sink.name, grouping if sink.groups else None)
        self._firing: dict[str, Problem] = {}
        self._resend_at = math.inf
        self._paused_until = 0.0
        self._failures = 0
        self._busy = self._stopped = self._failing = False
        self._status = SinkStatus(sink.name)

    def offer(self, alerts: Iterable[Problem], seconds: float) -> None:
        """Queue what is due of these alerts; one that is queued already is replaced by its latest state."""
        for alert in alerts:
            is_due = self._queue.add(alert, seconds)
            self._track_firing(alert, seconds, soon=not is_due)

    def withdraw(self, wanted: IsMuted) -> dict[str, Problem]:
        """Return the alerts that are `wanted`, and send none of them any more, except those that are just being sent.

        They are by fingerprint.
        """
        withdrawn = {alert.alert_id: alert for alert in self._firing.values() if wanted(alert)}
        for fingerprint in withdrawn:
            del self._firing[fingerprint]
        return withdrawn | {alert.alert_id: alert for alert in self._queue.withdraw(wanted)}

    def rank_groups(self, ranks: Mapping[str, int]) -> None:
        """Send what is about groups with a rank after everything else, the lowest first."""
        self._queue.ranks = ranks

    def release(self) -> None:
        """Let nothing that is queued wait for others any longer."""
        self._queue.release()

    def stop(self) -> None:
        """Give out nothing more, except what was only held back to be sent with others."""
        self._stopped = True

    @property
    def is_done(self) -> bool:
        """Whether it was stopped and gives out nothing more."""
        return self._stopped and (bool(self._failures) or not self._queue.is_holding)

    @property
    def has_work(self) -> bool:
        """Whether anything is not sent yet."""
        return len(self._queue) > 0

    @property
    def status(self) -> SinkStatus:
        """The status of the sink now."""
        return replace(self._status, waiting=len(self._queue))

    def next_at(self) -> float:
        """Return when the next attempt is due, 0 if a task is not answered yet, infinity if nothing is queued."""
        return 0.0 if self._busy else max(self._paused_until, self._queue.next_at())

    def wakes_at(self) -> float:
        """Return when `take` next has something; infinity if nothing is queued."""
        return max(self._paused_until, min(self._resend_at, self._queue.next_at()))

    def take(self, seconds: float) -> Task | None:
        """Return what is to be sent now; None if nothing is, or while a task is not answered yet."""
        if self._busy or self.is_done or seconds < self._paused_until:
            return None
        if self._stopped:
            self._queue.release()
        task = self._due(seconds)
        self._busy = task is not None
        return task

    def answered(self, task: Task, failure: Failure | None, at: datetime, seconds: float) -> Answer:
        """Note what came of the task that `take` returned, at this time; `failure` is None if the sink accepted it."""
        self._busy = False
        results: Results = ()
        if isinstance(task, Attempt):
            results = self._attempted(task, failure, at, seconds)
        return Answer(results, self._record(failure, at, seconds))

    def _track_firing(self, alert: Problem, seconds: float, *, soon: bool) -> None:
        """Resend the alert while it fires, if the sink needs that; `soon` after a restart, when nothing else is due."""
        if not self._sink.resend_seconds:
            return
        if alert.state != FIRING:
            self._firing.pop(alert.alert_id, None)
        else:
            if not self._firing:
                self._resend_at = seconds + (0 if soon else self._sink.resend_seconds)
            self._firing[alert.alert_id] = alert
        if not self._firing:
            self._resend_at = math.inf

    def _due(self, seconds: float) -> Task | None:
        if self._resend_at <= seconds:
            self._resend_at = seconds + (self._sink.resend_seconds or math.inf)
            sent_before = [one for name, one in self._firing.items() if not self._queue.has(name, FIRING)]
            if sent_before:
                return Resend(sent_before)
        return self._queue.take(seconds)

    def _attempted(self, attempt: Attempt, failure: Failure | None, at: datetime, seconds: float) -> Results:
        sent_at, error = (None, failure.text) if failure else (at, None)
        attempted = [replace(due, sent_at=sent_at, attempts=due.attempts + 1, error=error) for _, due in attempt.items]
        if failure:
            retry_alone_at = None if failure.retry else seconds + self._backoff.pause(_MANY_FAILURES)
            self._queue.failed(attempt, attempted, retry_alone_at)
        else:
            self._queue.sent(attempt, seconds)
            self._status = replace(self._status, sent=self._status.sent + len(attempted))
        return tuple(zip((alert.alert_id for alert in attempt.alerts), attempted, strict=True))

    def _record(self, failure: Failure | None, at: datetime, seconds: float) -> str | None:
        """Count the task, and pause after a failure; return a line for the operator."""
        name = self._sink.name
        if failure:
            self._failures += 1
            pause = max(self._backoff.pause(self._failures), min(failure.after_seconds or 0, _MAX_RETRY_AFTER_SECONDS))
            self._paused_until = seconds + pause
            failing = self._status.failing or FailingSink(name, at, failure.text)
            failed = self._status.failed + 1
            self._status = replace(self._status, failed=failed, error=failure.text, failing=failing)
            was_failing, self._failing = self._failing, True
            action = "Retrying." if failure.retry else "Fix the cause; it is retried every few minutes."
            return None if was_failing else f"Alerts cannot be sent to {name}: {failure.text}. {action}"
        self._failures, self._paused_until = 0, 0.0
        self._status = replace(self._status, error=None, failing=None, last_success_at=at)
        if not self._failing or self._queue.has_failed_ones:
            return None
        self._failing = False
        return f"Alerts are sent to {name} again."


class Outboxes:
    """What is due to all sinks."""

    def __init__(self, sinks: Iterable[SinkTraits], grouping: Grouping, backoff: Backoff) -> None:
        self.by_sink: Mapping[str, Outbox] = {sink.name: Outbox(sink, grouping, backoff) for sink in sinks}
        """The outbox of each sink, by its name."""
        self._muted: dict[str, Problem] = {}

    def rank_groups(self, ranks: Mapping[str, int]) -> None:
        """Send what is about groups with a rank after everything else, the lowest first; see `groups.newcomers`."""
        for outbox in self.by_sink.values():
            outbox.rank_groups(ranks)

    def settle(self, alerts: Iterable[Problem], is_muted: IsMuted | None) -> tuple[Problem, ...]:
        """Return the alerts without the notifications that will never be sent: call it before they are stored.

        An alert that was resolved while it was muted is resolved only in those sinks that know that it fired.
        """
        if is_muted is None:
            return tuple(alerts)
        return tuple(
            _without_unknown(alert) if alert.state == RESOLVED and is_muted(alert) else alert for alert in alerts
        )

    def offer(self, alerts: Iterable[Problem], is_muted: IsMuted | None, seconds: float) -> None:
        """Queue the `deliveries` of these alerts that have no `sent_at`, firing before resolved, unless muted.

        Offer every alert that changed, and after a restart every alert that is firing or has something to send: firing
        alerts are sent again to the sinks that require it. What is queued already, or was just sent, is not queued
        twice. Call it at every evaluation: what is no longer muted is then sent. Without mutes, `is_muted` is None.
        """
        offered = self._muted | {alert.alert_id: alert for alert in alerts if alert.opened_at}
        self._muted = {}
        if is_muted is not None:
            for outbox in self.by_sink.values():
                offered = outbox.withdraw(is_muted) | offered
            self._muted = {name: alert for name, alert in offered.items() if is_muted(alert)}
        opened = [alert for name, alert in offered.items() if name not in self._muted]
        for outbox in self.by_sink.values():
            outbox.offer(opened, seconds)

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink now."""
        return tuple(outbox.status for outbox in self.by_sink.values())


def _without_unknown(alert: Problem) -> Problem:
    """Return a resolved alert without what is due to sinks that never heard of it, nor a firing one that is due."""
    known = {
        delivery.sink
        for delivery in alert.deliveries
        if delivery.event == FIRING and (delivery.sent_at or delivery.attempts or delivery.repeat)
    }
    kept = (
        delivery
        for delivery in alert.deliveries
        if delivery.sink in known and (delivery.event == RESOLVED or delivery.sent_at or delivery.attempts)
    )
    return replace(alert, deliveries=tuple(kept))
