"""A sender as the job has one, without the engine: alerts are offered by hand."""

from collections.abc import Iterable

import pytest
from typing_extensions import Self

from streaming_app.alerts.alert import FIRING, Alert, Delivery
from streaming_app.job.sender import Sender
from streaming_app.notify.outbox import Outbox
from streaming_app.notify.sink import Sink, SinkError
from tests.alerts.examples import make_alert
from tests.notify.kept import KeptAlerts
from tests.support.waiting import wait_until

PATIENT = 600.0
"""Seconds after which a test gives up."""


class Often(Outbox):
    """It waits for nothing, and tries again soon."""

    wait, interval = 0.0, 0.0
    first_pause, longest_pause = 0.01, 0.05


class Sending(Sender):
    """It starts with these sinks, tries often, and keeps what it reports; a context manager that closes it."""

    def __init__(self, *sinks: Sink, kept: KeptAlerts | None = None, outbox: type[Outbox] = Often) -> None:
        self.kept = kept or KeptAlerts()
        self.lines: list[str] = []
        super().__init__([outbox(sink, self.kept) for sink in sinks], lambda: None, self.lines.append)

    @property
    def deliveries(self) -> list[tuple[str, Delivery]]:
        """Id and delivery of each attempt."""
        return self.kept.results

    def offer(self, *alerts: Alert) -> None:
        with self.changing():
            self.kept.put(*alerts)

    def send(self, alerts: Iterable[Alert]) -> None:
        """Offer these, and return once everything is sent."""
        self.offer(*alerts)
        assert wait_until(lambda: not any(one.waiting for one in self.status()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(PATIENT)


def error_of(sink: Sink, secret: str) -> SinkError:
    """Return the error of a sink that cannot send: one line without the secret, whatever a client wrote."""
    with pytest.raises(SinkError) as raised:
        sink.send([make_alert(sink.name, summary="CERTIFICATE_VERIFY_FAILED error=404 (535, ")], FIRING)
    assert "\n" not in str(raised.value)
    assert secret not in f"{raised.value} {raised.value!r} {raised.value.__cause__}"
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    return raised.value
