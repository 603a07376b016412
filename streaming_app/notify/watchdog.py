"""A receiver that notices when nothing comes any more, such as Healthchecks: a POST every minute while the job lives.

It gets no alerts. The body is one line of text, which tells whether the tables are up to date.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from streaming_app.alerts.problem import Problem
from streaming_app.notify.http_post import SecretUrlSettings, post
from streaming_app.notify.sink import Sink


class WatchdogSettings(SecretUrlSettings):
    """`type: watchdog`."""

    gets_alerts: ClassVar[bool] = False

    type: Literal["watchdog"]

    @property
    def has_heartbeats(self) -> bool:
        """Always."""
        return True

    def sink(self) -> WatchdogSink:
        """Return a new sink."""
        return WatchdogSink(self)


class WatchdogSink(Sink):
    """Requests a URL."""

    beat_seconds = 60.0

    def __init__(self, settings: WatchdogSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings

    def send(self, alert: Problem, event: str) -> None:
        """Take a test notification of `check`: the URL is requested. Raises SinkError."""
        del event
        self.beat(alert.cluster, alert.summary)

    def beat(self, cluster: str, reason: str) -> None:
        """Request the URL. Raises SinkError if it does not answer with success."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        post(self._settings.read_url(), f"{cluster}: {reason}\n".encode(), headers, self._settings)
