"""A sender as the job has one, without the engine: problems are offered by hand."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import Self

from streaming_app.alerts.problem import Delivery, Problem
from streaming_app.notify.outbox import Backoff, Grouping, Outbox
from streaming_app.notify.sender import Sender
from streaming_app.notify.sink import Sink
from tests.notify.kept import KeptProblems
from tests.support.waiting import wait_until

PATIENT = 600.0
"""Seconds after which a test gives up."""
_OFTEN = Backoff(0.01, 0.05)


class Sending(Sender):
    """It starts with these sinks, tries often, and keeps what it reports; a context manager that closes it."""

    def __init__(self, *sinks: Sink, grouping: Grouping | None = None, kept: KeptProblems | None = None) -> None:
        self.kept = kept or KeptProblems()
        self.lines: list[str] = []
        outboxes = [Outbox(sink, self.kept, grouping or Grouping(0, 0), _OFTEN) for sink in sinks]
        super().__init__(outboxes, report=self.lines.append)

    @property
    def deliveries(self) -> list[tuple[str, Delivery]]:
        """Id and delivery of each attempt."""
        return self.kept.results

    def offer(self, *alerts: Problem) -> None:
        with self.changing():
            self.kept.put(*alerts)

    def send(self, alerts: Iterable[Problem]) -> None:
        """Offer these, and return once everything is sent."""
        self.offer(*alerts)
        assert wait_until(lambda: not any(one.waiting for one in self.status()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(PATIENT)
