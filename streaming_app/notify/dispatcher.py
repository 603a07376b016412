"""Sends notifications to the sinks: one thread per sink, so that no sink delays another one, or the stream.

The notifications that are not sent yet are stored in the table `alerts`; here they are only queued. Each is sent at
least once: after a restart the caller offers again what the table has as not sent, and receivers deduplicate it by its
id.

Alerts that are silenced are held back here, and offered to the sinks when their silence has ended. What fired and was
resolved within a silence is never sent: see `settle`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert
from streaming_app.notify.daily_summary import DailySummary
from streaming_app.notify.notification_queue import Grouping
from streaming_app.notify.sink import Sink
from streaming_app.notify.sink_worker import Backoff, DeliveryCallback, SinkStatus, SinkWorker

_log = logging.getLogger(__name__)


class Silences(Protocol):
    """What the dispatcher needs of `ActiveSilences`."""

    def refresh(self) -> bool:
        """Read new silences, and return whether any is active."""

    def find(self, alert: Alert) -> object | None:
        """Return the active silence of an alert; None if it has none."""


class _NoSilences:
    def refresh(self) -> bool:
        return False

    def find(self, alert: Alert) -> None:
        pass


class Dispatcher:
    """Accepts alerts from any thread and sends their notifications that are due."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        sinks: Iterable[Sink],
        on_delivery: DeliveryCallback,
        report: Callable[[str], None] = _log.warning,
        *,
        backoff: Backoff | None = None,
        grouping: Grouping | None = None,
        silences: Silences | None = None,
    ) -> None:
        """Start a thread for each sink.

        Those threads call `on_delivery` after every attempt, and `report` with a line for the operator when a sink
        starts to fail and when it works again. The sinks are closed with the dispatcher.
        """
        self._silences = silences or _NoSilences()
        self._silenced: dict[str, Alert] = {}
        self._workers = [
            SinkWorker(sink, on_delivery, report, backoff or Backoff(), grouping or Grouping()) for sink in sinks
        ]

    def settle(self, alerts: Iterable[Alert]) -> tuple[Alert, ...]:
        """Return the alerts without the notifications that will never be sent: call it before they are stored.

        An alert that was resolved while it was silenced is resolved only in those sinks that know that it fired.
        """
        if not self._silences.refresh():
            return tuple(alerts)
        return tuple(
            _without_unknown(alert) if alert.state == RESOLVED and self._silences.find(alert) else alert
            for alert in alerts
        )

    def offer(self, alerts: Iterable[Alert]) -> None:
        """Send the `deliveries` of these alerts that have no `sent_at`, firing before resolved, unless silenced.

        Offer every alert that changed, and after a restart every alert that is firing or has something to send: firing
        alerts are sent again to the sinks that require it. What is queued already, or was just sent, is not queued
        twice. Call it at every evaluation: what is no longer silenced is then sent.
        """
        offered = self._silenced | {alert.fingerprint: alert for alert in alerts if alert.opened_at}
        if self._silences.refresh():
            for worker in self._workers:
                withdrawn = worker.withdraw(lambda alert: self._silences.find(alert) is not None)
                offered = {alert.fingerprint: alert for alert in withdrawn} | offered
        self._silenced = {name: alert for name, alert in offered.items() if self._silences.find(alert)}
        opened = [alert for name, alert in offered.items() if name not in self._silenced]
        for worker in self._workers:
            worker.offer(opened)

    def offer_summary(self, sink: str, summary: DailySummary, on_sent: Callable[[], None]) -> None:
        """Send a daily summary to the sink of this name; `on_sent` is called, by another thread, when it is sent."""
        for worker in self._workers:
            if worker.name == sink:
                worker.offer_summary(summary, on_sent)

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the current status of each sink."""
        return tuple(worker.status() for worker in self._workers)

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent, and return whether it is.

        Waits at most `timeout` seconds, and not at all for attempts that are due only after that. What waits to be sent
        with others is sent at once.
        """
        deadline = time.monotonic() + timeout
        return all(worker.flush(deadline) for worker in self._workers)

    def close(self, timeout: float) -> None:
        """Stop the threads; attempts in progress, and those that only wait for others, have `timeout` seconds.

        A thread that takes longer is abandoned, and the result of its attempt is no longer reported.
        """
        deadline = time.monotonic() + timeout
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.join(deadline)


def _without_unknown(alert: Alert) -> Alert:
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
