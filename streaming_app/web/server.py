"""The HTTP server of the page, metrics and probes: uvicorn with limits for clients, from `accept` on.

Clients cannot use up the threads, file descriptors or memory of a process, and slow clients do not delay others.
uvicorn has no deadline for receiving a request (https://github.com/Kludex/uvicorn/issues/157), and checks its limit of
connections only after parsing a request. So this module extends its protocol for h11. uvicorn always brings h11, whose
public `their_state` tells whether a request is complete; httptools is optional.

- A request, head and body, may have `request_bytes`, and take `request_seconds` from its first byte on (the first
  request from the connection on), even if bytes keep coming. Otherwise the server closes the connection.
- A connection may be idle between two requests for `idle_seconds`.
- A client may leave a response unread for `unread_seconds` in all, even if it reads some bytes meanwhile. The time to
  compute a response does not count.
- `waiting` connections may wait for a request, and `unread` for a client to read a response. One more closes the
  oldest: a client that is not slow is never the oldest for long.
- The server answers `requests` at a time, and refuses more with the status 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streaming_app.errors import SetupError, reason_of
from streaming_app.text import split_address

_BACKLOG = 64  # the loop accepts so many connections at a time, before it closes those beyond the limits
_JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class Limits:
    """Limits for clients, see the module."""

    waiting: int = 128
    unread: int = 16
    """Each holds a response in memory."""
    requests: int = 32
    request_seconds: float = 30.0
    request_bytes: int = 16_384
    idle_seconds: int = 30
    unread_seconds: float = 30.0


class HttpServer:
    """A server of an ASGI application. It listens from its creation on. It answers while `run` or `start` runs it."""

    def __init__(  # noqa: PLR0913 - each of the two servers has its own
        self, listen: str, app: ASGIApp, *, what: str, advice: str, limits: Limits | None = None, end_seconds: int = 0
    ) -> None:
        """Listen at `HOST:PORT`, port 0 for any. The text of a SetupError has `what` cannot be served, and `advice`.

        At the end responses that are under way have `end_seconds` left.
        """
        try:
            self._socket = bind(listen)
        except (OSError, ValueError, OverflowError) as error:
            raise SetupError(f"Cannot serve {what} at {listen}: {reason_of(error)}; {advice}") from None
        self._name = what
        limits = limits or Limits()
        waiting, unread = _Waiting(limits.waiting), _Waiting(limits.unread)
        config = uvicorn.Config(
            _refusing_too_many(app, limits.requests),
            http=partial(_Protocol, limits, waiting, unread),  # type: ignore[arg-type] # uvicorn only calls it
            loop="asyncio",  # the limits use its transports
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # it logs errors with tracebacks; the applications report a line
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=end_seconds,
            h11_max_incomplete_event_size=limits.request_bytes,
        )
        self._server = _Server(config)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL of the server for this machine, without a path."""
        host, port = self._socket.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
        return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    def run(self) -> None:
        """Serve until `close`; in the main thread also until SIGINT or SIGTERM."""
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:  # uvicorn raises it again after an orderly end
            pass
        finally:
            self._socket.close()

    def start(self) -> None:
        """Serve in another thread; returns at once."""
        self._thread = threading.Thread(target=self.run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let `run` return; from any thread. Returns at once."""
        self._server.should_exit = True

    def close(self) -> None:
        """End the thread of `start` and wait for it; without a thread stop listening. May be repeated."""
        self.stop()
        if self._thread is None:
            self._socket.close()
        else:
            self._thread.join(_JOIN_SECONDS)


class _Waiting:
    """At most `limit` connections that wait for their clients, the oldest first, each until its time is over.

    One more closes the oldest.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._timers: dict[_Protocol, asyncio.TimerHandle] = {}

    def add(self, connection: _Protocol, seconds: float) -> None:
        self.discard(connection)
        while len(self._timers) >= self._limit:
            oldest = next(iter(self._timers))
            self.discard(oldest)
            oldest.transport.abort()
        self._timers[connection] = connection.loop.call_later(seconds, connection.transport.abort)

    def discard(self, connection: _Protocol) -> float | None:
        """Return the seconds that were left; None if the connection did not wait."""
        timer = self._timers.pop(connection, None)
        if timer is None:
            return None
        timer.cancel()
        return timer.when() - connection.loop.time()


class _Protocol(H11Protocol):
    """A connection with limits, that may wait for a request, and be unread, with others."""

    def __init__(self, limits: Limits, waiting: _Waiting, unread: _Waiting, **named: Any) -> None:  # noqa: ANN401 - what uvicorn passes
        super().__init__(**named)
        self._limits, self._waiting, self._unread = limits, waiting, unread
        self._received = 0  # bytes of the newest request
        self._unread_seconds = 0.0  # left for the newest response

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # pauses writing until the client has read everything
        self._waiting.add(self, self._limits.request_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.discard(self)
        self._unread.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._received:
            self._unread_seconds = self._limits.unread_seconds
            if self.cycle is not None and self.cycle.response_complete:  # not the first request
                self._waiting.add(self, self._limits.request_seconds)
        self._received += len(data)
        super().data_received(data)
        if self._received > self._limits.request_bytes:
            self._refuse()
        elif not self._is_receiving:
            self._waiting.discard(self)

    def on_response_complete(self) -> None:
        if self._is_receiving:  # the application did not wait for the whole request
            self.transport.close()
        self._received = 0
        if not self.transport.is_closing():
            self._waiting.add(self, self._limits.idle_seconds)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.add(self, self._unread_seconds)

    def resume_writing(self) -> None:
        self._unread_seconds = self._unread.discard(self) or 0.0
        super().resume_writing()

    @property
    def _is_receiving(self) -> bool:
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def _refuse(self) -> None:
        """Answer a request that is too large, unless another answer has begun, and close the connection."""
        with contextlib.suppress(h11.LocalProtocolError):
            self.send_400_response("The request is too large")
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()


class _Server(uvicorn.Server):
    """Closes every connection at its end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in self.server_state.connections:
            connection.transport.abort()
        await asyncio.sleep(0)


def _refusing_too_many(app: ASGIApp, most: int) -> ASGIApp:
    """Return the application with a limit of requests at a time."""
    running = 0

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running
        if scope["type"] == "http" and running >= most:
            refusal = HTTPStatus.SERVICE_UNAVAILABLE
            await PlainTextResponse(f"{refusal.phrase}\n", refusal, {"Connection": "close"})(scope, receive, send)
            return
        running += 1
        try:
            await app(scope, receive, send)
        finally:
            running -= 1

    return limited


def bind(listen: str) -> socket.socket:
    """Return a socket that listens at `HOST:PORT`, also right after another server there has ended.

    Raises ValueError for another form, and OSError or OverflowError if it cannot listen.
    """
    host, port = split_address(listen)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener
