"""What notifications say to people, and how times and details are spelled for everyone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timezone

from streaming_app.core.alert import RESOLVED, Alert


def title(alert: Alert, event: str) -> str:
    """One line that says which alert it is: `[FIRING] not-ready: payments (cluster default)`."""
    about = f"{alert.group_id} (cluster {alert.cluster})" if alert.group_id is not None else f"cluster {alert.cluster}"
    return one_line(f"[{event.upper()}] {alert.rule}: {about}")


def message(alert: Alert, event: str, runbook: str | None) -> str:
    """Say everything in a few lines, what matters first."""
    told = {"severity": alert.severity, "since": utc(alert.pending_since)}
    if alert.opened_at:
        told["fired"] = utc(alert.opened_at)
    if event == RESOLVED and alert.resolved_at:
        told["resolved"] = utc(alert.resolved_at)
    told |= {one_line(str(name)): one_line(plain(value)) for name, value in alert.details.items()}
    if runbook:
        told["runbook"] = runbook
    return "\n".join([one_line(alert.summary), "", *(f"{name}: {value}" for name, value in told.items())])


def plain(value: object) -> str:
    """A detail as a person would write it: lists with commas, the rest as JSON without quotes around text."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value):
        return ", ".join(map(str, value))
    return as_json(value)


def as_json(value: object) -> str:
    """JSON in ASCII, on one line."""
    return json.dumps(value, default=_spelled, separators=(",", ":"))


def utc(when: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond: `2026-11-21T18:11:25.765Z`."""
    return when.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def repeat(alert: Alert, event: str, sink: str) -> int:
    """How often this sink was told of the event before, where alerts that go on are told again."""
    return next((one.repeat for one in alert.deliveries if (one.sink, one.event) == (sink, event)), 0)


def identity(alert: Alert, event: str, telling: int = 0) -> str:
    """Name a notification for ever: the same for every try of it. A hash, as headers cannot hold any group's name."""
    named = f"{alert.fingerprint}/{event}/{telling}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def one_line(text: str) -> str:
    """Keep what can stand in a header or a line of a log: names of groups may hold anything."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(shown.split())


def _spelled(value: object) -> object:
    if isinstance(value, datetime):
        return utc(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
