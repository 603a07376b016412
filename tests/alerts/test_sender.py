"""Notifications reach every sink once, in order, in spite of sinks that are slow, away or broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone

import pytest

from streaming_app.alerts.lane import Backoff
from streaming_app.alerts.sender import Sender
from streaming_app.alerts.sinks.base import Sink, SinkError
from streaming_app.alerts.sinks.webhook import WebhookSettings
from streaming_app.core.alert import FIRING, RESOLVED, Alert, Delivery
from tests.alerts.examples import an_alert
from tests.alerts.receivers import Answer, HttpReceiver
from tests.waiting import wait_until

QUICK = Backoff(first_seconds=0.01, most_seconds=0.05)


class Scene:
    """A sender, what it told, and what it said."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Delivery]] = []
        self.said: list[str] = []
        self.running = ExitStack()

    def sender(self, *sinks: Sink, backoff: Backoff = QUICK) -> Sender:
        made = Sender(sinks, lambda *what: self.done.append(what), self.said.append, backoff)
        self.running.callback(made.close, 5)
        return made


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with made.running:
        yield made


class Script(Sink):
    """Fails by the errors of its script, then takes everything."""

    def __init__(self, *script: Exception, resend: float | None = None, name: str = "script") -> None:
        super().__init__(name)
        self.resend_seconds = resend
        self.script = list(script)
        self.sent: list[tuple[str | None, str]] = []
        self.resent: list[list[str | None]] = []
        self.go = threading.Event()
        self.go.set()
        self.closed = False

    def send(self, alert: Alert, event: str) -> None:
        self.go.wait()
        if self.script:
            raise self.script.pop(0)
        self.sent.append((alert.group_id, event))

    def resend(self, alerts: Iterable[Alert]) -> None:
        self.resent.append([alert.group_id for alert in alerts])

    def close(self) -> None:
        self.closed = True


class Picky(Sink):
    """Takes everything but one group's."""

    def __init__(self, *, retry: bool) -> None:
        super().__init__("picky")
        self.retry = retry
        self.sent: list[str | None] = []

    def send(self, alert: Alert, event: str) -> None:  # noqa: ARG002
        if alert.group_id == "poison":
            raise SinkError("no poison, please", retry=self.retry)
        self.sent.append(alert.group_id)


def hook(receiver: HttpReceiver, name: str, timeout: float = 10) -> Sink:
    return WebhookSettings(type="webhook", name=name, url=receiver.url, timeout=timeout).sink()  # type: ignore[arg-type]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def away() -> SinkError:
    return SinkError("away", retry=True)


def test_each_sink_is_told_and_each_delivery_reported(scene: Scene, receiver: HttpReceiver) -> None:
    sender = scene.sender(hook(receiver, "a"), hook(receiver, "b"))
    alert = an_alert("a", "b", "of-old", resolved=True)
    sender.offer([alert])
    assert sender.flush(10)
    assert sorted((what.sink, what.event, what.attempts, what.error) for _, what in scene.done) == [
        ("a", "firing", 1, None),
        ("a", "resolved", 1, None),
        ("b", "firing", 1, None),
        ("b", "resolved", 1, None),
    ]
    assert {fingerprint for fingerprint, _ in scene.done} == {alert.fingerprint}
    assert all(what.sent_at and what.sent_at <= datetime.now(timezone.utc) for _, what in scene.done)
    assert [(one.name, one.sent, one.failed, one.waiting) for one in sender.status()] == [
        ("a", 2, 0, 0),
        ("b", 2, 0, 0),
    ]
    assert all(one.last_success_at for one in sender.status())


def test_firing_comes_before_resolved_even_when_it_has_to_be_tried_again(scene: Scene) -> None:
    script = Script(away(), away(), away())
    sender = scene.sender(script)
    sender.offer([an_alert("script")])
    sender.offer([an_alert("script", resolved=True)])
    assert sender.flush(10)
    assert script.sent == [("payments", FIRING), ("payments", RESOLVED)]
    assert [(what.event, what.attempts, what.error) for _, what in scene.done] == [
        ("firing", 1, "away"),
        ("firing", 2, "away"),
        ("firing", 3, "away"),
        ("firing", 4, None),
        ("resolved", 1, None),
    ]


