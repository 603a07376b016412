"""Sends alerts to Prometheus Alertmanager, by its API version 2.

Alertmanager drops all alerts when it restarts. So, like Prometheus, this sink resends all open alerts regularly;
Alertmanager notifies only once. Unlike Prometheus, it sends an `endsAt` one week in the future. So Alertmanager does
not resolve alerts while the job is down or an alert is muted, unless this lasts longer.

Alertmanager identifies an alert by its labels. When an alert becomes worse, its alert gets another name or severity.
Then the sink ends the alert with the earlier labels at the same time. The timeline of the alert has these labels.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from streaming_app.alerts.alert import RESOLVED, Alert
from streaming_app.chunks import chunks
from streaming_app.notify.http_sink import HttpSink, check_url, split_url
from streaming_app.notify.message import dump_json, format_next, format_summary, format_value, with_since
from streaming_app.notify.sink import SinkError
from streaming_app.text import shorten, utc_iso

_ENDS_AFTER = timedelta(days=7)  # Alertmanager ends an alert so long after the job last sent it
_MAX_DETAILS = 10_000  # characters; Alertmanager sends annotations to chats and pagers, and keeps them in memory

_Url = Annotated[str, AfterValidator(check_url)]


class AlertmanagerSink(HttpSink):
    """`type: alertmanager`. The labels are alertname, severity, cluster, group, and those of the section `labels`."""

    at_once: ClassVar[int] = 200
    resend_seconds: ClassVar[float | None] = 60.0

    type: Literal["alertmanager"]
    urls: Annotated[tuple[_Url, ...], Field(min_length=1)]
    """All members of an Alertmanager cluster. Alerts are sent to each; it is enough if one accepts them."""

    _skipped_until: dict[str, float] = PrivateAttr(default_factory=dict)

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each member."""
        return [split_url(url) for url in self.urls]

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        """Send to every member, in batches. Raises SinkError if no member accepted a batch."""
        for batch in chunks(alerts, self.at_once):
            self._post_to_any([one for alert in batch for one in self._to_api_alerts(alert, event)])

    def _to_api_alerts(self, alert: Alert, event: str) -> Iterator[dict[str, Any]]:
        """Yield the ends of the alerts with the alert's earlier labels, and the alert with the current ones."""
        now, is_over = _now(), event == RESOLVED
        ends_at = (alert.ended_at or now) if is_over else now + _ENDS_AFTER
        details = "\n".join(f"{name}: {format_value(value)}" for name, value in alert.evidence.items())
        annotations = {
            "summary": format_summary(alert, RESOLVED) if is_over else with_since(alert.summary, alert),
            "description": format_next(alert, event),
            "details": shorten(details, _MAX_DETAILS),
            **self.links(alert),
        }
        for rule, severity in (*alert.was, (alert.rule, alert.severity)):
            labels = {"alertname": rule, "severity": severity, "cluster": alert.cluster}
            labels |= {} if alert.group_id is None else {"group": alert.group_id}
            end = ends_at if (rule, severity) == (alert.rule, alert.severity) else min(now, ends_at)
            yield {
                "labels": {**alert.labels, **labels},
                "annotations": {name: text for name, text in annotations.items() if text},
                "startsAt": utc_iso(alert.opened_at or alert.since),
                "endsAt": utc_iso(end),
                "generatorURL": annotations.get("page_url") or "",
            }

    def _post_to_any(self, alerts: list[dict[str, Any]]) -> None:
        """Send to all members. Skip a member that failed until the next resend, so that it does not delay others."""
        body, now = dump_json(alerts).encode(), time.monotonic()
        failed = {url for url in self.urls if self._skipped_until.get(url, 0) > now}
        failures: list[SinkError] = []
        accepted = False
        for url in sorted(self.urls, key=failed.__contains__):
            if accepted and url in failed:
                break
            try:
                self.post(f"{url.rstrip('/')}/api/v2/alerts", body, {}, quotes_answer=True)
            except SinkError as error:
                failures.append(error)
                self._skipped_until[url] = time.monotonic() + (self.resend_seconds or 0)
            else:
                accepted = True
                self._skipped_until.pop(url, None)
        if not accepted:
            line = "; ".join(map(str, failures))
            raise SinkError(line, retry=any(error.retry for error in failures))


def _now() -> datetime:
    return datetime.now(timezone.utc)
