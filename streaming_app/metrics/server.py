"""The HTTP server of the job: the standard library's, a thread for each connection.

A client that is slow or says nothing holds up nobody: neither the others nor the end of the job. It is left after
`_CLIENT_SECONDS`.
"""

from __future__ import annotations

import io
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from streaming_app.job.errors import JobError
from streaming_app.metrics.settings import split_address

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_CLIENT_SECONDS = 10.0
_POLL_SECONDS = 0.1  # how long the end takes


class Server:
    """Serves an application at `listen` (`HOST:PORT`, port 0 for any) from its making until `close`."""

    def __init__(self, listen: str, app: WSGIApplication) -> None:
        """Begin to serve. Raises JobError if that cannot be done there."""
        try:
            self._server = _Threaded(*split_address(listen))
        except (OSError, ValueError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise JobError(f"Cannot serve metrics at {listen}: {why}; set metrics.listen to another address") from None
        self._server.set_app(app)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def close(self) -> None:
        """Serve no more. Connections that are open are left to themselves."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS  # for each read and each write

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the library's names
        """Log nothing: a scrape every few seconds is no news."""

    def get_stderr(self) -> TextIO:
        """Where the library would print a traceback when a client goes away in the midst of an answer."""
        return io.StringIO()


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # which also means that nobody waits for them at the end
    request_queue_size = 64

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type] # a host and a port

    def server_bind(self) -> None:
        """Bind without looking up this machine's name, as the library does: that may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the library's
        """Say nothing of clients that went away or said nothing."""