def test_a_receiver_that_is_gone_for_a_while_gets_everything_when_it_is_back(scene: Scene) -> None:
    with HttpReceiver() as first:
        port = first.port
        webhook = hook(first, "hook")
    sender = scene.sender(webhook)
    sender.offer([an_alert("hook", group_id=str(number)) for number in range(20)])
    assert wait_until(lambda: sender.status()[0].failed >= 5)
    [status] = sender.status()
    assert (status.sent, status.waiting) == (0, 20)
    assert status.error == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
    with HttpReceiver(port=port) as back:
        assert sender.flush(10)
        ids = [request.headers["webhook-id"] for request in back.requests]
    assert len(ids) == len(set(ids)) == 20
    assert sender.status()[0].error is None
    assert scene.said == [
        f"Alerts cannot be sent to hook: {status.error}. It is tried again.",
        "Alerts are sent to hook again.",
    ]


def test_a_sink_that_hangs_holds_up_nobody_else_and_not_the_end(scene: Scene, receiver: HttpReceiver) -> None:
    with HttpReceiver() as stuck:
        stuck.usual = Answer(hold=True)
        sender = scene.sender(hook(stuck, "stuck", timeout=60), hook(receiver, "fine"))
        sender.offer([an_alert("stuck", "fine")])
        assert wait_until(lambda: len(receiver.requests) == 1 and len(stuck.requests) == 1)
        assert not sender.flush(0.05)
        sender.close(0.2)
        assert "alerts-stuck" in threads()  # left behind, not waited for
    assert wait_until(lambda: "alerts-stuck" not in threads())
    assert [what.sink for _, what in scene.done] == ["fine"]
    assert scene.said == []


def test_offering_again_what_waits_or_was_just_sent_sends_nothing_twice(scene: Scene) -> None:
    script = Script()
    script.go.clear()
    sender = scene.sender(script)
    for _ in range(3):
        sender.offer([an_alert("script"), an_alert("script", group_id="other")])
    assert sender.status()[0].waiting == 2
    script.go.set()
    assert sender.flush(10)
    sender.offer([an_alert("script")])
    assert sender.flush(10)
    assert script.sent == [("payments", FIRING), ("other", FIRING)]


def test_a_repeated_notification_is_sent_again(scene: Scene) -> None:
    script = Script()
    sender = scene.sender(script)
    for repeat in (0, 1, 1, 2):
        sender.offer([an_alert(deliveries=(Delivery("script", FIRING, repeat=repeat),))])
        assert sender.flush(10)
    assert script.sent == [("payments", FIRING)] * 3
    assert [what.repeat for _, what in scene.done] == [0, 1, 2]


def test_what_waits_is_sent_with_its_newest_words(scene: Scene, receiver: HttpReceiver) -> None:
    receiver.usual = Answer(500)
    sender = scene.sender(hook(receiver, "hook"))
    sender.offer([an_alert("hook", summary="old")])
    assert wait_until(lambda: bool(receiver.requests))
    sender.offer([an_alert("hook", summary="new")])
    receiver.usual = Answer()
    assert sender.flush(10)
    assert receiver.bodies[-1]["data"]["summary"] == "new"


def test_attempts_go_on_from_what_the_table_says(scene: Scene) -> None:
    sender = scene.sender(Script())
    before = Delivery("script", FIRING, attempts=7, error="away")
    sender.offer([an_alert(deliveries=(before, Delivery("script", RESOLVED, datetime.now(timezone.utc), 1)))])
    assert sender.flush(10)
    assert [(what.event, what.attempts, what.error) for _, what in scene.done] == [("firing", 8, None)]


