"""An example alert to send."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.alert import CRITICAL, FIRING, RESOLVED, Alert, Delivery

SINCE = datetime(2026, 11, 21, 3, 12, 5, 765000, tzinfo=timezone.utc)


def make_alert(*sinks: str, resolved: bool = False, **other: Any) -> Alert:
    """Return an alert about the group `payments` that is due to these sinks; if `resolved`, so is its resolution."""
    events = (FIRING, RESOLVED) if resolved else (FIRING,)
    fields: dict[str, Any] = {
        "cluster": "prod",
        "group_id": "payments",
        "rule": "not-ready",
        "severity": CRITICAL,
        "state": events[-1],
        "pending_since": SINCE,
        "opened_at": SINCE + timedelta(minutes=5),
        "resolved_at": SINCE + timedelta(minutes=9) if resolved else None,
        "summary": "payments is NotReady: its source topic card-transactions does not exist",
        "details": {"missing_topics": ["card-transactions"], "state": "NotReady"},
        "deliveries": tuple(Delivery(sink, event) for sink in sinks for event in events),
    }
    return Alert(**(fields | other))
