"""Requests to a server over connections of the test."""

from __future__ import annotations

import http.client
import socket
from email.message import Message

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
