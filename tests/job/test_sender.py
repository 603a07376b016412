"""The threads of the sinks, some slow, down or with bugs. What is due and when, `notify.outbox` decides."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from streaming_app.alerts.alert import Alert
from streaming_app.notify.outbox import Outbox
from streaming_app.notify.sink import Sink
from streaming_app.notify.webhook import WebhookSink
from tests.alerts.examples import make_alert
from tests.notify.kept import KeptAlerts
from tests.notify.sending import PATIENT, Sending
from tests.support.receivers import HttpReceiver, Response
from tests.support.waiting import thread_names, wait_until


class Chat:
    """Raises the errors of its script, then keeps the groups of each message."""

    name, is_read_by_people, resend_seconds = "chat", True, None

    def __init__(self, *script: Exception) -> None:
        self.script = list(script)
        self.sent: list[list[str]] = []

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        del event
        if self.script:
            raise self.script.pop(0)
        self.sent.append(sorted(str(one.group_id) for one in alerts))


def hook(url: str, name: str) -> Sink:
    return WebhookSink(type="webhook", name=name, url=url, timeout=300)


def test_a_sink_that_hangs_does_not_delay_other_sinks_or_the_shutdown() -> None:
    with HttpReceiver() as receiver, HttpReceiver() as stuck:
        stuck.default = Response(hold=True)
        sender = Sending(hook(stuck.url, "stuck"), hook(receiver.url, "fine"))
        sender.offer(make_alert("stuck", "fine"))
        assert wait_until(lambda: bool(stuck.requests))
        assert wait_until(lambda: [one.sink for _, one in sender.deliveries] == ["fine"])
        sender.close(0.05)
        assert "alerts-stuck" in thread_names()  # abandoned, not waited for
    assert wait_until(lambda: "alerts-stuck" not in thread_names())
    assert [one.sink for _, one in sender.deliveries] == ["fine"]
    assert sender.lines == []


def test_bugs_in_a_sink_or_the_caller_stop_nothing_and_reveal_no_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streaming_app.job.sender._PAUSE_SECONDS", 0.01)
    secret = f"hunter{2}"  # in pieces, because the log contains source lines
    chat = Chat(RuntimeError(secret))

    class Failing(KeptAlerts):
        def note(self, *results: Any, is_over: bool) -> None:
            super().note(*results, is_over=is_over)
            if is_over:
                raise ValueError(secret)

    with Sending(chat, kept=Failing()) as sender:
        sender.send([make_alert("chat")])
    assert chat.sent == [["payments"]]
    assert "RuntimeError" in caplog.text
    assert "ValueError" in caplog.text
    assert secret not in caplog.text + str(sender.lines)


def test_closing_sends_what_waits_for_others_where_its_thread_has_just_found_that_nothing_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Waiting(Outbox):
        wait = interval = 3600.0

    has_looked = threading.Event()

    def succeeded(service: Any) -> None:
        has_looked.set()
        assert wait_until(lambda: math.isfinite(service.ends_at))

    monkeypatch.setattr("streaming_app.job.sender._SinkService.succeeded", succeeded)
    chat, kept = Chat(), KeptAlerts()
    kept.put(make_alert("chat"))
    sender = Sending(chat, kept=kept, outbox=Waiting)
    assert has_looked.wait(PATIENT)
    sender.close(PATIENT)
    assert chat.sent == [["payments"]]
    assert "alerts-chat" not in thread_names()
