"""Many groups with one cause are one message where people read it, and single alerts where a receiver groups them.

From the dispatcher to real receivers.
"""

from __future__ import annotations

from typing import Any

from streaming_app.alerts.problem import Problem
from streaming_app.notify.sink import Sink
from tests.alerts.examples import make_alert
from tests.notify.sending import Sending
from tests.support.receivers import HttpReceiver, make_settings, make_sink

GROUPS = 60


def maintenance(*sinks: str, resolved: bool = False, **other: Any) -> list[Problem]:
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


def test_a_maintenance_of_the_brokers_is_one_message_in_a_chat_and_single_alerts_elsewhere(
    receiver: HttpReceiver,
) -> None:
    sinks = ("chat", "webhook", "alertmanager")
    with (
        HttpReceiver() as hook,
        HttpReceiver() as manager,
        Sending(
            chat(receiver, runbook_url="https://wiki#{rule}", page_url="https://page/{group}"),
            make_sink(type="webhook", url=hook.url),
            make_sink(type="alertmanager", urls=[manager.url]),
        ) as dispatcher,
    ):
        dispatcher.send(maintenance(*sinks))
        dispatcher.send(maintenance(*sinks, resolved=True))
        assert len(hook.requests) == 2 * GROUPS
        assert [len(alerts) for alerts in manager.bodies] == [GROUPS, GROUPS]
    titles = [f"[{event}] stuck: 60 groups (cluster prod)" for event in ("FIRING", "RESOLVED")]
    assert [body["title"] for body in receiver.bodies] == titles
    text = receiver.bodies[0]["message"]
    assert "(since 2026-11-21 03:12:05Z) https://page/app-019\nand 40 more\n" in text
    assert text.endswith("\nrunbook: https://wiki#stuck")
    by_sink = {sink: [one for _, one in dispatcher.deliveries if one.sink == sink] for sink in sinks}
    assert {sink: len(deliveries) for sink, deliveries in by_sink.items()} == dict.fromkeys(sinks, 2 * GROUPS)
    assert all(delivery.sent_at and delivery.attempts == 1 for found in by_sink.values() for delivery in found)


def test_links_to_the_page_are_of_the_group_and_an_alert_without_one_has_none() -> None:
    settings = make_settings(type="webhook", url="https://hook", page_url="https://p/{cluster}/{group}?r={rule}")
    hostile = settings.page_link(make_alert(group_id="a/b?c&{rule} \ud800"))
    assert hostile == "https://p/prod/a%2Fb%3Fc%26%7Brule%7D%20%3F?r=not-ready"
    assert settings.page_link(make_alert(group_id=None)) is None
    assert settings.page_link(make_alert(group_id="x" * 32_000)) is None
    overview = make_settings(type="webhook", url="https://hook", page_url="https://p/{cluster}")
    assert overview.page_link(make_alert(group_id=None)) == "https://p/prod"
