"""Sends a heartbeat every minute to a receiver that alerts when heartbeats stop, such as Healthchecks.

The receiver gets no alerts. The body of the POST is one line of text that says whether the tables are up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from streaming_app.alerts.alert import Alert
from streaming_app.notify.http_sink import HttpUrlSink

BEAT_SECONDS = 60.0


class WatchdogSink(HttpUrlSink):
    """`type: watchdog`."""

    type: Literal["watchdog"]

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        """Request the URL, for the test notification of `check`. Raises SinkError."""
        del event
        self.beat(alerts[0].cluster, alerts[0].summary)

    def beat(self, cluster: str, reason: str) -> None:
        """Request the URL; `reason` is a line about the job. Raises SinkError if the response is not a success."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        self.post(self.read_url(), f"{cluster}: {reason}\n".encode(), headers)
