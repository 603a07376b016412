"""An example alert to send."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.problem import CRITICAL, FIRING, RESOLVED, Delivery, Problem

SINCE = datetime(2026, 11, 21, 3, 12, 5, 765000, tzinfo=timezone.utc)


def make_alert(*sinks: str, resolved: bool = False, **other: Any) -> Problem:
    """Return an alert about the group `payments` that is due to these sinks; if `resolved`, so is its resolution."""
    events = (FIRING, RESOLVED) if resolved else (FIRING,)
    fields: dict[str, Any] = {
        "alert_id": "3f2a90bc51de",
        "cluster": "prod",
        "group_id": "payments",
        "rule": "not-ready",
        "severity": CRITICAL,
        "since": SINCE,
        "opened_at": SINCE + timedelta(minutes=5),
        "ended_at": SINCE + timedelta(minutes=9) if resolved else None,
        "ended_by": "evidence" if resolved else None,
        "cause": None,
        "labels": {},
        "summary": "payments is NotReady: its source topic card-transactions does not exist",
        "evidence": {"missing_topics": ["card-transactions"], "state": "NotReady"},
        "subject": "not-ready",
        "deliveries": tuple(Delivery(sink, event) for sink in sinks for event in events),
    }
    return Problem(**(fields | other))
