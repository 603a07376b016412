"""What a sender looks at: alerts, and what came of each attempt to send them."""

from collections.abc import Iterable
from dataclasses import dataclass

from streaming_app.alerts.alert import Alert, Delivery, with_delivery
from streaming_app.alerts.engine_facts import EngineSettings
from streaming_app.alerts.open_alerts import OpenAlerts


class KeptAlerts(OpenAlerts):
    """Alerts that the test adds and changes."""

    def __init__(self) -> None:
        super().__init__(EngineSettings("prod", lambda _group_id: {}))
        self.by_id: dict[str, Alert] = {}
        self.results: list[tuple[str, Delivery]] = []
        """Id and delivery of each attempt."""

    def put(self, *alerts: Alert) -> None:
        """Add alerts, or change them; what was sent of them before stays sent."""
        for alert in alerts:
            for delivery in self.by_id[alert.alert_id].deliveries if alert.alert_id in self.by_id else ():
                alert = with_delivery(alert, delivery)  # noqa: PLW2901
            self._put(alert)

    def note(self, results: Iterable[tuple[Alert, Delivery]], *, is_over: bool) -> None:
        known = list(results)
        self.results += [(one.alert_id, delivery) for one, delivery in known if is_over]
        super().note(known, is_over=is_over)

    def _put(self, one: Alert) -> None:
        self.by_id[one.alert_id] = one
        super()._put(one)


@dataclass(frozen=True)
class Told:
    """A sink of which only its traits count: people read it, or it takes so many at once."""

    name: str
    at_once: int | None = None
    resend_seconds: float | None = None

    @property
    def is_read_by_people(self) -> bool:
        return self.at_once is None
