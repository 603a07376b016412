"""One line for each notification, to standard error or a file, for log collectors."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from streaming_app.alerts.alert import CRITICAL, RESOLVED, TEAM, WARNING, Alert
from streaming_app.errors import reason_of
from streaming_app.notify.daily_summary import DailySummary, format_summary_title
from streaming_app.notify.message import AlertGroup, dump_json, event_at, format_names, format_subject, format_value
from streaming_app.notify.sink import SinkError, TextSettings, TextSink
from streaming_app.notify.webhook import VERSION, payload
from streaming_app.text import is_visible, shorten, utc_iso

_MAX_VALUE, _MAX_LINE = 2_000, 12_000  # characters; container runtimes split lines at 16 kB
_LEVELS = {CRITICAL: logging.CRITICAL, WARNING: logging.WARNING}


class LogSettings(TextSettings):
    """`type: log`."""

    type: Literal["log"]
    file: Path | None = None
    """The file to append to; default: standard error. It may be rotated."""
    format: Literal["logfmt", "json"] = "logfmt"
    """A `json` line is the body that the webhook sends; of several alerts it has an array of their `data`."""

    def sink(self) -> LogSink:
        """Return a new sink."""
        return LogSink(self)

    @field_validator("file")
    @classmethod
    def _directory_exists(cls, file: Path | None) -> Path | None:
        if file and not file.absolute().parent.is_dir():
            raise ValueError(f"{file.absolute().parent} is not a directory")
        return file


class LogSink(TextSink):
    """Writes with the logging module, to its own logger: `streams_groups.alerts.NAME`."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings
        self._handler = _FileHandler(settings.file) if settings.file else _StreamHandler(sys.stderr)
        self._logger = logging.getLogger(f"streams_groups.alerts.{settings.name}")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self._handler)

    def send(self, alert: Alert, event: str) -> None:
        """Write the line of one alert. Raises SinkError if it cannot be written."""
        if self._settings.format == "json":
            links = self._settings.runbook_link(alert), self._settings.page_link(alert)
            line = dump_json(payload(_with_short_details(alert), event, *links))
        else:
            line = format_logfmt(_pairs(alert, event))
        self._write(_level(alert.severity, event), line)

    def send_group(self, group: AlertGroup) -> None:
        """Write one line for several alerts. Raises SinkError if it cannot be written."""
        if self._settings.format == "json":
            line = dump_json(_group_payload(group, self._settings))
        else:
            line = format_logfmt(_group_pairs(group))
        self._write(_level(group.severity, group.event), line)

    def send_summary(self, summary: DailySummary) -> None:
        """Write the line of the daily summary. Raises SinkError if it cannot be written."""
        values = {
            "cluster": summary.cluster,
            "groups": dict(summary.groups),
            "firing": len(summary.firing),
            "silenced": summary.silenced,
            "fired": dict(summary.fired),
            "resolved": summary.resolved,
            "summary": format_summary_title(summary),
        }
        at = utc_iso(summary.at)
        if self._settings.format == "json":
            line = dump_json({"version": VERSION, "type": "summary", "timestamp": at, "data": values})
        else:
            line = format_logfmt({"time": at, "event": "summary", **values})
        self._write(logging.INFO, line)

    def _write(self, level: int, line: str) -> None:
        try:
            self._logger.log(level, "%s", line)
        except (OSError, ValueError) as error:
            where = self._settings.file or "standard error"
            raise SinkError(f"{where}: {reason_of(error)}", retry=True) from None

    def close(self) -> None:
        """Close the file."""
        self._logger.removeHandler(self._handler)
        self._handler.close()


def format_logfmt(pairs: Mapping[str, Any]) -> str:
    """Return `key=value` pairs; a value is quoted as in JSON where necessary, and cut where it is very long."""
    words: list[str] = []
    left = _MAX_LINE
    for name, value in pairs.items():
        if value is None:
            continue
        word = f"{_to_key(name)}={_quote(shorten(format_value(value), _MAX_VALUE))}"
        left -= len(word)
        if left < 0:
            words.append("truncated=true")
            break
        words.append(word)
    return " ".join(words)


def _level(severity: str, event: str) -> int:
    return logging.INFO if event == RESOLVED else _LEVELS.get(severity, logging.INFO)


def _pairs(alert: Alert, event: str) -> dict[str, Any]:
    own = {
        "time": utc_iso(event_at(alert, event)),
        "event": event,
        "severity": alert.severity,
        "rule": alert.rule,
        "cluster": alert.cluster,
        "group": alert.group_id,
        "since": utc_iso(alert.pending_since),
        "summary": alert.summary,
    }
    return own | {str(name): value for name, value in alert.details.items() if name not in own}


def _group_pairs(group: AlertGroup) -> dict[str, Any]:
    return {
        "time": utc_iso(group.at),
        "event": group.event,
        "severity": group.severity,
        "rule": group.first.rule,
        "cluster": group.first.cluster,
        "alerts": len(group.alerts),
        "groups": len(group.group_ids),
        "group": format_names(group) or None,
        "team": list(group.teams) or None,
        "since": utc_iso(group.since),
        "summary": f"{format_subject(group)}, such as: {shorten(group.first.summary, _MAX_VALUE)}",
    }


def _group_payload(group: AlertGroup, settings: LogSettings) -> dict[str, Any]:
    named = [_with_short_details(alert, len(group.alerts)) for alert in group.alerts[: group.max_named]]
    parts = [payload(alert, group.event, None, settings.page_link(alert))["data"] for alert in named]
    data = {
        "cluster": group.first.cluster,
        "rule": group.first.rule,
        "severity": group.severity,
        "summary": format_subject(group),
        "alerts": parts,
        "more": len(group.alerts) - len(named),
        "runbook_url": settings.runbook_link(group.first),
    }
    return {"version": VERSION, "type": f"alerts.{group.event}", "timestamp": utc_iso(group.at), "data": data}


def _with_short_details(alert: Alert, alerts: int = 1) -> Alert:
    """Return the alert with its details cut, as text, if so many would make a line that collectors split."""
    text, most = dump_json(alert.details), _MAX_LINE // alerts
    if len(text) <= most:
        return alert
    team = {TEAM: alert.team} if alert.team else {}
    return replace(alert, details={**team, "truncated": shorten(text, max(most, 1))})


def _to_key(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _quote(value: str) -> str:
    bare = value and is_visible(value) and not any(character in ' "=\\' for character in value)
    return value if bare else json.dumps(value)


class _RaisingHandler(logging.Handler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's name
        """Raise the error to the caller, which retries; logging would print a traceback and continue."""
        raise  # noqa: PLE0704 - called while the error is handled


class _StreamHandler(_RaisingHandler, logging.StreamHandler):  # type: ignore[type-arg] # subscripted since Python 3.11
    pass


class _FileHandler(_RaisingHandler, WatchedFileHandler):
    """Follows the file when it is rotated."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
