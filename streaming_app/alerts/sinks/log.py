"""A line for each notification, to standard error or a file, for those who collect logs."""

from __future__ import annotations

import json
import logging
import sys
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from streaming_app.alerts.sinks.base import BaseSettings, Sink, SinkError
from streaming_app.alerts.sinks.webhook import payload
from streaming_app.alerts.sinks.wording import as_json, plain, utc
from streaming_app.core.alert import CRITICAL, RESOLVED, WARNING, Alert

_LEVELS = {CRITICAL: logging.CRITICAL, WARNING: logging.WARNING}


class LogSettings(BaseSettings):
    """`type: log`."""

    type: Literal["log"]
    file: Path | None = None
    """Where lines are appended; standard error if not given. It may be rotated."""
    format: Literal["logfmt", "json"] = "logfmt"
    """`json` lines are what the webhook sends."""

    def sink(self) -> LogSink:
        """Make the sink."""
        return LogSink(self)

    @field_validator("file")
    @classmethod
    def _can_be_there(cls, file: Path | None) -> Path | None:
        if file and not file.absolute().parent.is_dir():
            raise ValueError(f"{file.absolute().parent} is not a directory")
        return file


class LogSink(Sink):
    """Writes by the logging module, by a logger of its own: `streams_groups.alerts.NAME`."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings
        self._handler = _FileHandler(settings.file) if settings.file else _StreamHandler(sys.stderr)
        self._logger = logging.getLogger(f"streams_groups.alerts.{settings.name}")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self._handler)

    def send(self, alert: Alert, event: str) -> None:
        """Write the line. Raises SinkError if it cannot be written."""
        level = logging.INFO if event == RESOLVED else _LEVELS.get(alert.severity, logging.INFO)
        runbook = self._settings.runbook(alert)
        line = as_json(payload(alert, event, runbook)) if self._settings.format == "json" else logfmt(alert, event)
        try:
            self._logger.log(level, "%s", line)
        except (OSError, ValueError) as error:
            where = self._settings.file or "standard error"
            raise SinkError(f"{where}: {getattr(error, 'strerror', None) or error}", retry=True) from None

    def close(self) -> None:
        """Close the file."""
        self._logger.removeHandler(self._handler)
        self._handler.close()


def logfmt(alert: Alert, event: str) -> str:
    """`key=value` pairs; a value in JSON's quotes where it needs them."""
    at = alert.resolved_at if event == RESOLVED else alert.opened_at
    pairs: dict[str, Any] = {
        "time": utc(at or alert.pending_since),
        "event": event,
        "severity": alert.severity,
        "rule": alert.rule,
        "cluster": alert.cluster,
        "group": alert.group_id,
        "since": utc(alert.pending_since),
        "summary": alert.summary,
    }
    pairs |= {str(name): plain(value) for name, value in alert.details.items() if name not in pairs}
    return " ".join(f"{_key(name)}={_quoted(value)}" for name, value in pairs.items() if value is not None)


def _key(name: str) -> str:
    return "".join(character if character.isalnum() or character in "_.-" else "_" for character in name)


def _quoted(value: str) -> str:
    bare = value and value.isprintable() and not any(character in ' "=\\' for character in value)
    return value if bare else json.dumps(value)


class _Raises(logging.Handler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - as logging calls it
        """Let the caller know, who tries again; logging would print a traceback and go on."""
        raise  # noqa: PLE0704 - called while the error is handled


class _StreamHandler(_Raises, logging.StreamHandler):  # type: ignore[type-arg] # subscripted since Python 3.11
    pass


class _FileHandler(_Raises, WatchedFileHandler):
    """Follows the file when it is rotated."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
