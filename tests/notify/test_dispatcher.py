"""Notifications reach every sink once and in order, even if some sinks are slow, down or have bugs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone

import pytest

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.outbox import Backoff
from streaming_app.notify.dispatcher import jittered
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.notify.webhook import WebhookSettings
from tests.alerts.examples import make_alert
from tests.notify.receivers import HttpReceiver, Response
from tests.notify.sending import SHORT_BACKOFF, Sending
from tests.waiting import thread_names, wait_until


class DispatcherHarness:
    """A dispatcher with its deliveries and the lines that it reported."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[str, Delivery]] = []
        self.reported: list[str] = []
        self.at_exit = ExitStack()

    def start(self, *sinks: Sink, backoff: Backoff = SHORT_BACKOFF) -> Sending:
        dispatcher = Sending(sinks, self.deliveries.extend, self.reported.append, backoff=backoff)
        self.at_exit.callback(dispatcher.close, 5)
        return dispatcher


@pytest.fixture
def harness() -> Iterator[DispatcherHarness]:
    started = DispatcherHarness()
    with started.at_exit:
        yield started


class ScriptedSink(Sink):
    """Raises the errors of its script, then accepts everything."""

    def __init__(self, *script: Exception, resend: float | None = None, name: str = "script") -> None:
        super().__init__(name)
        self.resend_seconds = resend
        self.script = list(script)
        self.sent: list[tuple[str | None, str]] = []
        self.resent: list[list[str | None]] = []
        self.unblocked = threading.Event()
        self.unblocked.set()
        self.closed = False

    def send(self, alert: Alert, event: str) -> None:
        self.unblocked.wait()
        if self.script:
            raise self.script.pop(0)
        self.sent.append((alert.group_id, event))

    def resend(self, alerts: Iterable[Alert]) -> None:
        self.resent.append([alert.group_id for alert in alerts])

    def close(self) -> None:
        self.closed = True


class PickySink(Sink):
    """Accepts everything except the notifications of one group."""

    def __init__(self, *, retry: bool) -> None:
        super().__init__("picky")
        self.retry = retry
        self.sent: list[str | None] = []

    def send(self, alert: Alert, event: str) -> None:  # noqa: ARG002
        if alert.group_id == "poison":
            raise SinkError("poison is rejected", retry=self.retry)
        self.sent.append(alert.group_id)


def hook(receiver: HttpReceiver, name: str, timeout: float = 10) -> Sink:
    return WebhookSettings(type="webhook", name=name, url=receiver.url, timeout=timeout).sink()


def unavailable() -> SinkError:
    return SinkError("unavailable", retry=True)


def test_each_sink_is_notified_and_each_delivery_is_reported(
    harness: DispatcherHarness, receiver: HttpReceiver
) -> None:
    dispatcher = harness.start(hook(receiver, "a"), hook(receiver, "b"))
    alert = make_alert("a", "b", "removed", resolved=True)
    dispatcher.offer([alert])
    assert dispatcher.flush(10)
    assert sorted(
        (delivery.sink, delivery.event, delivery.attempts, delivery.error) for _, delivery in harness.deliveries
    ) == [
        ("a", "firing", 1, None),
        ("a", "resolved", 1, None),
        ("b", "firing", 1, None),
        ("b", "resolved", 1, None),
    ]
    assert {fingerprint for fingerprint, _ in harness.deliveries} == {alert.fingerprint}
    assert all(
        delivery.sent_at and delivery.sent_at <= datetime.now(timezone.utc) for _, delivery in harness.deliveries
    )
    assert [(status.name, status.sent, status.failed, status.waiting) for status in dispatcher.status()] == [
        ("a", 2, 0, 0),
        ("b", 2, 0, 0),
    ]
    assert all(status.last_success_at for status in dispatcher.status())


def test_firing_comes_before_resolved_even_if_it_has_to_be_retried(harness: DispatcherHarness) -> None:
    script = ScriptedSink(unavailable(), unavailable(), unavailable())
    dispatcher = harness.start(script)
    dispatcher.offer([make_alert("script")])
    dispatcher.offer([make_alert("script", resolved=True)])
    assert dispatcher.flush(10)
    assert script.sent == [("payments", FIRING), ("payments", RESOLVED)]
    assert [(delivery.event, delivery.attempts, delivery.error) for _, delivery in harness.deliveries] == [
        ("firing", 1, "unavailable"),
        ("firing", 2, "unavailable"),
        ("firing", 3, "unavailable"),
        ("firing", 4, None),
        ("resolved", 1, None),
    ]


