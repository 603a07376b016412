"""An example alert to send."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.alert import CRITICAL, FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.catalog import Rule, rules
from streaming_app.notify.message import format_message
from streaming_app.text import digest

SINCE = datetime(2026, 11, 21, 3, 12, 5, 765000, tzinfo=timezone.utc)


def make_alert(*sinks: str, resolved: bool = False, group_id: str | None = "payments", **other: Any) -> Alert:
    """Return an alert about a group that is due to these sinks; if `resolved`, so is its resolution."""
    events = (FIRING, RESOLVED) if resolved else (FIRING,)
    fields: dict[str, Any] = {
        "alert_id": "3f2a90bc51de" if group_id == "payments" else digest(repr(group_id), 12),
        "cluster": "prod",
        "group_id": group_id,
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
        "deliveries": tuple(Delivery(sink, event) for sink in sinks for event in events),
    }
    return Alert(**(fields | other))


def check_text(alert: Alert) -> None:
    """Assert that two lines say which group it is, what is wrong since when, and what to do; and those of the end."""
    for event in (FIRING, RESOLVED):
        over = {"ended_at": alert.since + timedelta(hours=2), "ended_by": alert.ended_by or "evidence"}
        one = replace(alert, **over) if event == RESOLVED else alert
        text, _, _ = format_message(one, event, {"runbook_url": None, "page_url": None}).partition("\n\n")
        what, step = text.split("\n")
        assert (alert.group_id or "") in what
        assert "since " in what
        assert (
            step.startswith("Next: streams-groups ") if event == FIRING else step.endswith(". Nothing is to be done.")
        )


def make_rule(severity: str, for_seconds: float) -> Rule:
    """Return a rule with these settings."""
    return replace(rules()["StreamsGroupDown"], severity=severity, for_seconds=for_seconds)