@pytest.mark.parametrize("retry", [True, False])
def test_one_that_is_refused_does_not_hold_up_the_others(scene: Scene, retry: bool) -> None:
    picky = Picky(retry=retry)
    sender = scene.sender(picky)
    sender.offer([an_alert("picky", group_id=group) for group in ("poison", "a", "b", "c")])
    assert wait_until(lambda: picky.sent == ["a", "b", "c"])
    assert sender.status()[0].waiting == 1
    assert len(scene.said) == 1


def test_what_has_to_be_mended_is_tried_again_at_the_slowest_pace(scene: Scene) -> None:
    sender = scene.sender(Script(SinkError("401", retry=False)), backoff=Backoff(0.01, 300))
    sender.offer([an_alert("script")])
    assert wait_until(lambda: sender.status()[0].failed == 1)
    assert not sender.flush(20)  # which does not wait so long, as nothing will happen
    assert scene.said == ["Alerts cannot be sent to script: 401. Mend this; it is tried again every few minutes."]


def test_a_receiver_that_asks_for_rest_gets_it(scene: Scene, receiver: HttpReceiver) -> None:
    receiver.answers.append(Answer(429, {"Retry-After": "600"}))
    sender = scene.sender(hook(receiver, "hook"))
    sender.offer([an_alert("hook", group_id=str(number)) for number in range(5)])
    assert wait_until(lambda: sender.status()[0].failed == 1)
    assert not sender.flush(20)
    assert len(receiver.requests) == 1


def test_bugs_of_a_sink_or_of_the_caller_end_nothing_and_tell_no_secret(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    secret = f"hunter{2}"  # in pieces, as the log shows lines of the program
    script = Script(RuntimeError(secret))

    def fails(_fingerprint: str, _delivery: Delivery) -> None:
        raise ValueError(secret)

    sender = Sender([script], fails, scene.said.append, QUICK)
    scene.running.callback(sender.close, 5)
    sender.offer([an_alert("script")])
    assert sender.flush(10)
    assert script.sent == [("payments", FIRING)]
    assert "RuntimeError" in caplog.text
    assert "ValueError" in caplog.text
    assert secret not in caplog.text + str(scene.said)


def test_what_fires_is_told_again_to_those_who_ask_until_it_is_resolved(scene: Scene) -> None:
    script, plain = Script(resend=0.05), Script(name="plain")
    sender = scene.sender(script, plain)
    sent = (Delivery("script", FIRING, datetime.now(timezone.utc), 1),)
    sender.offer([an_alert(group_id="a", deliveries=sent), an_alert("script", group_id="b")])
    assert wait_until(lambda: script.resent[-2:] == [["a", "b"]] * 2)
    assert script.sent == [("b", FIRING)]
    ends = (*sent, Delivery("script", RESOLVED))
    sender.offer([an_alert(group_id="a", deliveries=ends, resolved=True)])
    assert wait_until(lambda: script.resent[-2:] == [["b"]] * 2)
    sender.offer([an_alert("script", group_id="b", resolved=True)])
    assert sender.flush(10)
    count = len(script.resent)
    time.sleep(0.2)
    assert len(script.resent) == count
    assert plain.resent == []
    assert sender.status()[0].sent == 3  # b fired; a and b were resolved


def test_what_is_pending_is_not_told(scene: Scene) -> None:
    script = Script(resend=0.01)
    scene.sender(script).offer([an_alert(state="pending", opened_at=None, deliveries=())])
    time.sleep(0.05)
    assert (script.sent, script.resent) == ([], [])


def test_pauses_double_up_to_the_most_and_differ() -> None:
    backoff = Backoff()
    for failures, most in ((1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (10_000, 300)):
        pauses = {backoff.pause(failures) for _ in range(50)}
        assert all(most / 2 <= pause <= most for pause in pauses)
        assert len(pauses) > 1


def test_the_end_closes_the_sinks_and_their_threads(scene: Scene) -> None:
    script = Script(resend=60)
    sender = scene.sender(script)
    sender.offer([an_alert("script")])
    sender.flush(10)
    sender.close(5)
    assert script.closed
    assert "alerts-script" not in threads()