def test_a_receiver_that_was_down_gets_everything_when_it_is_up_again(harness: DispatcherHarness) -> None:
    with HttpReceiver() as first:
        port = first.port
        webhook = hook(first, "hook")
    dispatcher = harness.start(webhook)
    dispatcher.offer([make_alert("hook", group_id=str(number)) for number in range(20)])
    assert wait_until(lambda: dispatcher.status()[0].failed >= 5)
    [status] = dispatcher.status()
    assert (status.sent, status.waiting) == (0, 20)
    assert status.error == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
    with HttpReceiver(port=port) as restarted:
        assert dispatcher.flush(10)
        ids = [request.headers["webhook-id"] for request in restarted.requests]
    assert len(ids) == len(set(ids)) == 20
    assert dispatcher.status()[0].error is None
    assert harness.reported == [
        f"Alerts cannot be sent to hook: {status.error}. Retrying.",
        "Alerts are sent to hook again.",
    ]


def test_a_sink_that_hangs_does_not_delay_other_sinks_or_the_shutdown(
    harness: DispatcherHarness, receiver: HttpReceiver
) -> None:
    with HttpReceiver() as stuck:
        stuck.default = Response(hold=True)
        dispatcher = harness.start(hook(stuck, "stuck", timeout=60), hook(receiver, "fine"))
        dispatcher.offer([make_alert("stuck", "fine")])
        assert wait_until(lambda: len(receiver.requests) == 1 and len(stuck.requests) == 1)
        assert not dispatcher.flush(0.05)
        dispatcher.close(0.2)
        assert "alerts-stuck" in thread_names()  # abandoned, not waited for
    assert wait_until(lambda: "alerts-stuck" not in thread_names())
    assert [delivery.sink for _, delivery in harness.deliveries] == ["fine"]
    assert harness.reported == []


def test_what_is_offered_again_while_it_is_queued_or_just_sent_is_not_sent_twice(harness: DispatcherHarness) -> None:
    script = ScriptedSink()
    script.unblocked.clear()
    dispatcher = harness.start(script)
    for _ in range(3):
        dispatcher.offer([make_alert("script"), make_alert("script", group_id="other")])
    assert dispatcher.status()[0].waiting == 2
    script.unblocked.set()
    assert dispatcher.flush(10)
    dispatcher.offer([make_alert("script")])
    assert dispatcher.flush(10)
    assert script.sent == [("payments", FIRING), ("other", FIRING)]


def test_a_repeated_notification_is_sent_again(harness: DispatcherHarness) -> None:
    script = ScriptedSink()
    dispatcher = harness.start(script)
    for repeat in (0, 1, 1, 2):
        dispatcher.offer([make_alert(deliveries=(Delivery("script", FIRING, repeat=repeat),))])
        assert dispatcher.flush(10)
    assert script.sent == [("payments", FIRING)] * 3
    assert [delivery.repeat for _, delivery in harness.deliveries] == [0, 1, 2]


def test_a_queued_notification_is_sent_with_its_latest_summary(
    harness: DispatcherHarness, receiver: HttpReceiver
) -> None:
    receiver.responses.append(Response(500))
    dispatcher = harness.start(hook(receiver, "hook"), backoff=Backoff(first_seconds=4, max_seconds=4))
    dispatcher.offer([make_alert("hook", summary="old")])
    assert wait_until(lambda: dispatcher.status()[0].failed == 1)
    dispatcher.offer([make_alert("hook", summary="new")])  # within the pause before the second attempt
    assert dispatcher.flush(10)
    assert receiver.bodies[-1]["data"]["summary"] == "new"


def test_attempts_continue_from_the_number_in_the_table(harness: DispatcherHarness) -> None:
    dispatcher = harness.start(ScriptedSink())
    before = Delivery("script", FIRING, attempts=7, error="unavailable")
    dispatcher.offer([make_alert(deliveries=(before, Delivery("script", RESOLVED, datetime.now(timezone.utc), 1)))])
    assert dispatcher.flush(10)
    assert [(delivery.event, delivery.attempts, delivery.error) for _, delivery in harness.deliveries] == [
        ("firing", 8, None)
    ]


@pytest.mark.parametrize("retry", [True, False])
def test_a_notification_that_is_rejected_does_not_delay_the_others(harness: DispatcherHarness, retry: bool) -> None:
    picky = PickySink(retry=retry)
    dispatcher = harness.start(picky)
    dispatcher.offer([make_alert("picky", group_id=group) for group in ("poison", "a", "b", "c")])
    assert wait_until(lambda: picky.sent == ["a", "b", "c"])
    assert dispatcher.status()[0].waiting == 1
    assert len(harness.reported) == 1


