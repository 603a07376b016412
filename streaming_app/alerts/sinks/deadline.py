"""An end for a conversation over sockets, however slowly the other side goes on."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from typing_extensions import Self


class Deadline:
    """Shuts the watched sockets down when the time is up, so that whoever reads from them wakes up.

    A socket's own time-out starts again with each byte; a receiver that sends one now and then would hold its caller
    for ever. What happens before there is a socket, looking the name up and connecting, is bounded by the system's
    resolver and by the socket's time-out for each of the name's addresses.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def watch(self, connected: socket.socket) -> None:
        """Include this socket. TLS may be wrapped around it later: what is watched is a duplicate of it."""
        with self._lock:
            self._sockets.append(connected.dup())
        if self.passed:
            self._shut_down()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def _pass(self) -> None:
        self.passed = True
        self._shut_down()

    def _shut_down(self) -> None:
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):  # the other side was faster
                    one.shutdown(socket.SHUT_RDWR)
