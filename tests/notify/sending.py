"""A dispatcher as the job has one, without the engine: alerts are offered by hand."""

from __future__ import annotations

import time
from collections.abc import Iterable

from typing_extensions import Self

from streaming_app.alerts.notification_queue import Grouping
from streaming_app.alerts.outbox import Backoff, Outboxes, Results
from streaming_app.alerts.problem import Delivery, Problem
from streaming_app.notify.dispatcher import Dispatcher, jittered, traits_of
from streaming_app.notify.sink import Sink

PATIENT = 600.0
"""Seconds after which a test gives up."""
_OFTEN = Backoff(first_seconds=0.01, max_seconds=0.05)


class Sending(Dispatcher):
    """It starts with these sinks, tries often, and keeps what it reports; a context manager that closes it."""

    def __init__(self, *sinks: Sink, grouping: Grouping | None = None) -> None:
        self.deliveries: list[tuple[str, Delivery]] = []
        self.lines: list[str] = []
        grouping = grouping or Grouping()
        outboxes = Outboxes(map(traits_of, sinks), grouping, jittered(_OFTEN))
        super().__init__(sinks, outboxes, self.delivered, self.lines.append, max_named=grouping.max_named)

    def delivered(self, results: Results) -> None:
        self.deliveries += results

    def offer(self, *alerts: Problem) -> None:
        with self.changing() as outboxes:
            outboxes.offer(alerts, None, time.monotonic())

    def send(self, alerts: Iterable[Problem]) -> None:
        """Offer these, and return once everything is sent."""
        self.offer(*alerts)
        assert self.flush(PATIENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(PATIENT)
