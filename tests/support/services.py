"""Whether a service that a check started is there yet."""

from __future__ import annotations

import socket
from contextlib import suppress

from streaming_app.sandbox.process import HOST
from tests.support.http_client import request


def answers(url: str) -> bool:
    with suppress(OSError):  # nothing listens there yet
        server, path = url.rpartition("/")[::2]
        return request(server, f"/{path}")[0] == 200
    return False


def accepts_connections(port: int) -> bool:
    """Return whether something listens on this port of this machine."""
    try:
        socket.create_connection((HOST, port), timeout=60).close()
    except OSError:
        return False
    return True
