"""Many groups with one cause are one message where people read it, and single alerts where a receiver groups them.

From the dispatcher to real receivers, and over restarts with the real table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, Alert, Delivery
from streaming_app.alerts.notification_queue import Grouping
from streaming_app.notify.message import AlertGroup, format_group_message, format_group_title
from streaming_app.notify.sink import Sink, SinkError, TextSink
from streaming_app.tables.alerts_table import AlertsTable
from tests.alerts.examples import SINCE, make_alert
from tests.notify.receivers import HttpReceiver, Response, make_settings, make_sink
from tests.notify.sending import Sending
from tests.waiting import thread_names, wait_until
from tests.warehouses import make_warehouse

GROUPS = 300
SHORT = Grouping(group_wait=0.2, group_interval=0.4, max_named=20)


def maintenance(*sinks: str, resolved: bool = False, **other: Any) -> list[Alert]:
    """Return the alerts of a maintenance of the brokers, which hits every group at once."""
    return [
        make_alert(
            *sinks,
            resolved=resolved,
            group_id=f"app-{number:03}",
            rule="stuck",
            summary=f"app-{number:03} has been stuck in Reconciling",
            **other,
        )
        for number in range(GROUPS)
    ]


def chat(receiver: HttpReceiver, **settings: Any) -> Sink:
    """Return a sink whose messages people read."""
    return make_sink(type="apprise", name="chat", url=receiver.url.replace("http", "json", 1), **settings)


class Running:
    """A dispatcher with the results that it reported, each list of one attempt."""

    def __init__(self) -> None:
        self.results: list[list[tuple[str, Delivery]]] = []
        self.lines: list[str] = []
        self.at_exit = ExitStack()

    def start(self, *sinks: Sink, grouping: Grouping = SHORT) -> Sending:
        dispatcher = Sending(
            sinks,
            lambda results: self.results.append(list(results)),
            self.lines.append,
            grouping=grouping,
        )
        self.at_exit.callback(dispatcher.close, 5)
        return dispatcher


@pytest.fixture
def running() -> Iterator[Running]:
    started = Running()
    with started.at_exit:
        yield started


@pytest.mark.slow
def test_a_maintenance_of_the_brokers_is_one_message_in_a_chat_and_single_alerts_elsewhere(
    running: Running, receiver: HttpReceiver
) -> None:
    with HttpReceiver() as hook, HttpReceiver() as manager:
        dispatcher = running.start(
            chat(receiver, runbook_url="https://wiki#{rule}", page_url="https://page/{group}"),
            make_sink(type="webhook", url=hook.url),
            make_sink(type="alertmanager", urls=[manager.url]),
        )
        sinks = ("chat", "webhook", "alertmanager")
        dispatcher.offer(maintenance(*sinks))
        assert dispatcher.flush(60)
        dispatcher.offer(maintenance(*sinks, resolved=True))
        assert dispatcher.flush(60)
        assert len(hook.requests) == len(manager.requests) == 2 * GROUPS
    titles = [f"[{event}] stuck: 300 groups (cluster prod)" for event in ("FIRING", "RESOLVED")]
    assert [body["title"] for body in receiver.bodies] == titles
    text = receiver.bodies[0]["message"]
    assert "- app-019 has been stuck in Reconciling https://page/app-019\nand 280 more\n" in text
    assert text.endswith("\nrunbook: https://wiki#stuck")
    by_sink = {sink: [d for results in running.results for _, d in results if d.sink == sink] for sink in sinks}
    assert {sink: len(deliveries) for sink, deliveries in by_sink.items()} == dict.fromkeys(sinks, 2 * GROUPS)
    assert all(delivery.sent_at and delivery.attempts == 1 for found in by_sink.values() for delivery in found)


def test_alerts_that_fire_one_after_the_other_are_few_messages(running: Running, receiver: HttpReceiver) -> None:
    dispatcher = running.start(chat(receiver), grouping=Grouping(0.0, group_interval=600))
    first, *others = maintenance("chat")[:60]
    dispatcher.offer([first])
    assert wait_until(lambda: dispatcher.status()[0].sent == 1)
    for alert in others:
        dispatcher.offer([alert])
    assert dispatcher.flush(20)
    assert (dispatcher.status()[0].sent, len(receiver.requests)) == (60, 2)


def test_one_alert_by_itself_is_the_message_that_it_always_was(running: Running, receiver: HttpReceiver) -> None:
    dispatcher = running.start(chat(receiver, page_url="https://page/{group}"))
    dispatcher.offer([make_alert("chat")])
    assert wait_until(lambda: len(receiver.requests) == 1)
    (body,) = receiver.bodies
    assert body["title"] == "[FIRING] not-ready: payments (cluster prod)"
    assert body["message"].endswith("\npage: https://page/payments")


def test_a_message_that_fails_is_repeated_as_a_whole(running: Running, receiver: HttpReceiver) -> None:
    receiver.responses.extend([Response(503), Response(503)])
    dispatcher = running.start(chat(receiver))
    dispatcher.offer(maintenance("chat"))
    assert dispatcher.flush(10)
    assert [len(results) for results in running.results] == [GROUPS] * 3
    assert len({request.body for request in receiver.requests}) == 1
    assert [(d.attempts, d.sent_at is None) for results in running.results for _, d in results[:1]] == [
        (1, True),
        (2, True),
        (3, False),
    ]


class PickySink(TextSink):
    """Refuses for good each message with the group `poison`."""

    def __init__(self) -> None:
        super().__init__("picky")
        self.sent: list[str | None] = []

    def send(self, alert: Alert, event: str) -> None:
        self.send_group(AlertGroup((alert,), event))

    def send_group(self, group: AlertGroup) -> None:
        if "poison" in group.group_ids:
            raise SinkError("refused", retry=False)
        self.sent += group.group_ids


def test_an_alert_that_is_refused_does_not_keep_the_others_of_its_message_from_being_sent(running: Running) -> None:
    picky = PickySink()
    dispatcher = running.start(picky)
    dispatcher.offer([make_alert("picky", group_id=group) for group in ("a", "poison", "b", "c", "d")])
    assert wait_until(lambda: sorted(map(str, picky.sent)) == ["a", "b", "c", "d"])
    assert dispatcher.status()[0].waiting == 1


def test_closing_sends_what_only_waits_for_others(running: Running, receiver: HttpReceiver) -> None:
    patient = Grouping(group_wait=600, group_interval=600)
    dispatcher = running.start(chat(receiver), grouping=patient)
    dispatcher.offer(maintenance("chat"))
    dispatcher.close(5)
    assert len(receiver.requests) == 1
    assert len(running.results[0]) == GROUPS


def test_closing_does_not_wait_for_a_sink_that_is_down(running: Running) -> None:
    with HttpReceiver() as stuck:
        stuck.default = Response(hold=True)
        dispatcher = running.start(chat(stuck), grouping=Grouping(600, 600))
        dispatcher.offer(maintenance("chat"))
        dispatcher.close(0.3)
        assert "alerts-chat" in thread_names()  # the attempt goes on, and nobody waits for it
    assert wait_until(lambda: "alerts-chat" not in thread_names())
    assert running.results == []


def test_after_a_restart_what_was_sent_is_not_sent_again_and_the_rest_comes_in_one_message(
    running: Running, receiver: HttpReceiver, tmp_path: Path
) -> None:
    store = AlertsTable(make_warehouse(tmp_path), "prod")
    store.save(maintenance("chat"))

    def save(results: list[tuple[str, Delivery]]) -> None:
        stored = {alert.fingerprint: alert for alert in store.alerts()}
        store.save(replace(stored[name], deliveries=(delivery,)) for name, delivery in results)

    dispatcher = running.start(chat(receiver))
    dispatcher.offer(store.alerts())
    assert dispatcher.flush(10)
    save(running.results.pop())
    late = [replace(alert, group_id=f"late-{alert.group_id}") for alert in maintenance("chat")[:40]]
    store.save(late)
    dispatcher.close(5)  # as if killed: the late ones are only in the table

    again = running.start(chat(receiver))
    again.offer(store.alerts())
    assert again.flush(10)
    save(running.results.pop())
    assert [body["title"].split()[2:4] for body in receiver.bodies] == [["300", "groups"], ["40", "groups"]]
    deliveries = [delivery for alert in store.alerts() for delivery in alert.deliveries]
    assert len(deliveries) == GROUPS + 40
    assert all(delivery.sent_at and delivery.attempts == 1 for delivery in deliveries)


def test_a_message_about_alerts_of_several_severities_shows_the_highest() -> None:
    alerts = (make_alert(severity="info"), make_alert(severity="critical"), make_alert(severity="warning"))
    group = AlertGroup(alerts, FIRING)
    assert group.severity == "critical"
    assert "severity: critical" in format_group_message(group)


def test_a_group_that_fired_twice_is_one_group_and_alerts_about_the_job_are_alerts() -> None:
    twice = AlertGroup((make_alert(), make_alert(opened_at=SINCE), make_alert(group_id="other")), FIRING)
    assert format_group_title(twice) == "[FIRING] not-ready: 2 groups (cluster prod)"
    of_job = (make_alert(group_id=None), make_alert(group_id=None, opened_at=SINCE))
    assert format_group_title(AlertGroup(of_job, FIRING)) == "[FIRING] not-ready: 2 alerts (cluster prod)"


def test_a_message_names_only_what_fits_and_counts_the_others() -> None:
    alerts = tuple(make_alert(group_id=str(n), summary=f"{n} " + "x" * 5000) for n in range(50))
    text = format_group_message(AlertGroup(alerts, FIRING, max_named=1000), max_characters=2900)
    named = text.count("\n- ") + 1
    assert len(text) <= 2900
    assert named >= 4
    assert f"\nand {50 - named} more\n" in text


def test_links_to_the_page_are_of_the_group_and_an_alert_without_one_has_none() -> None:
    settings = make_settings(type="webhook", url="https://hook", page_url="https://p/{cluster}/{group}?r={rule}")
    hostile = settings.page_link(make_alert(group_id="a/b?c&{rule} \ud800"))
    assert hostile == "https://p/prod/a%2Fb%3Fc%26%7Brule%7D%20%3F?r=not-ready"
    assert settings.page_link(make_alert(group_id=None)) is None
    assert settings.page_link(make_alert(group_id="x" * 32_000)) is None
    overview = make_settings(type="webhook", url="https://hook", page_url="https://p/{cluster}")
    assert overview.page_link(make_alert(group_id=None)) == "https://p/prod"


def test_the_time_of_a_message_is_that_of_its_last_alert() -> None:
    later = make_alert(opened_at=SINCE + timedelta(hours=1), pending_since=SINCE - timedelta(hours=1))
    group = AlertGroup((make_alert(), later), FIRING)
    assert (group.at, group.since) == (later.opened_at, later.pending_since)
