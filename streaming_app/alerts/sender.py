"""Brings notifications to the sinks: a thread for each, so that none holds up another, nor the stream.

What is not sent yet stands in the table `alerts`; here is only what waits. Each notification is sent at least once:
after a restart the caller offers what the table says was not sent, and receivers tell doubles by its identity.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from streaming_app.alerts.lane import Backoff, Done, Lane, SinkStatus
from streaming_app.alerts.sinks.base import Sink
from streaming_app.core.alert import Alert

_log = logging.getLogger(__name__)


class Sender:
    """Takes alerts from any thread and sends what is due of them."""

    def __init__(
        self,
        sinks: Iterable[Sink],
        done: Done,
        say: Callable[[str], None] = _log.warning,
        backoff: Backoff | None = None,
    ) -> None:
        """Start a thread for each sink.

        `done` is called from those threads after every try; `say` gets a line when a sink begins to fail, and when it
        works again. The sinks are closed with the sender.
        """
        self._lanes = [Lane(sink, done, say, backoff or Backoff()) for sink in sinks]

    def offer(self, alerts: Iterable[Alert]) -> None:
        """Send what these alerts have in `deliveries` without `sent_at`, firing before resolved.

        Offer every alert that changed, and after a restart every one that fires or has something to send: those that
        fire are told again to the sinks that ask for it. What waits already, or was just sent, is not queued twice.
        """
        offered = [alert for alert in alerts if alert.opened_at]
        for lane in self._lanes:
            lane.offer(offered)

    def status(self) -> tuple[SinkStatus, ...]:
        """How each sink is doing now."""
        return tuple(lane.status() for lane in self._lanes)

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent; whether it is.

        Waits no longer than `timeout` seconds, and not at all for tries that come only after that.
        """
        deadline = time.monotonic() + timeout
        return all(lane.flush(deadline) for lane in self._lanes)

    def close(self, timeout: float) -> None:
        """End the threads; those in the middle of something have until `timeout` seconds are over.

        One that takes longer is left behind; what became of its notification is not told any more.
        """
        deadline = time.monotonic() + timeout
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join(deadline)
