"""A limit on the total time of an exchange over sockets, however slowly the other side sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from typing_extensions import Self


class Deadline:
    """Shuts the watched sockets down when the time is up, which unblocks the thread that reads from them.

    A socket's own timeout restarts with each byte; a receiver that sends one from time to time would block its caller
    for ever. The name lookup and the connect, before there is a socket to watch, are limited by the system's resolver
    and by the socket's timeout for each of the name's addresses.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def watch(self, connected: socket.socket) -> None:
        """Include this socket. It may be wrapped in TLS later: a duplicate of it is watched."""
        with self._lock:
            self._sockets.append(connected.dup())
        if self.expired:
            self._shut_down()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            for watched in self._sockets:
                watched.close()
            self._sockets.clear()

    def _expire(self) -> None:
        self.expired = True
        self._shut_down()

    def _shut_down(self) -> None:
        with self._lock:
            for watched in self._sockets:
                with contextlib.suppress(OSError):  # the other side has closed it already
                    watched.shutdown(socket.SHUT_RDWR)
