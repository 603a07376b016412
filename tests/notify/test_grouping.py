"""Many groups with one cause are one message where people read it, and single alerts where a receiver groups them.

From the dispatcher to real receivers, and over restarts with the real table.
"""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.notification_queue import Grouping
from streaming_app.notify.daily_summary import DailySummary
from streaming_app.notify.message import AlertGroup, format_group_message, format_group_title
from streaming_app.notify.sink import Sink, SinkError, TextSink
from streaming_app.tables.alerts_table import AlertsTable
from tests.alerts.examples import SINCE, make_alert
from tests.hostile import HOSTILE, effective_characters
from tests.notify.receivers import HOST, HttpReceiver, Response, SmtpReceiver, make_settings, make_sink
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
def test_a_maintenance_of_the_brokers_is_one_message_in_chat_mail_and_log_and_single_alerts_elsewhere(
    running: Running, receiver: HttpReceiver, tmp_path: Path
) -> None:
    log = tmp_path / "alerts.log"
    with SmtpReceiver() as mail, HttpReceiver() as hook, HttpReceiver() as manager:
        addresses = {"from": "us@example.com", "to": ["a@example.com"]}
        dispatcher = running.start(
            make_sink(type="slack", url=receiver.url, runbook_url="https://wiki#{rule}"),
            make_sink(
                type="email", host=HOST, port=mail.port, tls="none", page_url="https://page/{group}", **addresses
            ),
            make_sink(type="log", file=log),
            make_sink(type="webhook", url=hook.url),
            make_sink(type="alertmanager", urls=[manager.url]),
        )
        sinks = ("slack", "email", "log", "webhook", "alertmanager")
        dispatcher.offer(maintenance(*sinks))
        assert dispatcher.flush(60)
        dispatcher.offer(maintenance(*sinks, resolved=True))
        assert dispatcher.flush(60)
        assert len(hook.requests) == len(manager.requests) == 2 * GROUPS
        mails = [email.message_from_bytes(one.content, policy=email.policy.default) for one in mail.envelopes]
    titles = [f"[{event}] stuck: 300 groups (cluster prod)" for event in ("FIRING", "RESOLVED")]
    assert [body["text"].partition(" ")[2] for body in receiver.bodies] == titles
    assert [one["Subject"] for one in mails] == titles
    assert mails[1]["In-Reply-To"] == mails[0]["Message-ID"] != mails[1]["Message-ID"]
    text = receiver.bodies[0]["attachments"][0]["text"]
    assert "- app-019 has been stuck in Reconciling\nand 280 more\n" in text
    assert text.endswith("\nrunbook: https://wiki#stuck")
    assert "- app-000 has been stuck in Reconciling https://page/app-000" in mails[0].get_content().splitlines()
    fired, resolved = log.read_text("utf-8").splitlines()
    assert " alerts=300 groups=300 " in fired
    assert 'and 280 more" since=' in fired
    assert resolved.split()[1] == "event=resolved"
    by_sink = {sink: [d for results in running.results for _, d in results if d.sink == sink] for sink in sinks}
    assert {sink: len(deliveries) for sink, deliveries in by_sink.items()} == dict.fromkeys(sinks, 2 * GROUPS)
    assert all(delivery.sent_at and delivery.attempts == 1 for found in by_sink.values() for delivery in found)


def test_alerts_that_fire_one_after_the_other_are_few_messages(running: Running, receiver: HttpReceiver) -> None:
    dispatcher = running.start(make_sink(type="slack", url=receiver.url), grouping=Grouping(0.0, group_interval=600))
    first, *others = maintenance("slack")[:60]
    dispatcher.offer([first])
    assert wait_until(lambda: dispatcher.status()[0].sent == 1)
    for alert in others:
        dispatcher.offer([alert])
    assert dispatcher.flush(20)
    assert (dispatcher.status()[0].sent, len(receiver.requests)) == (60, 2)


def test_one_alert_by_itself_is_the_message_that_it_always_was(running: Running, receiver: HttpReceiver) -> None:
    dispatcher = running.start(make_sink(type="slack", url=receiver.url, page_url="https://page/{group}"))
    dispatcher.offer([make_alert("slack")])
    assert wait_until(lambda: len(receiver.requests) == 1)
    (body,) = receiver.bodies
    assert body["text"] == ":red_circle: [FIRING] not-ready: `payments` (cluster prod)"
    assert body["attachments"][0]["text"].endswith("\n```\npage: https://page/payments")


def test_a_message_that_fails_is_repeated_as_a_whole(running: Running, receiver: HttpReceiver) -> None:
    receiver.responses.extend([Response(503), Response(503)])
    dispatcher = running.start(make_sink(type="slack", url=receiver.url))
    dispatcher.offer(maintenance("slack"))
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

    def send_summary(self, summary: DailySummary) -> None:
        raise NotImplementedError


def test_an_alert_that_is_refused_does_not_keep_the_others_of_its_message_from_being_sent(running: Running) -> None:
    picky = PickySink()
    dispatcher = running.start(picky)
    dispatcher.offer([make_alert("picky", group_id=group) for group in ("a", "poison", "b", "c", "d")])
    assert wait_until(lambda: sorted(map(str, picky.sent)) == ["a", "b", "c", "d"])
    assert dispatcher.status()[0].waiting == 1


def test_closing_sends_what_only_waits_for_others(running: Running, receiver: HttpReceiver) -> None:
    patient = Grouping(group_wait=600, group_interval=600)
    dispatcher = running.start(make_sink(type="slack", url=receiver.url), grouping=patient)
    dispatcher.offer(maintenance("slack"))
    dispatcher.close(5)
    assert len(receiver.requests) == 1
    assert len(running.results[0]) == GROUPS


