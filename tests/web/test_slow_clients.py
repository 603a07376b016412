"""Many clients, and clients that are slow, over real connections: others get responses, and resources are bounded."""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from select import select
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from streaming_app.web.server import HttpServer, Limits, ResponseThreads
from tests.waiting import wait_until
from tests.web.http_client import connect, request

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILE_DESCRIPTORS = 250
CLIENTS = 400
LARGE = b"x" * 8_000_000  # more than the buffers of a connection hold
LIMITS = Limits()
THREADS = 8
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
Serve = Callable[..., HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server of a function that returns the body of the response to a path."""
    with ExitStack() as servers:

        def start(respond: Callable[[str], bytes | AsyncIterator[bytes]], **limits: Any) -> HttpServer:
            threads = ResponseThreads(THREADS)

            async def app(scope: Any, receive: Any, send: Any) -> None:
                body = await threads.run(lambda: respond(Request(scope).url.path))
                response = Response(body) if isinstance(body, bytes) else StreamingResponse(body)
                await response(scope, receive, send)

            server = HttpServer("127.0.0.1:0", app, what="nothing", advice="", limits=Limits(**limits))
            servers.callback(server.close)
            server.start()
            return server

        yield start


@pytest.fixture
def small_server() -> Iterator[tuple[int, str]]:
    """The process id and the URL of a server that may open few files."""
    command = [sys.executable, "-m", "tests.web.small_server", str(FILE_DESCRIPTORS)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        yield process.pid, process.stdout.readline().strip()
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Closes the sockets of the test."""
    with ExitStack() as stack:
        yield stack


class SlowClients:
    """Clients that send an endless request, a byte each every `pause` seconds, until the server closes them."""

    def __init__(self, url: str, count: int, pause: float, clients: ExitStack) -> None:
        self.sockets = [clients.enter_context(connect(url)) for _ in range(count)]
        self.closed: set[socket.socket] = set()
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        for one in self.sockets:
            one.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            one.settimeout(0)
        self._thread.start()
        clients.callback(self._thread.join)
        clients.callback(self._stop.set)

    def _send(self) -> None:
        while not self._stop.wait(self._pause):
            self.closed.update(one for one in self.sockets if not can_send(one))


def test_400_slow_clients_neither_use_up_the_files_of_the_process_nor_delay_scrapes(
    small_server: tuple[int, str], clients: ExitStack
) -> None:
    pid, url = small_server
    slow = SlowClients(url, CLIENTS, 0.1, clients)
    for _ in range(20):  # a request has 20 s, so none of them waits until a slow one is disconnected, after 30 s
        assert request(url, "/metrics")[0] == HTTPStatus.OK
        assert request(url, "/health")[0] == HTTPStatus.OK
        assert count_entries(f"/proc/{pid}/fd") < FILE_DESCRIPTORS - 50
        assert count_entries(f"/proc/{pid}/task") < 20
        time.sleep(0.05)
    assert len(slow.sockets) - len(slow.closed) <= LIMITS.waiting


def test_400_clients_that_send_nothing_count_from_their_connection_on(
    small_server: tuple[int, str], clients: ExitStack
) -> None:
    pid, url = small_server
    silent = [clients.enter_context(connect(url)) for _ in range(CLIENTS)]
    assert request(url, "/metrics")[0] == HTTPStatus.OK
    assert count_entries(f"/proc/{pid}/fd") < FILE_DESCRIPTORS - 50
    closed = select(silent, [], [], 0)[0]
    assert closed[0] is silent[0]
    assert len(silent) - len(closed) < LIMITS.waiting


def test_a_client_that_sends_a_byte_now_and_then_is_disconnected_after_the_time_of_a_request(
    serve: Serve, clients: ExitStack
) -> None:
    slow = SlowClients(serve(lambda _: b"", request_seconds=0.5).url, 1, 0.05, clients)
    started = time.monotonic()
    assert wait_until(lambda: bool(slow.closed), seconds=20, interval=0.01)  # without a deadline it goes on for ever
    assert time.monotonic() - started > 0.4


def test_a_client_that_sends_a_body_now_and_then_is_disconnected_after_the_time_of_a_request(
    serve: Serve, clients: ExitStack
) -> None:
    release = threading.Event()
    clients.callback(release.set)

    def respond(_: str) -> bytes:
        release.wait(20)
        return b""

    server = serve(respond, request_seconds=0.5)
    client = clients.enter_context(connect(server.url))
    client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
    client.settimeout(0)
    assert wait_until(lambda: not can_send(client))


def test_a_body_that_is_too_large_is_refused(serve: Serve, clients: ExitStack) -> None:
    server = serve(lambda _: b"")
    client = clients.enter_context(connect(server.url))
    client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17000\r\n\r\n" + b"x" * 17_000)
    assert client.recv(12) == b"HTTP/1.1 413"
    assert request(server.url, "/")[0] == HTTPStatus.OK


def test_a_response_that_takes_longer_than_a_request_may_is_sent(serve: Serve) -> None:
    def respond(_: str) -> bytes:
        time.sleep(0.5)
        return b"done"

    assert request(serve(respond, request_seconds=0.2, unread_seconds=0.2).url, "/")[2] == "done"


def test_a_stream_of_events_goes_on_for_longer_than_a_client_may_take(serve: Serve) -> None:
    async def events() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"event\n"
            await asyncio.sleep(0.05)

    body = request(serve(lambda _: events(), request_seconds=0.2, unread_seconds=0.2).url, "/")[2]
    assert body == "event\n" * 10


def test_a_client_that_reads_a_byte_now_and_then_is_disconnected_after_the_time_of_a_request(
    serve: Serve, clients: ExitStack
) -> None:
    server = serve(lambda _: LARGE, unread_seconds=0.5)
    client = clients.enter_context(connect(server.url))
    client.sendall(GET)
    started = time.monotonic()
    while time.monotonic() - started < 1.5:
        with suppress(ConnectionError):
            client.recv(1)
        time.sleep(0.05)
    assert read_to_end(client) < len(LARGE)


def test_a_client_that_reads_some_of_each_part_is_disconnected_after_the_time_of_a_response(
    serve: Serve, clients: ExitStack
) -> None:
    parts = 1_000

    async def large() -> AsyncIterator[bytes]:
        for _ in range(parts):
            yield LARGE[:65_536]

    client = clients.enter_context(connect(serve(lambda _: large(), unread_seconds=0.5).url))
    client.sendall(GET)
    received = 0
    with suppress(ConnectionError):
        while some := client.recv(131_072):
            received += len(some)
            time.sleep(0.02)
    assert 65_536 < received < parts * 65_536


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
    sizes = [read_to_end(client) for client in unread]
    assert all(size < len(LARGE) for size in sizes[: 2 * LIMITS.unread])
    assert all(size > len(LARGE) for size in sizes[-LIMITS.unread + 1 :])


def test_more_requests_than_threads_wait_and_more_than_may_wait_are_refused(serve: Serve, clients: ExitStack) -> None:
    release, running = threading.Event(), itertools.count()
    started: list[int] = []

    def respond(_: str) -> bytes:
        started.append(next(running))
        release.wait(20)
        return b"done"

    server = serve(respond)
    refused = 5
    waiting = [clients.enter_context(connect(server.url)) for _ in range(LIMITS.requests + refused)]
    for client in waiting:
        client.sendall(GET)
    assert wait_until(lambda: len(select(waiting, [], [], 0)[0]) == refused)
    assert wait_until(lambda: len(started) == THREADS)
    release.set()
    statuses = Counter(client.recv(12) for client in waiting)
    assert statuses == {b"HTTP/1.1 503": refused, b"HTTP/1.1 200": LIMITS.requests}
    assert request(server.url, "/")[0] == HTTPStatus.OK


def test_an_endless_request_is_refused(serve: Serve, clients: ExitStack) -> None:
    client = clients.enter_context(connect(serve(lambda _: b"").url))
    with suppress(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (LIMITS.request_bytes + 1))
    assert client.recv(12) == b"HTTP/1.1 431"


def can_send(client: socket.socket) -> bool:
    """Send a byte, and return whether the connection is open."""
    try:
        client.send(b"x")
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def count_entries(directory: str) -> int:
    """Return the number of entries of a directory."""
    return len(list(Path(directory).iterdir()))


def read_to_end(client: socket.socket) -> int:
    """Read what is left, and return its size in bytes."""
    size = 0
    with suppress(ConnectionError):
        while received := client.recv(1_000_000):
            size += len(received)
    return size
