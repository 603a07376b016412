"""Requests to a server over connections of the test."""

from __future__ import annotations

import http.client
import socket


def connect(url: str) -> socket.socket:
    """Connect to the server at a URL."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def request(url: str, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of a response."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()
