"""What a sender looks at: alerts, and what came of each attempt to send them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streaming_app.alerts.alert import FIRING, Alert, AlertKey, Delivery, with_delivery


class KeptAlerts:
    """Alerts that the test adds, changes and lets be sent."""

    def __init__(self) -> None:
        self.by_id: dict[str, Alert] = {}
        self.results: list[tuple[str, Delivery]] = []
        """Id and delivery of each attempt."""

    def put(self, *alerts: Alert) -> None:
        """Add alerts, or change them; what was sent of them before stays sent."""
        for alert in alerts:
            known = self.by_id.get(alert.alert_id)
            self.by_id[alert.alert_id] = alert
            for delivery in known.deliveries if known else ():
                self._note(alert.alert_id, delivery)

    @property
    def open(self) -> dict[AlertKey, Alert]:
        """Return those that have not ended, by their keys."""
        return {one.key: one for one in self.by_id.values() if one.ended_at is None}

    def unsent(self) -> list[Alert]:
        """Return all: an outbox finds which of them are not sent."""
        return list(self.by_id.values())

    def firing(self) -> list[Alert]:
        """Return those that fire and may be sent."""
        return [one for one in self.unsent() if one.state == FIRING]

    def place(self, _one: Alert) -> int:
        """Return that none comes before another one."""
        return 0

    def note(self, results: Iterable[tuple[Alert, Delivery]], *, is_over: bool) -> None:
        for one, delivery in results:
            self.results += [(one.alert_id, delivery)] if is_over else []
            self._note(one.alert_id, delivery)

    def _note(self, alert_id: str, delivery: Delivery) -> None:
        self.by_id[alert_id] = with_delivery(self.by_id[alert_id], delivery)


@dataclass(frozen=True)
class Told:
    """A sink of which only its traits count: people read it, or it takes so many at once."""

    name: str
    at_once: int | None = None
    resend_seconds: float | None = None

    @property
    def is_read_by_people(self) -> bool:
        return self.at_once is None