def test_closing_does_not_wait_for_a_sink_that_is_down(running: Running) -> None:
    with HttpReceiver() as stuck:
        stuck.default = Response(hold=True)
        dispatcher = running.start(make_sink(type="slack", url=stuck.url), grouping=Grouping(600, 600))
        dispatcher.offer(maintenance("slack"))
        dispatcher.close(0.3)
        assert "alerts-slack" in thread_names()  # the attempt goes on, and nobody waits for it
    assert wait_until(lambda: "alerts-slack" not in thread_names())
    assert running.results == []


def test_after_a_restart_what_was_sent_is_not_sent_again_and_the_rest_comes_in_one_message(
    running: Running, receiver: HttpReceiver, tmp_path: Path
) -> None:
    store = AlertsTable(make_warehouse(tmp_path), "prod")
    store.save(maintenance("slack"))

    def save(results: list[tuple[str, Delivery]]) -> None:
        stored = {alert.fingerprint: alert for alert in store.alerts()}
        store.save(replace(stored[name], deliveries=(delivery,)) for name, delivery in results)

    dispatcher = running.start(make_sink(type="slack", url=receiver.url))
    dispatcher.offer(store.alerts())
    assert dispatcher.flush(10)
    save(running.results.pop())
    late = [replace(alert, group_id=f"late-{alert.group_id}") for alert in maintenance("slack")[:40]]
    store.save(late)
    dispatcher.close(5)  # as if killed: the late ones are only in the table

    again = running.start(make_sink(type="slack", url=receiver.url))
    again.offer(store.alerts())
    assert again.flush(10)
    save(running.results.pop())
    assert [body["text"].split()[3:5] for body in receiver.bodies] == [["300", "groups"], ["40", "groups"]]
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


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_hostile_ids_and_details_of_32_kb_break_neither_a_chat_nor_a_mail_nor_a_line(
    receiver: HttpReceiver, tmp_path: Path, form: str
) -> None:
    hostile = "a`b```<!channel> @here " + HOSTILE
    details = {"reason": "x" * 32_768, "hosts": [f"{hostile}-{n}" for n in range(500)], HOSTILE: HOSTILE}
    alerts = [
        make_alert(group_id=f"{hostile}{n}" + "y" * 32_000, summary=hostile * 50, details=details) for n in (1, 2)
    ]
    log = tmp_path / "alerts.log"
    with SmtpReceiver() as mail:
        addresses = {"from": "us@example.com", "to": ["a@example.com"], "page_url": "https://page/{group}"}
        sinks = [
            make_sink(type="slack", url=receiver.url, page_url="https://page/{group}"),
            make_sink(type="log", file=log, format=form),
            make_sink(type="email", host=HOST, port=mail.port, tls="none", **addresses),
        ]
        for sink in sinks:
            assert isinstance(sink, TextSink)
            sink.send(alerts[0], FIRING)
            sink.send_group(AlertGroup(tuple(alerts), RESOLVED))
            sink.close()
        mails = [email.message_from_bytes(one.content, policy=email.policy.default) for one in mail.envelopes]
    for body in receiver.bodies:
        (attachment,) = body["attachments"]
        assert len(body["text"]) < 1000
        assert len(attachment["text"]) < 16_000
        assert "<!channel>" not in json.dumps(body)
    lines = log.read_text("utf-8").splitlines()
    assert len(lines) == 2
    if form == "logfmt":
        assert all(len(line) < 16_384 and not effective_characters(line) for line in lines)
    else:
        assert [json.loads(line)["type"] for line in lines] == ["alert.firing", "alerts.resolved"]
        assert len(json.dumps(json.loads(lines[0])["data"]["details"])) < 16_384
    assert [len(one["Subject"]) < 400 and not effective_characters(one["Subject"]) for one in mails] == [True, True]


def test_a_json_line_of_several_alerts_has_the_data_of_each_that_is_named(tmp_path: Path) -> None:
    log = tmp_path / "alerts.log"
    sink = make_sink(type="log", file=log, format="json")
    assert isinstance(sink, TextSink)
    sink.send_group(AlertGroup(tuple(maintenance()), FIRING, max_named=2))
    sink.close()
    line = json.loads(log.read_text("utf-8"))
    assert (line["type"], line["data"]["more"], line["data"]["rule"]) == ("alerts.firing", 298, "stuck")
    assert [one["group_id"] for one in line["data"]["alerts"]] == ["app-000", "app-001"]


def test_links_to_the_page_are_of_the_group_and_an_alert_without_one_has_none() -> None:
    settings = make_settings(type="log", page_url="https://p/{cluster}/{group}?r={rule}")
    hostile = settings.page_link(make_alert(group_id="a/b?c&{rule} \ud800"))
    assert hostile == "https://p/prod/a%2Fb%3Fc%26%7Brule%7D%20%3F?r=not-ready"
    assert settings.page_link(make_alert(group_id=None)) is None
    assert settings.page_link(make_alert(group_id="x" * 32_000)) is None
    overview = make_settings(type="log", page_url="https://p/{cluster}")
    assert overview.page_link(make_alert(group_id=None)) == "https://p/prod"


def test_the_time_of_a_message_is_that_of_its_last_alert() -> None:
    later = make_alert(opened_at=SINCE + timedelta(hours=1), pending_since=SINCE - timedelta(hours=1))
    group = AlertGroup((make_alert(), later), FIRING)
    assert (group.at, group.since) == (later.opened_at, later.pending_since)
