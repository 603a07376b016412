"""Attacks on the page and the server of the metrics: of whoever reaches their ports, or an operator's browser."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import urllib3

from tests.long.hostile.bed import Bed

IDLE, SLOW, TABS = 1_000, 300, 700
SECONDS = 45.0
_REFUSED = 400  # and above


class AttackSucceededError(Exception):
    """An attacker got what he is not to get."""


def idle_connections(bed: Bed) -> None:
    """Open connections to both servers, send nothing, and open those that are closed again."""
    with ExitStack() as opened:
        for name in ("page", "metrics"):
            for _ in range(IDLE):
                _connect(bed, name, opened)
        _rest(bed)


def slow_headers(bed: Bed) -> None:
    """Send a header of each request, a byte a second."""
    with ExitStack() as opened:
        clients = [one for name in ("page", "metrics") for _ in range(SLOW) if (one := _connect(bed, name, opened))]
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * int(SECONDS):
            for client in clients:
                with suppress(OSError):
                    client.send(bytes([byte]))
            if bed.ending.wait(1):  # noqa: WAIT002 - a byte a second
                return


def other_hosts(bed: Bed) -> None:
    """Ask as the browser of an operator does on another site whose name leads here. Raises AttackSucceededError."""
    page = ("/", "/alerts", "/graph?id=orders-0", "/group?id=orders-0")
    for name, of_server in {"page": page, "metrics": ("/metrics", "/health", "/ready")}.items():
        for path in of_server:
            for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""):
                answer = urllib3.request("GET", f"http://{bed.urls[name]}{path}", headers={"Host": host}, retries=False)
                if answer.status < _REFUSED:
                    raise AttackSucceededError(f"{name}{path} with Host {host!r}: {answer.status}")


def large_queries(bed: Bed) -> None:
    """Ask for what is long, odd or expensive."""
    texts = ("x" * 12_000, "%F0%9F%92%A5" * 900, "(a%2B)%2B%24", "%00", "../" * 900, "'%20OR%201=1")
    keys = ("q", "id", "key", "range", "at", "from", "to", "sort", "show", "cluster", "label", "state")
    paths = ("/", "/group", "/graph", "/alerts", "/events")
    for number in range(400):
        if bed.ending.is_set():
            return
        path, key, text = paths[number % 5], keys[number % 12], texts[number % 6]
        with suppress(urllib3.exceptions.HTTPError):
            urllib3.request("GET", f"http://{bed.urls['page']}{path}?{key}={text}", timeout=5, retries=False)  # noqa: WAIT002 - his patience


def many_tabs(bed: Bed) -> None:
    """Keep live updates open, more than there may be."""
    request = b"GET /events HTTP/1.1\r\nHost: " + bed.urls["page"].encode() + b"\r\n\r\n"
    with ExitStack() as opened:
        for _ in range(TABS):
            if client := _connect(bed, "page", opened):
                with suppress(OSError):
                    client.send(request)
        _rest(bed)


def _connect(bed: Bed, name: str, opened: ExitStack) -> socket.socket | None:
    host, port = bed.urls[name].split(":")
    with suppress(OSError):
        return opened.enter_context(socket.create_connection((host, int(port)), timeout=5))  # noqa: WAIT002 - his patience
    return None


def _rest(bed: Bed) -> None:
    bed.ending.wait(SECONDS)  # noqa: WAIT002 - so long the attack lasts
