"""A real Alertmanager gets alerts and updates, and gets them again after a restart."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import Delivery
from streaming_app.notify.alertmanager import AlertmanagerSettings
from tests.alerts.examples import make_alert
from tests.notify.receivers import Alertmanager, HttpReceiver
from tests.notify.sending import Sending
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def now() -> datetime:
    return datetime.now(timezone.utc)


def notifications(receiver: HttpReceiver) -> list[tuple[str, str]]:
    """Return the status and the group of each alert that Alertmanager notified."""
    return [(alert["status"], alert["labels"]["group"]) for body in receiver.bodies for alert in body["alerts"]]


def test_an_alert_becomes_active_stays_active_and_is_resolved(
    alertmanager: Alertmanager, receiver: HttpReceiver
) -> None:
    settings = AlertmanagerSettings(
        type="alertmanager",
        urls=(alertmanager.url,),
        resend=1,
        labels={"team": "a"},
        runbook_url="https://wiki#{rule}",
    )
    deliveries: list[tuple[str, Delivery]] = []
    dispatcher = Sending([settings.sink()], deliveries.extend)
    try:
        opened = now()
        alert = make_alert("alertmanager", opened_at=opened)
        dispatcher.offer([alert])
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
        assert wait_until(lambda: notifications(receiver) == [("firing", "payments")])

        first_end = active["endsAt"]
        assert wait_until(lambda: bool(alertmanager.alerts()) and alertmanager.alerts()[0]["endsAt"] > first_end)
        assert wait_until(lambda: now() > datetime.fromisoformat(first_end.replace("Z", "+00:00")))
        assert alertmanager.alerts()[0]["status"]["state"] == "active"

        resolved: dict[str, Any] = {"opened_at": opened, "resolved_at": now(), "resolved": True}
        dispatcher.offer([make_alert("alertmanager", **resolved)])
        assert wait_until(lambda: ("resolved", "payments") in notifications(receiver))
        assert alertmanager.alerts() == []
        assert notifications(receiver) == [("firing", "payments"), ("resolved", "payments")]
        assert [(delivery.event, delivery.attempts, delivery.error) for _, delivery in deliveries] == [
            ("firing", 1, None),
            ("resolved", 1, None),
        ]
    finally:
        dispatcher.close(5)


def test_an_alertmanager_that_lost_its_alerts_gets_all_firing_ones_again(
    alertmanager: Alertmanager, receiver: HttpReceiver, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    sink = AlertmanagerSettings(type="alertmanager", urls=(alertmanager.url,), resend=1).sink()
    dispatcher = Sending([sink], lambda *_: None)
    try:
        sent = (Delivery("alertmanager", "firing", now(), 1),)
        dispatcher.offer([make_alert(group_id=str(number), deliveries=sent, opened_at=now()) for number in range(3)])
        assert wait_until(lambda: len(alertmanager.alerts()) == 3)
        assert dispatcher.status()[0].sent == 0
        assert wait_until(lambda: len(notifications(receiver)) == 3)
    finally:
        dispatcher.close(5)
