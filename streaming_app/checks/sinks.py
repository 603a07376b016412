"""The sinks: whether their receivers can be connected to, and whether they accept a test notification."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import product

from streaming_app.alerts.alert import FIRING, INFO, RESOLVED, TEAM, Alert
from streaming_app.checks.result import Result, failed, ok, warning
from streaming_app.config.routing import RouteSettings, is_complete
from streaming_app.errors import reason_of
from streaming_app.notify.sink import BaseSettings, SinkError

TEST_RULE = "StreamsGroupsTest"
_CONNECT_SECONDS = 5.0


def check_sinks(
    sinks: Sequence[BaseSettings], cluster: str, *, send_test: bool, routes: Sequence[RouteSettings] = ()
) -> Iterator[Result]:
    """Yield a result for each sink, and one for each route.

    With `send_test` each sink gets a notification of severity info, for each team whose alerts go there, and that it is
    over.
    """
    if not sinks:
        yield ok("sinks", "none are configured: alerts are only in the table")
    for sink in sinks:
        teams = _teams_of(sink.name, routes)
        yield _send(sink, cluster, teams) if send_test else _connect(sink)
    names = [sink.name for sink in sinks if sink.gets_alerts]
    for number, route in enumerate(routes, 1):
        whose = f"groups {route.groups.pattern}" if route.groups else "every alert"
        how = "".join(f", {one}" for one in route.severity) + (f", team {route.team}" if route.team else "")
        goes_to = ", ".join(names if route.sinks is None else route.sinks) or "no sink"
        yield ok(f"route {number}", f"{whose}{how}: to {goes_to}{'; goes on' if route.continue_ else ''}")
    if is_complete(routes) and (unused := [name for name in names if not _is_routed(name, routes)]):
        yield warning("routes", f"no route leads to {', '.join(unused)}", "name it in a route, or remove the sink")


def _teams_of(sink: str, routes: Sequence[RouteSettings]) -> list[str | None]:
    """Return the teams whose alerts go to a sink; None stands for none."""
    return list(dict.fromkeys(one.team for one in routes if one.sinks is None or sink in one.sinks)) or [None]


def _is_routed(sink: str, routes: Sequence[RouteSettings]) -> bool:
    return any(route.sinks is None or sink in route.sinks for route in routes)


def _connect(settings: BaseSettings) -> Result:
    check = f"sink {settings.name}"
    try:
        addresses = settings.addresses()
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


def _send(settings: BaseSettings, cluster: str, teams: Sequence[str | None]) -> Result:
    check = f"sink {settings.name}"
    now = datetime.now(timezone.utc)
    sink = settings.sink()
    summary = "This is a test of `streams-groups check --send-test`: nothing is wrong."
    try:
        for team, event in product(teams, (FIRING, RESOLVED)):
            resolved_at, details = now if event == RESOLVED else None, {TEAM: team} if team else {}
            sink.send(Alert(cluster, None, TEST_RULE, INFO, event, now, now, resolved_at, summary, details), event)
    except SinkError as error:
        return failed(check, str(error))
    finally:
        sink.close()
    of_teams = "".join(f" for team {team}," for team in teams if team).rstrip(",")
    return ok(check, f"accepted a test notification{of_teams}")
