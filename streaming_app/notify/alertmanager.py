"""Prometheus Alertmanager, by its API version 2.

Alertmanager drops all alerts when it restarts. So, like Prometheus, this sink resends all firing alerts regularly;
Alertmanager notifies only once. Other than Prometheus it gives an `endsAt` of a week ahead: that the job is
down, or an alert is muted here, resolves nothing there before that. Only the alert Watchdog ends soon, which is what it
is for.

Labels identify an alert there. When a problem becomes worse, the alert has another name or severity:
the one with the former labels is ended at the same moment. Which they were is in the time line of the problem.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from streaming_app.alerts.problem import FIRING, RESOLVED, Problem
from streaming_app.chunks import chunks
from streaming_app.notify.http_post import AuthSettings, check_url, post, split_url
from streaming_app.notify.message import dump_json, format_next, format_value
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.text import shorten, utc_iso

RESEND_SECONDS = 60.0
_RESENDS_AHEAD = 4  # of Watchdog, as Prometheus does
_ENDS_AFTER = timedelta(days=7)  # after it was last sent an alert ends there
_MAX_DETAILS = 10_000  # characters; it passes annotations on to chats and pagers, and keeps them in memory

_Url = Annotated[str, AfterValidator(check_url)]


class AlertmanagerSettings(AuthSettings):
    """`type: alertmanager`."""

    type: Literal["alertmanager"]
    urls: Annotated[tuple[_Url, ...], Field(min_length=1)]
    """Every member of an Alertmanager cluster: alerts are sent to all; one that accepts them is enough."""
    watchdog: bool = False
    """Whether an alert named Watchdog fires there while this job evaluates alerts, for a receiver that misses it."""

    def sink(self) -> AlertmanagerSink:
        """Return a new sink."""
        return AlertmanagerSink(self)

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each member."""
        return [split_url(url) for url in self.urls]


class AlertmanagerSink(Sink):
    """Sends to all members of an Alertmanager cluster.

    The labels are alertname, severity, cluster, group, and those declared for the group.
    """

    at_once = 200

    def __init__(
        self,
        settings: AlertmanagerSettings,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        resend_seconds: float = RESEND_SECONDS,
    ) -> None:
        super().__init__(settings.name)
        self.resend_seconds: float = resend_seconds
        self._settings = settings
        self._now = now
        self._started_at = now()
        if settings.watchdog:
            self.beat_seconds: float | None = resend_seconds
        self._skipped_until: dict[str, float] = {}

    def send(self, problems: Sequence[Problem], event: str) -> None:
        """Send to every member, in batches. Raises SinkError if none accepted one."""
        for batch in chunks(problems, self.at_once):
            self._post([one for problem in batch for one in self._to_api_alerts(problem, event)])

    def beat(self, cluster: str, reason: str) -> None:
        """Let the alert Watchdog fire for a while longer. Raises SinkError if no member accepted it."""
        labels = {"alertname": "Watchdog", "severity": "none", "cluster": cluster}
        annotations = {"summary": f"streams-groups evaluates alerts as long as this fires; the job: {reason}"}
        ends_at = self._now() + timedelta(seconds=_RESENDS_AHEAD * self.resend_seconds)
        self._post([_api_alert(labels, annotations, self._started_at, ends_at)])

    def _to_api_alerts(self, problem: Problem, event: str) -> Iterator[dict[str, Any]]:
        """Yield the end of what the problem was before, and the alert as it is."""
        now = self._now()
        ends_at = (problem.ended_at or now) if event == RESOLVED else now + _ENDS_AFTER
        details = "\n".join(f"{name}: {format_value(value)}" for name, value in problem.evidence.items())
        annotations = {
            "summary": problem.summary,
            "description": format_next(problem, FIRING),
            "details": shorten(details, _MAX_DETAILS),
            "runbook_url": self._settings.runbook_link(problem),
            "page_url": self._settings.page_link(problem),
        }
        for identity in (*(one for one in problem.was if one != problem.identity), problem.identity):
            labels = {"alertname": identity.rule, "severity": identity.severity, "cluster": problem.cluster}
            labels |= {} if problem.group_id is None else {"group": problem.group_id}
            end = ends_at if identity == problem.identity else min(now, ends_at)
            yield _api_alert({**problem.labels, **labels}, annotations, problem.opened_at or problem.since, end)

    def _post(self, alerts: list[dict[str, Any]]) -> None:
        """Send to all members, but skip one that failed until the next resend: it must not delay the others."""
        body, headers = dump_json(alerts).encode(), self._settings.authorization_header()
        failed = {url for url, until in self._skipped_until.items() if until > time.monotonic()}
        failures: list[SinkError] = []
        accepted = False
        for url in sorted(self._settings.urls, key=failed.__contains__):
            if accepted and url in failed:
                break
            try:
                post(f"{url.rstrip('/')}/api/v2/alerts", body, headers, self._settings, quotes_answer=True)
            except SinkError as error:
                failures.append(error)
                self._skipped_until[url] = time.monotonic() + self.resend_seconds
            else:
                accepted = True
                self._skipped_until.pop(url, None)
        if not accepted:
            line = "; ".join(map(str, failures))
            raise SinkError(line, retry=any(error.retry for error in failures))


def _api_alert(
    labels: Mapping[str, str], annotations: Mapping[str, str | None], starts_at: datetime, ends_at: datetime
) -> dict[str, Any]:
    return {
        "labels": labels,
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": utc_iso(starts_at),
        "endsAt": utc_iso(ends_at),
        "generatorURL": annotations.get("page_url") or "",
    }
