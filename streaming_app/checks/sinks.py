"""The sinks: whether their receivers can be connected to, and whether they accept a test notification."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from streaming_app.alerts.problem import FIRING, INFO, RESOLVED, Problem
from streaming_app.checks.result import Result, failed, ok
from streaming_app.errors import reason_of
from streaming_app.notify.sink import Sink, SinkError

TEST_RULE = "StreamsGroupsTest"
_CONNECT_SECONDS = 5.0


def check_sinks(sinks: Sequence[Sink], cluster: str, *, send_test: bool) -> Iterator[Result]:
    """Yield a result for each sink.

    With `send_test` each sink gets a notification of severity info, and that it is over.
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
    failures = [failure for address in addresses if (failure := _failure(*address))]
    if failures:
        return failed(check, failures[0], "check its address, and the firewalls on the way")
    if not addresses:
        return ok(check, "there is no address to try; --send-test sends to it")
    return ok(
        check, f"{', '.join(f'{host}:{port}' for host, port in addresses)} can be reached; --send-test sends to it"
    )


def _failure(host: str, port: int) -> str | None:
    """Return why nothing answers at an address; None if something does."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except (OSError, UnicodeError, OverflowError) as error:
        return f"{host}:{port}: {reason_of(error)}"
    return None


def _send(sink: Sink, cluster: str) -> Result:
    check = f"sink {sink.name}"
    now = datetime.now(timezone.utc)
    summary = "This is a test of `streams-groups check --send-test`: nothing is wrong."
    try:
        for event in (FIRING, RESOLVED):
            ended_at = now if event == RESOLVED else None
            one = Problem("test", cluster, None, TEST_RULE, INFO, now, now, ended_at, None, None, {}, summary, {})
            sink.send([one], event)
    except SinkError as error:
        return failed(check, str(error))
    return ok(check, "accepted a test notification")
