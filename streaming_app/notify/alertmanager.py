"""Prometheus Alertmanager, by its API version 2.

Alertmanager drops an alert that is not sent again, and all alerts when it restarts. So, like Prometheus, this sink
resends all firing alerts regularly, each time with an `endsAt` a little ahead; Alertmanager notifies only once. If the
job is down for longer than four times `resend`, its alerts therefore end there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert
from streaming_app.notify.http_post import AuthSettings, check_url, post, split_url
from streaming_app.notify.message import dump_json, format_value
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.section import Duration
from streaming_app.text import shorten, utc_iso

_RESENDS_AHEAD = 4  # as Prometheus does
_BATCH_SIZE = 200
_MAX_DETAILS = 10_000  # characters; it passes annotations on to chats and pagers, and keeps them in memory
_ANYTHING = re.compile(".+")  # its responses contain no secrets of ours

_Label = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
_Url = Annotated[str, AfterValidator(check_url)]


class AlertmanagerSettings(AuthSettings):
    """`type: alertmanager`."""

    type: Literal["alertmanager"]
    urls: Annotated[tuple[_Url, ...], Field(min_length=1)]
    """Every member of an Alertmanager cluster: alerts are sent to all; one that accepts them is enough."""
    resend: Annotated[Duration, Field(ge=1, le=3600)] = 60.0
    """How often firing alerts are sent again; they end there if they are not sent for four times as long."""
    labels: Mapping[_Label, str] = {}
    """Additional labels for every alert, for routing."""
    generator_url: str | None = None
    """The target of an alert's link."""
    watchdog: bool = False
    """Whether an alert named Watchdog fires there while this job evaluates alerts, for a receiver that misses it."""

    @property
    def has_heartbeats(self) -> bool:
        """As `watchdog` says."""
        return self.watchdog

    def sink(self) -> AlertmanagerSink:
        """Return a new sink."""
        return AlertmanagerSink(self)

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each member."""
        return [split_url(url) for url in self.urls]


class AlertmanagerSink(Sink):
    """Sends to all members of an Alertmanager cluster.

    The labels are alertname, severity, cluster, group, and the configured ones. They identify an alert, so they never
    change.
    """

    def __init__(
        self, settings: AlertmanagerSettings, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    ) -> None:
        super().__init__(settings.name)
        self.resend_seconds: float = settings.resend
        self._settings = settings
        self._now = now
        self._started_at = now()
        if settings.watchdog:
            self.beat_seconds: float | None = settings.resend
        self._skipped_until: dict[str, float] = {}

    def send(self, alert: Alert, event: str) -> None:
        """Send to every member. Raises SinkError if none accepted it."""
        self._post([self._to_api_alert(alert, event)])

    def resend(self, alerts: Sequence[Alert]) -> None:
        """Send the firing alerts again, in batches."""
        remaining = iter(alerts)
        while batch := list(islice(remaining, _BATCH_SIZE)):
            self._post([self._to_api_alert(alert, FIRING) for alert in batch])

    def beat(self, cluster: str, reason: str) -> None:
        """Let the alert Watchdog fire for a while longer. Raises SinkError if no member accepted it."""
        labels = {"alertname": "Watchdog", "severity": "none", "cluster": cluster}
        annotations = {"summary": f"streams-groups evaluates alerts as long as this fires; the job: {reason}"}
        self._post([self._api_alert(labels, annotations, self._started_at, self._ahead())])

    def _ahead(self) -> datetime:
        return self._now() + timedelta(seconds=_RESENDS_AHEAD * self.resend_seconds)

    def _api_alert(
        self,
        own_labels: Mapping[str, str],
        annotations: Mapping[str, str | None],
        starts_at: datetime,
        ends_at: datetime,
    ) -> dict[str, Any]:
        return {
            "labels": {**self._settings.labels, **own_labels},
            "annotations": {name: text for name, text in annotations.items() if text},
            "startsAt": utc_iso(starts_at),
            "endsAt": utc_iso(ends_at),
            "generatorURL": self._settings.generator_url or "",
        }

    def _to_api_alert(self, alert: Alert, event: str) -> dict[str, Any]:
        own_labels = {"alertname": alert.rule, "severity": alert.severity, "cluster": alert.cluster}
        if alert.group_id is not None:
            own_labels["group"] = alert.group_id
        if alert.team is not None:
            own_labels["team"] = alert.team
        details = "\n".join(f"{name}: {format_value(value)}" for name, value in alert.details.items())
        annotations = {
            "summary": alert.summary,
            "details": shorten(details, _MAX_DETAILS),
            "runbook_url": self._settings.runbook_link(alert),
            "page_url": self._settings.page_link(alert),
        }
        ends_at = (alert.resolved_at or self._now()) if event == RESOLVED else self._ahead()
        return self._api_alert(own_labels, annotations, alert.opened_at or alert.pending_since, ends_at)

    def _post(self, alerts: list[dict[str, Any]]) -> None:
        """Send to all members, but skip one that failed until the next resend: it must not delay the others."""
        body, headers = dump_json(alerts).encode(), self._settings.authorization_header()
        skipped = [url for url in self._settings.urls if self._skipped_until.get(url, 0) > time.monotonic()]
        failures: list[SinkError] = []
        accepted = False
        for url in [*(url for url in self._settings.urls if url not in skipped), *skipped]:
            if accepted and url in skipped:
                break
            try:
                post(f"{url.rstrip('/')}/api/v2/alerts", body, headers, self._settings, quotable=_ANYTHING)
            except SinkError as error:
                failures.append(error)
                self._skipped_until[url] = time.monotonic() + self.resend_seconds
            else:
                accepted = True
                self._skipped_until.pop(url, None)
        if not accepted:
            line = "; ".join(map(str, failures))
            raise SinkError(line, retry=any(error.retry for error in failures))
