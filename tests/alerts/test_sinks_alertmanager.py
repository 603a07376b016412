"""A real Alertmanager is told, kept up to date, and told again after it was away."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from streaming_app.alerts.sender import Sender
from streaming_app.alerts.sinks.alertmanager import AlertmanagerSettings
from streaming_app.core.alert import Delivery
from tests.alerts.examples import an_alert
from tests.alerts.receivers import Alertmanager, HttpReceiver
from tests.waiting import wait_until


def now() -> datetime:
    return datetime.now(timezone.utc)


def told(receiver: HttpReceiver) -> list[tuple[str, str]]:
    """What Alertmanager told people: each alert with its group."""
    return [(one["status"], one["labels"]["group"]) for body in receiver.bodies for one in body["alerts"]]


def test_an_alert_is_active_stays_so_and_is_resolved(alertmanager: Alertmanager, receiver: HttpReceiver) -> None:
    settings = AlertmanagerSettings(
        type="alertmanager",
        urls=(alertmanager.url,),
        resend=1,
        labels={"team": "a"},
        runbook_url="https://wiki#{rule}",
    )
    done: list[tuple[str, Delivery]] = []
    sender = Sender([settings.sink()], lambda *what: done.append(what))
    try:
        opened = now()
        alert = an_alert("alertmanager", opened_at=opened)
        sender.offer([alert])
        assert wait_until(lambda: bool(alertmanager.alerts()))
        [active] = alertmanager.alerts()
        assert active["status"]["state"] == "active"
        assert active["labels"] == {
            "alertname": "not-ready",
            "severity": "critical",
            "cluster": "prod",
            "group": "payments",
            "team": "a",
        }
        assert active["annotations"]["summary"] == alert.summary
        assert active["annotations"]["runbook_url"] == "https://wiki#not-ready"
        assert wait_until(lambda: told(receiver) == [("firing", "payments")])

        first_end = active["endsAt"]
        assert wait_until(lambda: bool(alertmanager.alerts()) and alertmanager.alerts()[0]["endsAt"] > first_end)
        assert wait_until(lambda: now() > datetime.fromisoformat(first_end.replace("Z", "+00:00")))
        assert alertmanager.alerts()[0]["status"]["state"] == "active"

        resolved: dict[str, Any] = {"opened_at": opened, "resolved_at": now(), "resolved": True}
        sender.offer([an_alert("alertmanager", **resolved)])
        assert wait_until(lambda: ("resolved", "payments") in told(receiver))
        assert alertmanager.alerts() == []
        assert told(receiver) == [("firing", "payments"), ("resolved", "payments")]
        assert [(what.event, what.attempts, what.error) for _, what in done] == [
            ("firing", 1, None),
            ("resolved", 1, None),
        ]
    finally:
        sender.close(5)


def test_an_alertmanager_that_forgot_everything_hears_of_all_that_fires(
    alertmanager: Alertmanager, receiver: HttpReceiver, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    sink = AlertmanagerSettings(type="alertmanager", urls=(alertmanager.url,), resend=1).sink()
    sender = Sender([sink], lambda *_: None)
    try:
        sent = (Delivery("alertmanager", "firing", now(), 1),)
        sender.offer([an_alert(group_id=str(number), deliveries=sent, opened_at=now()) for number in range(3)])
        assert wait_until(lambda: len(alertmanager.alerts()) == 3)
        assert sender.status()[0].sent == 0
        assert wait_until(lambda: len(told(receiver)) == 3)
    finally:
        sender.close(5)
