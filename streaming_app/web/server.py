"""The HTTP server of the page, metrics and probes: uvicorn, and the limits for clients, which hold from `accept` on.

Clients cannot use up the threads, file descriptors or memory of a process, and clients that are slow do not delay
others. uvicorn has no deadline for receiving a request (https://github.com/Kludex/uvicorn/issues/157), and judges its
own limit of connections only when a request was parsed; so its protocol is refined here. It is the one of h11, which
uvicorn always brings and whose public `their_state` tells whether a request is complete; httptools is optional.

- A request, head and body, may take `request_seconds` from its first byte on, the first one from the connection on,
  however many bytes the client sends meanwhile, and have `request_bytes`. Then its connection is closed.
- A connection may be idle between two requests for `idle_seconds`.
- A client may leave a response unread for `unread_seconds` in all, however many bytes it reads meanwhile. The time in
  which a response is computed, or in which a stream of events has nothing to send, does not count.
- `waiting` connections may wait for a request, and `unread` for a client to read a response. If there is another one,
  the oldest is closed: a client that is not slow is never the oldest for long.
- `requests` may be answered at a time. More are refused with the status 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import FrameType
from typing import Any, TypeVar

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streaming_app.errors import SetupError, reason_of
from streaming_app.text import split_address

T = TypeVar("T")
_BACKLOG = 64  # so many connections are accepted at a time, before those that are too many are closed
_DATE_SECONDS = 1.0
_JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class Limits:
    """What clients may use, see the module."""

    waiting: int = 128
    unread: int = 16
    """Each holds a response in memory."""
    requests: int = 32
    request_seconds: float = 30.0
    request_bytes: int = 16_384
    idle_seconds: int = 30
    unread_seconds: float = 30.0


class HttpServer:
    """A server of an ASGI application. It listens from its creation on, and answers while it runs: `run` or `start`."""

    def __init__(  # noqa: PLR0913 - each of the two servers has its own
        self,
        listen: str,
        app: ASGIApp,
        *,
        what: str,
        advice: str,
        limits: Limits | None = None,
        has_lifespan: bool = False,
        end_seconds: int = 0,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen at `HOST:PORT`, port 0 for any. Raises SetupError, which says `what` cannot be served, and `advice`.

        At the end, `on_end` is called in the event loop, and responses that are under way have `end_seconds` left.
        """
        try:
            self._socket = bind(listen)
        except (OSError, ValueError, OverflowError) as error:
            raise SetupError(f"Cannot serve {what} at {listen}: {reason_of(error)}; {advice}") from None
        self._name = what
        clients = _Clients(limits or Limits())
        config = _Config(
            _refusing_too_many(app, clients.limits.requests),
            http=_Protocol,
            loop="asyncio",  # the limits use its transports
            ws="none",
            lifespan="on" if has_lifespan else "off",
            log_config=None,
            log_level="critical",  # of errors it logs tracebacks; the applications report a line
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=clients.limits.idle_seconds,
            timeout_graceful_shutdown=end_seconds,
            h11_max_incomplete_event_size=1_000_000,  # `_Protocol` refuses long before, with the status for it
        )
        config.clients = clients
        self._server = _Server(config, on_end)
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
        """Serve in a thread of its own; returns at once."""
        self._thread = threading.Thread(target=self.run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let `run` return; from any thread. Returns at once."""
        self._server.end()

    def wait(self) -> None:
        """Wait for the end of the thread that `start` started."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """End the thread that `start` started, and wait for that; without one stop listening. May be repeated."""
        self.stop()
        if self._thread is None:
            self._socket.close()
        else:
            self._thread.join(_JOIN_SECONDS)

    @property
    def is_started(self) -> bool:
        """Whether it answers requests."""
        return self._server.started


class ResponseThreads:
    """Computes responses in threads, at most so many at a time; further ones wait. Use it from one event loop.

    The interpreter does not wait for these threads when it exits. It would for those of an executor.
    """

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)

    @property
    def is_full(self) -> bool:
        """Whether a further response would wait."""
        return self._free.locked()

    async def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns, or raise what it raises."""
        return await (await self.start(function))

    async def start(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Return the result to come. If not full, the place is taken before anything else runs in the loop.

        The place is free again at the function's end, even if nobody waits for it any more.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def done(set_result: Callable[[Any], None], result: object) -> None:
            self._free.release()
            if not future.done():
                set_result(result)

        def compute() -> None:
            try:
                outcome: tuple[Callable[[Any], None], object] = future.set_result, function()
            except BaseException as error:  # noqa: BLE001 - who waits raises it
                outcome = future.set_exception, error
            with contextlib.suppress(RuntimeError):  # the server was closed meanwhile
                loop.call_soon_threadsafe(done, *outcome)

        try:
            threading.Thread(target=compute, name="response", daemon=True).start()
        except RuntimeError:  # the process has too many threads
            self._free.release()
            raise
        return future


class _Oldest:
    """The connections in one state, the oldest first, at most `limit`: another one closes the oldest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._connections: dict[_Protocol, None] = {}

    def add(self, connection: _Protocol) -> None:
        self.discard(connection)
        while len(self._connections) >= self._limit:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
        self._connections[connection] = None

    def discard(self, connection: _Protocol) -> None:
        self._connections.pop(connection, None)


class _Clients:
    """The limits of a server, and its connections by what they wait for."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting, self.unread = _Oldest(limits.waiting), _Oldest(limits.unread)


class _Config(uvicorn.Config):
    clients: _Clients


class _Protocol(H11Protocol):
    """A connection, within the limits."""

    def __init__(self, config: _Config, *others: Any, **named: Any) -> None:  # noqa: ANN401 - what uvicorn passes
        super().__init__(config, *others, **named)
        self._clients = config.clients
        self._limits = config.clients.limits
        self._received = 0  # bytes of the newest request
        self._unread_seconds = self._limits.unread_seconds  # that are left for the newest response
        self._unread_since = 0.0
        self._request_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused until the client has read all
        self._clients.waiting.add(self)
        self._begin_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_request()
        self._end_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._received and self._request_timer is None:
            self._begin_request()
        self._received += len(data)
        super().data_received(data)
        if self._received > self._limits.request_bytes:
            self._refuse()
        elif not self._is_receiving:
            self._end_request()

    def on_response_complete(self) -> None:
        if self._is_receiving:  # the application did not wait for the whole request
            self.transport.close()
        self._received = 0
        if not self.transport.is_closing():
            self._clients.waiting.add(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._clients.unread.add(self)
        self._unread_since = self.loop.time()
        self._unread_timer = self.loop.call_later(self._unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_unread()
        super().resume_writing()

    @property
    def _is_receiving(self) -> bool:
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def _begin_request(self) -> None:
        self._unread_seconds = self._limits.unread_seconds
        self._request_timer = self.loop.call_later(self._limits.request_seconds, self.transport.abort)

    def _end_request(self) -> None:
        self._clients.waiting.discard(self)
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _end_unread(self) -> None:
        self._clients.unread.discard(self)
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
            self._unread_seconds -= self.loop.time() - self._unread_since

    def _refuse(self) -> None:
        """Answer a request that is too large, unless another answer has begun, and close the connection."""
        is_head = self.conn.their_state is h11.IDLE
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if is_head else HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(_response(status))
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()


class _Server(uvicorn.Server):
    """Ends at once, without waiting for its next look at `should_exit`, and closes every connection then."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Let the server end; from any thread, and from signal handlers."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._ended.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.end()

    async def main_loop(self) -> None:
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # writes the header Date anew
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _DATE_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_end()
        if not self.config.timeout_graceful_shutdown:
            await self._abort_all()
        await super().shutdown(sockets)
        await self._abort_all()

    async def _abort_all(self) -> None:
        for connection in self.server_state.connections:
            connection.transport.abort()
        await asyncio.sleep(0)


def _refusing_too_many(app: ASGIApp, most: int) -> ASGIApp:
    """Return the application with a limit for the requests that it answers at a time."""
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


def _response(status: HTTPStatus) -> bytes:
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(status.phrase) + 1}\r\nConnection: close\r\n\r\n{status.phrase}\n".encode()


def bind(listen: str) -> socket.socket:
    """Return a socket that listens at `HOST:PORT`. Sockets of a server that has ended do not keep it from that.

    Raises ValueError for another form, and OSError or OverflowError if that is not possible.
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
