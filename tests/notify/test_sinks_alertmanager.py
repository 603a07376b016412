"""A real Alertmanager gets alerts and updates, and gets them again after a restart."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streaming_app.alerts.alert import FIRING, RESOLVED, Line
from streaming_app.notify.alertmanager import AlertmanagerSink
from tests.alerts.examples import make_alert
from tests.notify.sending import Sending
from tests.support.receivers import Alertmanager, HttpReceiver, notify_of_all, start_alertmanager
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TEMPLATES = Path(__file__).parents[2] / "deploy" / "prometheus" / "streams-groups.tmpl"


def now() -> datetime:
    return datetime.now(timezone.utc)


def notifications(receiver: HttpReceiver) -> list[tuple[str, str]]:
    """Return the status and the group of each alert that Alertmanager notified."""
    return [(alert["status"], alert["labels"]["group"]) for body in receiver.bodies for alert in body["alerts"]]


class Often(AlertmanagerSink):
    """It sends again each second."""

    resend_seconds: ClassVar[float | None] = 1.0


def often(alertmanager: Alertmanager, **settings: Any) -> AlertmanagerSink:
    return Often(type="alertmanager", urls=(alertmanager.url,), **settings)


def test_an_alert_stays_active_also_after_the_death_of_the_job_until_the_next_run_resolves_it(
    alertmanager: Alertmanager, receiver: HttpReceiver
) -> None:
    opened = now()
    with Sending(often(alertmanager)) as before:
        before.offer(make_alert("alertmanager", opened_at=opened))
        assert wait_until(lambda: bool(alertmanager.alerts()))
        [active] = alertmanager.alerts()
        assert active["status"]["state"] == "active"
        assert wait_until(lambda: notifications(receiver) == [("firing", "payments")])
        assert wait_until(lambda: alertmanager.alerts()[0]["endsAt"] > active["endsAt"])  # it was sent again
    [one] = alertmanager.alerts()
    assert datetime.fromisoformat(one["endsAt"].replace("Z", "+00:00")) > now() + timedelta(days=6)  # by itself
    with Sending(often(alertmanager)) as after:
        after.offer(make_alert("alertmanager", opened_at=opened, ended_at=now(), resolved=True))
        assert wait_until(lambda: notifications(receiver) == [("firing", "payments"), ("resolved", "payments")])
        assert alertmanager.alerts() == []
    found = [(one.event, one.attempts, one.error) for _, one in (*before.deliveries, *after.deliveries)]
    assert found == [("firing", 1, None), ("firing", 1, None), ("resolved", 1, None)]


def test_an_alert_that_becomes_worse_takes_the_place_of_what_it_was_also_after_a_restart(
    alertmanager: Alertmanager, receiver: HttpReceiver
) -> None:
    late = replace(make_alert("alertmanager", opened_at=now()), rule="StreamsGroupBehind", severity="warning")
    often(alertmanager).send([late], FIRING)
    assert wait_until(lambda: notifications(receiver) == [("firing", "payments")])
    begin = Line(late.since, "Behind", late.rule, late.severity, "slow")
    down = replace(late, rule="StreamsGroupDown", severity="critical", timeline=(begin,))
    often(alertmanager).send([down], FIRING)  # of another run
    assert wait_until(lambda: [one["labels"]["alertname"] for one in alertmanager.alerts()] == ["StreamsGroupDown"])
    assert wait_until(lambda: len(notifications(receiver)) == 3), receiver.bodies
    often(alertmanager).send([down], FIRING)
    for resolved in (False, True):  # of another alert, which is sent at the end of its group interval: after `down`
        last = make_alert(group_id="last", opened_at=now(), ended_at=now() if resolved else None, resolved=resolved)
        often(alertmanager).send([last], RESOLVED if resolved else FIRING)
        assert wait_until(lambda: (("firing", "resolved")[resolved], "last") in notifications(receiver))  # noqa: B023
    heard = [one for body in receiver.bodies for one in body["alerts"] if one["labels"]["group"] != "last"]
    sent = sorted((one["status"], one["labels"]["alertname"]) for one in heard)
    assert sent == [
        ("firing", "StreamsGroupBehind"),
        ("firing", "StreamsGroupDown"),
        ("resolved", "StreamsGroupBehind"),
    ]


def test_the_templates_for_chats_let_an_id_mention_nobody_and_hide_no_link(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    """Without them it does: Alertmanager's own template of Slack prints the label as it is."""
    hostile = "<!channel> `*<https://evil.example|pay here>*` @all \\u202e" + "x" * 400
    ours = {"title": '{{ template "streams_groups.title" . }}', "text": '{{ template "streams_groups.text" . }}'}
    chats = [
        {"api_url": f"{receiver.url}/{name}", "channel": "#c", **own} for name, own in (("own", {}), ("ours", ours))
    ]
    settings = notify_of_all(f"{receiver.url}/hook", [str(TEMPLATES)], slack_configs=chats)
    with start_alertmanager(tmp_path, settings) as running:
        sink = often(running, runbook_url="https://wiki/a_b#{rule}")
        alert = replace(make_alert("alertmanager", opened_at=now()), group_id=hostile, summary=f"{hostile}: is down")
        sink.send([alert], FIRING)
        assert wait_until(lambda: {"/own", "/ours"} <= {one.path for one in receiver.requests})
    sent = {one.path: one.json["attachments"][0] for one in receiver.requests if one.path != "/hook"}
    assert "<!channel>" in sent["/own"]["title"]
    assert sent["/ours"]["title"] == "FIRING: not-ready (1) in prod"
    severity_and_group, summary, step, runbook = sent["/ours"]["text"].splitlines()
    assert runbook == "https://wiki/a_b#not-ready"
    assert severity_and_group.startswith("critical: `.!channel. ...https://evil.example.pay here... .all ")
    for line in (severity_and_group, summary, step):
        assert line.count("`") == 2
        assert not set(line) & set("<>&@|*_~[]\\")
        assert len(line) < 320
