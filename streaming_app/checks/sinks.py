"""Checks the sinks: whether their receivers are reachable, and on request whether they accept a test notification."""

import socket
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from streaming_app.alerts.alert import FIRING, INFO, RESOLVED, Alert
from streaming_app.checks.result import Result, failed, ok
from streaming_app.errors import reason_of
from streaming_app.notify.sink import Sink, SinkError

TEST_RULE = "StreamsGroupsTest"
_CONNECT_SECONDS = 5.0


def check_sinks(sinks: Sequence[Sink], cluster: str, *, send_test: bool) -> Iterator[Result]:
    """Yield a result for each sink.

    With `send_test`, each sink gets two notifications about a test with severity info: `firing` and `resolved`.
    """
    if not sinks:
        yield ok("sinks", "none are configured: alerts are only in the table")
    for sink in sinks:
        yield _send(sink, cluster) if send_test else _connect(sink)


def _connect(sink: Sink) -> Result:
    check = f"sink {sink.name}"
    try:
        addresses = sink.addresses()
    except SinkError as error:
        return failed(check, str(error))
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        except (OSError, UnicodeError, OverflowError) as error:  # noqa: PERF203 - of a few receivers
            advice = "check its address, and the firewalls on the way"
            return failed(check, f"{host}:{port}: {reason_of(error)}", advice)
    reached = ", ".join(f"{host}:{port}" for host, port in addresses)
    found = f"{reached} can be reached" if reached else "there is no address to try"
    return ok(check, f"{found}; --send-test sends to it")


def _send(sink: Sink, cluster: str) -> Result:
    check = f"sink {sink.name}"
    now = datetime.now(timezone.utc)
    summary = "This is a test of `streams-groups check --send-test`: nothing is wrong."
    try:
        for event, ended_at in ((FIRING, None), (RESOLVED, now)):
            one = Alert("test", cluster, None, TEST_RULE, INFO, now, now, ended_at, None, None, {}, summary, {})
            sink.send([one], event)
    except SinkError as error:
        return failed(check, str(error))
    return ok(check, "accepted a test notification")
