"""Requests to a server over the test's own connections, and checks whether a started service already answers."""

import http.client
import socket
from contextlib import suppress
from email.message import Message

from streaming_app.sandbox.child_process import HOST
from tests.support.waiting import MINUTES


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=MINUTES)


def request(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, Message, str]:
    """Return status, headers, in any letter case, and body of a response."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=MINUTES)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def answers(url: str) -> bool:
    with suppress(OSError):  # the service does not listen yet
        server, path = url.rpartition("/")[::2]
        return request(server, f"/{path}")[0] == 200
    return False


def accepts_connections(port: int) -> bool:
    """Return whether a process listens on this port of this machine."""
    try:
        socket.create_connection((HOST, port), timeout=60).close()
    except OSError:
        return False
    return True
