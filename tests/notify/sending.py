"""A sender as the job has one, without the engine: problems are offered by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import Self

from streaming_app.alerts.outbox import Backoff, Grouping, Outboxes
from streaming_app.alerts.problem import FIRING, Delivery, Problem, with_delivery
from streaming_app.notify.sender import Sender, jittered, traits_of
from streaming_app.notify.sink import Sink

PATIENT = 600.0
"""Seconds after which a test gives up."""
_OFTEN = Backoff(first_seconds=0.01, max_seconds=0.05)


class Sending(Sender):
    """It starts with these sinks, tries often, and keeps what it reports; a context manager that closes it."""

    def __init__(self, *sinks: Sink, grouping: Grouping | None = None) -> None:
        self.problems: dict[str, Problem] = {}
        self.deliveries: list[tuple[str, Delivery]] = []
        self.lines: list[str] = []
        traits = [traits_of(sink, grouping or Grouping()) for sink in sinks]
        outboxes = Outboxes(traits, jittered(_OFTEN), self.problems.values, self.firing, self.delivered)
        super().__init__(sinks, outboxes, report=self.lines.append)

    def firing(self) -> list[Problem]:
        return [one for one in self.problems.values() if one.state == FIRING]

    def delivered(self, results: Sequence[tuple[Problem, Delivery]]) -> None:
        for one, delivery in results:
            self.deliveries.append((one.alert_id, delivery))
            self.problems[one.alert_id] = with_delivery(self.problems[one.alert_id], delivery)

    def offer(self, *alerts: Problem) -> None:
        """Add problems, or change them; what was sent of them before stays sent."""
        with self.changing():
            for alert in alerts:
                known = self.problems.get(alert.alert_id)
                self.problems[alert.alert_id] = alert
                for delivery in known.deliveries if known else ():
                    self.problems[alert.alert_id] = with_delivery(self.problems[alert.alert_id], delivery)

    def send(self, alerts: Iterable[Problem]) -> None:
        """Offer these, and return once everything is sent."""
        self.offer(*alerts)
        assert self.flush(PATIENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(PATIENT)
