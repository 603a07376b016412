"""A broker that is slow to answer a new connection, as one whose logins take long: a server before the real one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_BYTES = 65_536


@contextmanager
def slow_server(address: str, seconds: float) -> Iterator[str]:
    """Serve at another address what a broker answers, from so many seconds after each connection on."""
    host, _, port = address.rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):  # it is closed
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=pass_on, args=(client,), daemon=True).start()

        def pass_on(client: socket.socket) -> None:
            with client, suppress(OSError), socket.create_connection((host, int(port))) as broker:
                threading.Thread(target=copy, args=(client, broker), daemon=True).start()
                time.sleep(seconds)  # noqa: TID251 - how slow it is
                copy(broker, client)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
