"""A receiver that notices when nothing comes any more, such as Healthchecks: a POST every minute while the job lives.

It gets no alerts. The body is one line of text, which tells whether the tables are up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from streaming_app.alerts.problem import Problem
from streaming_app.notify.http_post import SecretUrlSettings, post
from streaming_app.notify.sink import Sink


class WatchdogSettings(SecretUrlSettings):
    """`type: watchdog`."""

    gets_alerts: ClassVar[bool] = False

    type: Literal["watchdog"]

    def sink(self) -> Sink:
        """Return a new sink."""
        return _WatchdogSink(self)


class _WatchdogSink(Sink):
    beat_seconds = 60.0

    def __init__(self, settings: WatchdogSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings

    def send(self, problems: Sequence[Problem], event: str) -> None:
        """Take a test notification of `check`: the URL is requested. Raises SinkError."""
        del event
        self.beat(problems[0].cluster, problems[0].summary)

    def beat(self, cluster: str, reason: str) -> None:
        """Request the URL. Raises SinkError if it does not answer with success."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        post(self._settings.read_url(), f"{cluster}: {reason}\n".encode(), headers, self._settings)
