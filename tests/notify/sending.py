"""A dispatcher as the job has one, without the engine: alerts are offered by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from streaming_app.alerts.alert import Alert
from streaming_app.alerts.notification_queue import Grouping
from streaming_app.alerts.outbox import Backoff, IsMuted, Outboxes, Results
from streaming_app.job.alert_service import Mutes
from streaming_app.notify.dispatcher import Dispatcher, jittered, traits_of
from streaming_app.notify.sink import Sink

SHORT_BACKOFF = Backoff(first_seconds=0.01, max_seconds=0.05)


class Sending(Dispatcher):
    """It starts with these sinks; `mutes` are read when alerts are offered."""

    def __init__(
        self,
        sinks: Iterable[Sink],
        on_delivery: Callable[[Results], None] = lambda _results: None,
        report: Callable[[str], None] = lambda _line: None,
        *,
        backoff: Backoff = SHORT_BACKOFF,
        grouping: Grouping | None = None,
        mutes: Mutes | None = None,
    ) -> None:
        sinks, grouping = list(sinks), grouping or Grouping()
        self._mutes = mutes
        outboxes = Outboxes(map(traits_of, sinks), grouping, jittered(backoff))
        super().__init__(sinks, outboxes, on_delivery, report, max_named=grouping.max_named)

    def settle(self, alerts: Iterable[Alert]) -> tuple[Alert, ...]:
        with self.changing() as outboxes:
            return outboxes.settle(alerts, self._muted())

    def offer(self, alerts: Iterable[Alert]) -> None:
        with self.changing() as outboxes:
            outboxes.offer(alerts, self._muted(), time.monotonic())

    def _muted(self) -> IsMuted | None:
        return self._mutes.is_muted if self._mutes and self._mutes.refresh() else None
