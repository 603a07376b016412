"""A proxy in front of a broker that is slow to answer a new connection, as a broker is whose logins take long."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.receivers import HOST, serve_connections

_BYTES = 65_536


@contextmanager
def slow_server(address: str, seconds: float) -> Iterator[str]:
    """Serve a broker at another address; each connection gets its first answer only after so many seconds."""
    host, _, port = address.rpartition(":")

    def pass_on(client: socket.socket, _closing: threading.Event) -> None:
        with socket.create_connection((host, int(port))) as broker:
            threading.Thread(target=copy, args=(client, broker), daemon=True).start()
            time.sleep(seconds)  # noqa: TID251 - the delay that the test needs
            copy(broker, client)

    with serve_connections(pass_on) as own_port:
        yield f"{HOST}:{own_port}"


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
