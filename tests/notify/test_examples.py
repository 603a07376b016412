"""The examples of docs/alerts.md for receivers, each with the real receiver."""

import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert
from streaming_app.config.declared import LabelsSettings, make_labels
from streaming_app.notify.alertmanager import AlertmanagerSink
from streaming_app.notify.sink import SinkError
from streaming_app.notify.webhook import WebhookSink
from streaming_app.sandbox.child_process import Process, reserve_port
from tests.alerts.examples import make_alert
from tests.support.receivers import HttpReceiver, start_alertmanager
from tests.support.tools import debian_tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "alerts.md").read_text("utf-8")
EXAMPLE = ROOT / "deploy" / "prometheus" / "alertmanager.yml"


def block(language: str, has: str) -> str:
    """Return the code block of the page that has this text."""
    found = [one for one in re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL) if has in one]
    assert len(found) == 1, has
    return found[0]


def config_of_test(receiver: str) -> dict[str, Any]:
    """Return the example with the receiver of the test, a path for each of its own, and no wait."""
    text = EXAMPLE.read_text("utf-8")
    text = re.sub(r"http://chat\.example\.com", receiver, text)
    text = text.replace("group_wait: 30s", "group_wait: 0s").replace("group_interval: 5m", "group_interval: 1s")
    return dict(yaml.safe_load(text))


def alert(group_id: str | None, rule: str = "StreamsGroupDown", severity: str = "critical", **other: Any) -> Alert:
    """Return an open alert with the labels that the page declares."""
    entries = yaml.safe_load(block("yaml", "team: payments, tier"))["labels"]
    labels = make_labels([LabelsSettings.model_validate(one) for one in entries])(group_id or "")
    opened = datetime.now(timezone.utc)
    name = f"{rule} {group_id}"
    return make_alert(
        *("alertmanager",),
        alert_id=name,
        group_id=group_id,
        rule=rule,
        severity=severity,
        **{"labels": labels if group_id else {}, "opened_at": opened, **other},
    )


def notified(receiver: HttpReceiver) -> set[tuple[str, str, str]]:
    """Return what the receivers of Alertmanager got: its path, the group, and firing or resolved."""
    return {
        (one.path, alert["labels"].get("group", ""), alert["status"])
        for one in receiver.requests
        for alert in one.json["alerts"]
    }


def test_alertmanager_routes_by_team_inhibits_warnings_and_keeps_what_is_silenced(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    with start_alertmanager(tmp_path, config_of_test(receiver.url)) as alertmanager:
        sink = AlertmanagerSink(type="alertmanager", urls=(alertmanager.url,))
        sink.send([alert("payments-cards"), alert("orders"), alert(None, "StreamsGroupsJobBehind")], FIRING)
        assert wait_until(
            lambda: (
                notified(receiver)
                == {
                    ("/payments", "payments-cards", "firing"),
                    ("/platform", "orders", "firing"),
                    ("/platform", "", "firing"),
                }
            )
        ), notified(receiver)
        sink.send([alert("payments-cards", "StreamsGroupDescriptionMissing", "warning")], FIRING)
        assert wait_until(lambda: len(alertmanager.alerts()) == 4)
        (inhibited,) = (one for one in alertmanager.alerts() if one["labels"]["severity"] == "warning")
        assert (inhibited["status"]["state"], len(inhibited["status"]["inhibitedBy"])) == ("suppressed", 1)
        silence(alertmanager.url)
        sink.send([alert("payments-fees")], FIRING)
        sink.send([alert("invoices")], FIRING)
        assert wait_until(lambda: ("/platform", "invoices", "firing") in notified(receiver))
        silenced = {one["labels"]["group"]: one["status"] for one in alertmanager.alerts() if "group" in one["labels"]}
        assert silenced["payments-fees"]["silencedBy"]
        assert not [one for one in notified(receiver) if one[1] == "payments-fees"]
        now = datetime.now(timezone.utc)
        sink.send([alert("orders", resolved=True, opened_at=now, ended_at=now)], RESOLVED)
        assert wait_until(lambda: ("/platform", "orders", "resolved") in notified(receiver))


def silence(url: str) -> None:
    """Run the command of the page."""
    program = shutil.which("amtool") or debian_tool("prometheus-alertmanager", "amtool")  # it comes with Alertmanager
    command = shlex.split(block("sh", "amtool silence add").replace("http://alertmanager:9093", url))
    subprocess.run([program, *command[1:]], check=True, capture_output=True, timeout=600)


def test_the_receiver_of_the_page_handles_each_notification_once(tmp_path: Path) -> None:
    with reserve_port() as free:
        port = free.getsockname()[1]
    program = tmp_path / "receiver.py"
    program.write_text(block("python", "webhook-id").replace("8080", str(port)), "utf-8")
    log = tmp_path / "receiver.log"
    process = Process([sys.executable, "-u", str(program)], log)
    try:
        sink = WebhookSink(type="webhook", url=f"http://127.0.0.1:{port}")
        assert wait_until(lambda: accepts(sink, alert("payments-cards")))
        sink.send([alert("payments-cards")], FIRING)  # as after a crash
        sink.send([alert("payments-cards", resolved=True)], RESOLVED)
    finally:
        process.stop()
    lines = [line for line in log.read_text("utf-8").splitlines() if line.startswith("alert.")]
    assert lines == ["alert.firing StreamsGroupDown payments-cards", "alert.resolved StreamsGroupDown payments-cards"]


def accepts(sink: Any, one: Alert) -> bool:
    """Send a notification, and tell whether the receiver is up and took it."""
    try:
        sink.send([one], FIRING)
    except SinkError:  # it starts
        return False
    return True
