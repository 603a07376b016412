"""The HTTP server of the job: one thread reads requests and writes responses, a few others compute the responses.

Clients cannot use up the threads, file descriptors or memory of the job, and clients that are slow do not delay others:

- A request may take `_REQUEST_SECONDS`, from the connection to the last byte of the response, however many bytes the
  client sends or reads meanwhile. Then its connection is closed.
- `_MAX_READING` connections may wait for the rest of a request, and `_MAX_SENDING` for a client to read a response. If
  there is another one, the oldest is closed: a client that is not slow is never the oldest for long.
- `_MAX_REQUESTS` requests may wait for a response, and `_MAX_THREADS` of these responses are computed at a time. More
  are refused with the status 503.
- A request may have `_MAX_REQUEST_BYTES`.

Requests are parsed, and passed to the WSGI application, by the standard library's handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, TextIO, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from streaming_app.errors import JobError, reason_of
from streaming_app.text import split_address

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_REQUEST_SECONDS = 30.0
_MAX_READING = 128
_MAX_SENDING = 16  # each holds a response in memory
_MAX_REQUESTS = 32
_MAX_THREADS = 8
_MAX_REQUEST_BYTES = 16_384
_BACKLOG = 64
_DISCONNECTED = ("", 0)
_END_OF_HEADERS = re.compile(rb"\n\r?\n")


class HttpServer:
    """A server of a WSGI application at `listen` (`HOST:PORT`, port 0 for any); it runs until `close`."""

    def __init__(self, listen: str, app: WSGIApplication) -> None:
        """Start the server. Raises JobError if it cannot listen at that address."""
        try:
            self._listener = _Listener(*split_address(listen))
        except (OSError, ValueError, OverflowError) as error:
            reason = reason_of(error)
            raise JobError(
                f"Cannot serve metrics at {listen}: {reason}; set metrics.listen to another address"
            ) from None
        self._listener.set_app(app)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the server."""
        host, port = self._listener.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop the server. Open connections are not waited for."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server was stopped before
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(_cancel_all())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        clients = _Clients(self._listener)
        server = await asyncio.start_server(clients.serve, sock=self._listener.socket, backlog=_BACKLOG)
        await self._stop.wait()
        server.close()


class _Clients:
    """Serves each client, within the limits of this module."""

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self._reading, self._sending = _Waiting(_MAX_READING), _Waiting(_MAX_SENDING)
        self._requests = 0
        self._threads = asyncio.Semaphore(_MAX_THREADS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request, and close the connection."""
        writer.transport.set_write_buffer_limits(0)  # so that drain waits until nothing is left
        try:
            await asyncio.wait_for(self._respond(reader, writer), _REQUEST_SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):  # disconnected; slow; not the newest
            writer.transport.abort()
        finally:
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._reading.added():
            request = await _read_request(reader)
        if not request:
            return
        response = await self._response(request, writer.get_extra_info("peername") or _DISCONNECTED)
        with self._sending.added():
            writer.write(response)
            await writer.drain()

    async def _response(self, request: bytes, address: Any) -> bytes:  # noqa: ANN401 - depends on the address family
        if len(request) > _MAX_REQUEST_BYTES:
            return _error_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self._requests >= _MAX_REQUESTS:
            return _error_response(HTTPStatus.SERVICE_UNAVAILABLE)
        self._requests += 1
        try:
            await self._threads.acquire()
            return await self._in_thread(lambda: self._listener.response(request, address))
        finally:
            self._requests -= 1

    def _in_thread(self, compute: Callable[[], bytes]) -> asyncio.Future[bytes]:
        """Return the future result of a thread. Its permit is released at its end, even if nobody waits any more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def done(response: bytes) -> None:
            self._threads.release()
            if not future.done():
                future.set_result(response)

        def run() -> None:
            response = b""  # closes the connection
            try:
                response = compute()
            finally:
                with contextlib.suppress(RuntimeError):  # the server was closed meanwhile
                    loop.call_soon_threadsafe(done, response)

        # Not an executor: the interpreter would wait for its threads when it exits.
        try:
            threading.Thread(target=run, name="metrics response", daemon=True).start()
        except RuntimeError:  # the process has too many threads
            done(_error_response(HTTPStatus.SERVICE_UNAVAILABLE))
        return future


class _Waiting:
    """The tasks that wait for their clients, the oldest first, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @contextlib.contextmanager
    def added(self) -> Iterator[None]:
        """Count the current task as waiting during the block. Cancels the oldest ones if there are too many."""
        while len(self._tasks) >= self._limit:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._tasks[task] = None
        try:
            yield
        finally:
            self._tasks.pop(task, None)


class _Listener(WSGIServer):
    """The listening socket, and the standard library's parser of requests."""

    request_queue_size = _BACKLOG

    def __init__(self, host: str, port: int) -> None:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = addresses[0]
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type] # a host and a port

    def server_bind(self) -> None:
        """Bind without the library's lookup of the host name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def response(self, request: bytes, address: Any) -> bytes:  # noqa: ANN401 - depends on the address family
        """Return the response to a request, as it is on the wire."""
        connection = _MemorySocket(request)
        _Handler(connection, address, self)  # type: ignore[arg-type] # it needs no more of a socket
        return bytes(connection.response)


class _MemorySocket:
    """What the standard library's handler needs of a connection, with a request that was read before."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.response = bytearray()

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._request)

    def sendall(self, part: bytes) -> None:
        self.response += part


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the library's names
        """Log nothing: there is a scrape every few seconds."""

    def get_stderr(self) -> TextIO:
        """Return a discarded stream: the application returns its errors to the client."""
        return io.StringIO()


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    """Return a request without its body; of a request that is too large the beginning, of an incomplete one nothing."""
    request, searched = bytearray(), 0
    while not _END_OF_HEADERS.search(request, searched) and len(request) <= _MAX_REQUEST_BYTES:
        searched = max(0, len(request) - 2)
        received = await reader.read(_MAX_REQUEST_BYTES)
        if not received:
            return b""
        request += received
    return bytes(request)


def _error_response(status: HTTPStatus) -> bytes:
    headers = f"Content-Type: text/plain\r\nContent-Length: {len(status.phrase) + 1}\r\n"
    return f"HTTP/1.0 {status.value} {status.phrase}\r\n{headers}\r\n{status.phrase}\n".encode()


async def _cancel_all() -> None:
    """Cancel all other tasks, and wait for their ends."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
