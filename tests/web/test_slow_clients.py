"""Many clients, and clients that are slow, over real connections: others get responses, and resources are bounded."""

import asyncio
import itertools
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from select import select
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from streaming_app.threads import in_thread
from streaming_app.web.server import HttpServer, Limits
from tests.support.http_client import connect, request
from tests.support.waiting import MINUTES, wait_until
from tests.web.server_clock import ServerClock

pytestmark = pytest.mark.slow

LARGE = b"x" * 8_000_000  # more than the buffers of a connection hold
LIMITS = Limits()
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
Serve = Callable[..., "Served"]


@dataclass
class Served:
    """A server whose time the test moves."""

    server: HttpServer
    clock: ServerClock

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def connections(self) -> list[Any]:
        """What the server knows of its clients, in no order."""
        return list(self.server._server.server_state.connections)

    def connection(self) -> Any:
        """Return what the server knows of the only client, once it does."""
        assert wait_until(lambda: len(self.connections) == 1)
        return self.connections[0]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server of a function that returns the body of the response to a path."""
    with ExitStack() as servers:

        def start(respond: Callable[[str], bytes | AsyncIterator[bytes]]) -> Served:
            async def app(scope: Any, receive: Any, send: Any) -> None:
                body = await asyncio.wrap_future(in_thread(lambda: respond(Request(scope).url.path)))
                response = Response(body) if isinstance(body, bytes) else StreamingResponse(body)
                await response(scope, receive, send)

            server = HttpServer("127.0.0.1:0", app, what="nothing", advice="", limits=LIMITS)
            servers.callback(server.close)
            server.start()
            clock = ServerClock(server)
            servers.callback(clock.resume)
            return Served(server, clock)

        yield start


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Closes the sockets of the test."""
    with ExitStack() as stack:
        yield stack


def test_of_the_connections_that_wait_for_a_request_the_oldest_are_closed_though_no_time_passes(
    serve: Serve, clients: ExitStack
) -> None:
    served = serve(lambda _: b"done")
    for _ in range(2 * LIMITS.waiting):
        clients.enter_context(connect(served.url)).sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
    assert request(served.url, "/")[0] == HTTPStatus.OK
    assert wait_until(lambda: 0 < len(served.connections) <= LIMITS.waiting)


@pytest.mark.parametrize(
    "begin",
    [b"GET / HTTP/1.1\r\nX-Slow: ", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"],
    ids=["head", "body"],
)
def test_a_client_that_sends_a_byte_now_and_then_is_disconnected_after_the_time_of_a_request(
    serve: Serve, clients: ExitStack, begin: bytes
) -> None:
    release = threading.Event()
    clients.callback(release.set)

    def respond(_: str) -> bytes:
        release.wait(MINUTES)
        return b""

    served = serve(respond)
    client = clients.enter_context(connect(served.url))
    connection = served.connection()
    for count, byte in enumerate((begin, *(b"x",) * 9), start=len(begin)):
        assert not select([client], [], [], 0)[0]  # it is open, and nothing was sent
        client.sendall(byte)
        assert wait_until(lambda count=count: connection._received == count, interval=0.001)
        served.clock.tick(LIMITS.request_seconds / 10)
    assert is_closed(client)


def test_a_request_that_is_too_large_is_refused(serve: Serve, clients: ExitStack) -> None:
    server = serve(lambda _: b"")
    client = clients.enter_context(connect(server.url))
    client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17000\r\n\r\n" + b"x" * 17_000)
    assert client.recv(12) == b"HTTP/1.1 400"
    endless = clients.enter_context(connect(server.url))
    with suppress(ConnectionError):
        endless.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (LIMITS.request_bytes + 1))
    assert endless.recv(12) == b"HTTP/1.1 400"
    assert request(server.url, "/")[0] == HTTPStatus.OK


def test_a_response_that_takes_longer_than_a_request_may_is_sent(serve: Serve, clients: ExitStack) -> None:
    began, release = threading.Event(), threading.Event()

    def respond(_: str) -> bytes:
        began.set()
        release.wait(MINUTES)
        return b"done"

    served = serve(respond)
    client = clients.enter_context(connect(served.url))
    client.sendall(GET)
    assert began.wait(MINUTES)
    served.clock.tick(10 * LIMITS.request_seconds + 10 * LIMITS.unread_seconds)
    release.set()
    assert read_all(client).endswith(b"done")


def test_a_client_that_reads_a_byte_now_and_then_is_disconnected_after_the_time_of_a_request(
    serve: Serve, clients: ExitStack
) -> None:
    served = serve(lambda _: LARGE)
    client = clients.enter_context(connect(served.url))
    client.sendall(GET)
    connection = served.connection()
    for _ in range(10):
        assert served.connections
        client.recv(1)
        assert wait_until(lambda: connection in connection._unread._timers, interval=0.001)
        served.clock.tick(LIMITS.unread_seconds / 10)
    assert not served.connections
    assert len(read_all(client)) < len(LARGE)


def test_the_oldest_clients_that_do_not_read_are_disconnected_and_others_get_whole_responses(
    serve: Serve, clients: ExitStack
) -> None:
    server = serve(lambda _: LARGE)
    unread = []
    for _ in range(3 * LIMITS.unread):
        client = clients.enter_context(connect(server.url))
        client.sendall(GET)
        assert client.recv(12) == b"HTTP/1.1 200"
        unread.append(client)
    assert len(request(server.url, "/")[2]) == len(LARGE)
    sizes = [len(read_all(client)) for client in unread]
    assert all(size < len(LARGE) for size in sizes[: 2 * LIMITS.unread])
    assert all(size > len(LARGE) for size in sizes[-LIMITS.unread + 1 :])


def test_more_requests_than_may_be_answered_at_a_time_are_refused(serve: Serve, clients: ExitStack) -> None:
    release, running = threading.Event(), itertools.count()
    started: list[int] = []

    def respond(_: str) -> bytes:
        started.append(next(running))
        release.wait(MINUTES)
        return b"done"

    server = serve(respond)
    refused = 5
    waiting = [clients.enter_context(connect(server.url)) for _ in range(LIMITS.requests + refused)]
    for client in waiting:
        client.sendall(GET)
    assert wait_until(lambda: len(select(waiting, [], [], 0)[0]) == refused)
    assert wait_until(lambda: len(started) == LIMITS.requests)
    release.set()
    statuses = Counter(client.recv(12) for client in waiting)
    assert statuses == {b"HTTP/1.1 503": refused, b"HTTP/1.1 200": LIMITS.requests}
    assert request(server.url, "/")[0] == HTTPStatus.OK


def test_a_connection_is_used_again_until_it_is_idle_for_too_long(serve: Serve) -> None:
    served = serve(lambda _: b"done")
    with closing(HTTPConnection(served.url.removeprefix("http://"), timeout=MINUTES)) as client:
        client.connect()
        connection = client.sock
        for _ in range(3):
            client.request("GET", "/")
            assert client.getresponse().read() == b"done"
            assert client.sock is connection
            served.clock.tick(LIMITS.idle_seconds - 1)
        served.clock.tick(1)
        assert is_closed(connection)


def is_closed(client: socket.socket) -> bool:
    """Return whether the server has closed the connection without a response."""
    with suppress(ConnectionError):
        return not client.recv(1)
    return True


def read_all(client: socket.socket) -> bytes:
    parts = []
    with suppress(ConnectionError):
        while received := client.recv(1_000_000):
            parts.append(received)
    return b"".join(parts)
