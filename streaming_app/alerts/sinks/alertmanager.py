"""Prometheus Alertmanager, by its API version 2.

Alertmanager forgets an alert that is not sent again, and every alert when it restarts. So, like Prometheus, this sends
all that fire again and again, each time with an end a little ahead; Alertmanager tells people only once. A job that is
away for longer than four times `resend` therefore lets its alerts end there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from streaming_app.alerts.durations import Duration
from streaming_app.alerts.sinks.base import Sink, SinkError
from streaming_app.alerts.sinks.posting import AuthSettings, check_url, post
from streaming_app.alerts.sinks.wording import as_json, plain, utc
from streaming_app.core.alert import FIRING, RESOLVED, Alert

_RESENDS_AHEAD = 4  # Prometheus's own margin
_AT_ONCE = 200
_ANYTHING = re.compile(".+")  # its answers hold no secrets of ours

_Label = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
_Url = Annotated[str, AfterValidator(check_url)]


class AlertmanagerSettings(AuthSettings):
    """`type: alertmanager`."""

    type: Literal["alertmanager"]
    urls: Annotated[tuple[_Url, ...], Field(min_length=1)]
    """Every member of a cluster of Alertmanagers: all are told, one that takes it is enough."""
    resend: Annotated[Duration, Field(ge=1, le=3600)] = 60.0
    """How often alerts that fire are sent again; they end there when they were not for four times as long."""
    labels: Mapping[_Label, str] = {}
    """Further labels for every alert, to route by."""
    generator_url: str | None = None
    """Where an alert's link leads to."""

    def sink(self) -> AlertmanagerSink:
        """Make the sink."""
        return AlertmanagerSink(self)


class AlertmanagerSink(Sink):
    """Labels: alertname, severity, cluster, group, and what is configured. They name an alert, so none ever changes."""

    def __init__(
        self, settings: AlertmanagerSettings, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    ) -> None:
        super().__init__(settings.name)
        self.resend_seconds: float = settings.resend
        self._settings = settings
        self._now = now
        self._put_aside: dict[str, float] = {}

    def send(self, alert: Alert, event: str) -> None:
        """Tell every member; raises SinkError if none took it."""
        self._post([self._spelled(alert, event)])

    def resend(self, alerts: Sequence[Alert]) -> None:
        """Tell again of all that fire, many at a time."""
        left = iter(alerts)
        while some := list(islice(left, _AT_ONCE)):
            self._post([self._spelled(alert, FIRING) for alert in some])

    def _spelled(self, alert: Alert, event: str) -> dict[str, Any]:
        own = {"alertname": alert.rule, "severity": alert.severity, "cluster": alert.cluster}
        if alert.group_id is not None:
            own["group"] = alert.group_id
        details = "\n".join(f"{name}: {plain(value)}" for name, value in alert.details.items())
        annotations = {"summary": alert.summary, "details": details, "runbook_url": self._settings.runbook(alert)}
        ahead = self._now() + timedelta(seconds=_RESENDS_AHEAD * self.resend_seconds)
        ends = (alert.resolved_at or self._now()) if event == RESOLVED else ahead
        return {
            "labels": {**self._settings.labels, **own},
            "annotations": {name: text for name, text in annotations.items() if text},
            "startsAt": utc(alert.opened_at or alert.pending_since),
            "endsAt": utc(ends),
            "generatorURL": self._settings.generator_url or "",
        }

    def _post(self, alerts: list[dict[str, Any]]) -> None:
        """Tell all members, but leave one that failed alone until the next round: it must not hold up the others."""
        body, headers = as_json(alerts).encode(), self._settings.authorization()
        aside = [url for url in self._settings.urls if self._put_aside.get(url, 0) > time.monotonic()]
        failures: list[SinkError] = []
        taken = False
        for url in [*(url for url in self._settings.urls if url not in aside), *aside]:
            if taken and url in aside:
                break
            try:
                post(f"{url.rstrip('/')}/api/v2/alerts", body, headers, self._settings, quote=_ANYTHING)
            except SinkError as error:
                failures.append(error)
                self._put_aside[url] = time.monotonic() + self.resend_seconds
            else:
                taken = True
                self._put_aside.pop(url, None)
        if not taken:
            line = "; ".join(map(str, failures))
            raise SinkError(line, retry=any(error.retry for error in failures))
