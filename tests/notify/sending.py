"""A sender as the job has one, without the engine: problems are offered by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import Self

from streaming_app.alerts.outbox import Backoff, Grouping, Outboxes
from streaming_app.alerts.problem import Delivery, Problem
from streaming_app.notify.sender import Sender, jittered, traits_of
from streaming_app.notify.sink import Sink
from tests.alerts.kept import KeptProblems

PATIENT = 600.0
"""Seconds after which a test gives up."""
_OFTEN = Backoff(first_seconds=0.01, max_seconds=0.05)


class Sending(Sender):
    """It starts with these sinks, tries often, and keeps what it reports; a context manager that closes it."""

    def __init__(self, *sinks: Sink, grouping: Grouping | None = None) -> None:
        self.kept = KeptProblems()
        self.lines: list[str] = []
        traits = [traits_of(sink, grouping or Grouping()) for sink in sinks]
        outboxes = Outboxes(traits, jittered(_OFTEN), self.kept.unsent, self.kept.firing, self.delivered)
        super().__init__(sinks, outboxes, report=self.lines.append)

    @property
    def deliveries(self) -> list[tuple[str, Delivery]]:
        """Id and delivery of each attempt."""
        return self.kept.results

    def delivered(self, results: Sequence[tuple[Problem, Delivery]]) -> None:
        self.kept.delivered(results)

    def offer(self, *alerts: Problem) -> None:
        with self.changing():
            self.kept.put(*alerts)

    def send(self, alerts: Iterable[Problem]) -> None:
        """Offer these, and return once everything is sent."""
        self.offer(*alerts)
        assert self.flush(PATIENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(PATIENT)
