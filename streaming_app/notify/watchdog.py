"""A receiver that notices when nothing comes any more, such as Healthchecks: a POST every minute while the job lives.

It gets no alerts. The body is one line of text, which tells whether the tables are up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from streaming_app.alerts.problem import Problem
from streaming_app.notify.http_sink import HttpUrlSink

BEAT_SECONDS = 60.0


class WatchdogSink(HttpUrlSink):
    """`type: watchdog`."""

    type: Literal["watchdog"]

    def send(self, problems: Sequence[Problem], event: str) -> None:
        """Take a test notification of `check`: the URL is requested. Raises SinkError."""
        del event
        self.beat(problems[0].cluster, problems[0].summary)

    def beat(self, cluster: str, reason: str) -> None:
        """Request the URL; `reason` is about the job. Raises SinkError if it does not answer with success."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        self.post(self.read_url(), f"{cluster}: {reason}\n".encode(), headers)