def test_an_error_that_needs_a_fix_is_retried_at_the_longest_interval(harness: DispatcherHarness) -> None:
    dispatcher = harness.start(ScriptedSink(SinkError("401", retry=False)), backoff=Backoff(0.01, 300))
    dispatcher.offer([make_alert("script")])
    assert wait_until(lambda: dispatcher.status()[0].failed == 1)
    assert not dispatcher.flush(20)  # it does not wait so long, as no attempt is due
    assert harness.reported == ["Alerts cannot be sent to script: 401. Fix the cause; it is retried every few minutes."]


def test_retry_after_is_respected(harness: DispatcherHarness, receiver: HttpReceiver) -> None:
    receiver.responses.append(Response(429, {"Retry-After": "600"}))
    dispatcher = harness.start(hook(receiver, "hook"))
    dispatcher.offer([make_alert("hook", group_id=str(number)) for number in range(5)])
    assert wait_until(lambda: dispatcher.status()[0].failed == 1)
    assert not dispatcher.flush(20)
    assert len(receiver.requests) == 1


def test_bugs_in_a_sink_or_the_caller_stop_nothing_and_reveal_no_secret(
    harness: DispatcherHarness, caplog: pytest.LogCaptureFixture
) -> None:
    secret = f"hunter{2}"  # in pieces, because the log contains source lines
    script = ScriptedSink(RuntimeError(secret))

    def fails(_results: object) -> None:
        raise ValueError(secret)

    dispatcher = Sending([script], fails, harness.reported.append, backoff=SHORT_BACKOFF)
    harness.at_exit.callback(dispatcher.close, 5)
    dispatcher.offer([make_alert("script")])
    assert dispatcher.flush(10)
    assert script.sent == [("payments", FIRING)]
    assert "RuntimeError" in caplog.text
    assert "ValueError" in caplog.text
    assert secret not in caplog.text + str(harness.reported)


def test_firing_alerts_are_resent_to_the_sinks_that_need_it_until_they_are_resolved(harness: DispatcherHarness) -> None:
    script, plain = ScriptedSink(resend=0.05), ScriptedSink(name="plain")
    dispatcher = harness.start(script, plain)
    sent = (Delivery("script", FIRING, datetime.now(timezone.utc), 1),)
    dispatcher.offer([make_alert(group_id="a", deliveries=sent), make_alert("script", group_id="b")])
    assert wait_until(lambda: script.resent[-2:] == [["a", "b"]] * 2)
    assert script.sent == [("b", FIRING)]
    with_resolution = (*sent, Delivery("script", RESOLVED))
    dispatcher.offer([make_alert(group_id="a", deliveries=with_resolution, resolved=True)])
    assert wait_until(lambda: script.resent[-2:] == [["b"]] * 2)
    dispatcher.offer([make_alert("script", group_id="b", resolved=True)])
    assert dispatcher.flush(10)
    count = len(script.resent)
    dispatcher.offer([make_alert(group_id="c", deliveries=sent)])  # whose turns would be those of the others, too
    assert wait_until(lambda: len(script.resent) > count + 2)
    assert script.resent[count:] == [["c"]] * len(script.resent[count:])
    assert plain.resent == []
    assert dispatcher.status()[0].sent == 3  # b fired; a and b were resolved


def test_a_pending_alert_is_not_sent(harness: DispatcherHarness) -> None:
    script = ScriptedSink(resend=0.01)
    dispatcher = harness.start(script)
    dispatcher.offer([make_alert(group_id="pending", state="pending", opened_at=None, deliveries=())])
    dispatcher.offer([make_alert("script", group_id="open")])
    assert wait_until(lambda: len(script.resent) > 2)
    assert (script.sent, script.resent) == ([("open", FIRING)], [["open"]] * len(script.resent))


def test_pauses_double_up_to_the_maximum_with_jitter() -> None:
    backoff = jittered()
    for failures, longest in ((1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (10_000, 300)):
        pauses = {backoff.pause(failures) for _ in range(50)}
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(pauses) > 1


def test_close_closes_the_sinks_and_stops_their_threads(harness: DispatcherHarness) -> None:
    script = ScriptedSink(resend=60)
    dispatcher = harness.start(script)
    dispatcher.offer([make_alert("script")])
    dispatcher.flush(10)
    dispatcher.close(5)
    assert script.closed
    assert "alerts-script" not in thread_names()
