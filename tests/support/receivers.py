"""The receivers of notifications in tests: real servers on loopback, some of which fail on request.

HTTP with http.server, SMTP with aiosmtpd, and Alertmanager itself, from the PATH or from its Debian package.
"""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import socket
import socketserver
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from pydantic import ConfigDict, TypeAdapter
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt
from typing_extensions import Self
from urllib3.exceptions import HTTPError

from streaming_app.config.settings import AnySink
from streaming_app.jvm.java import last_line
from streaming_app.notify.sink import Sink
from streaming_app.sandbox.child_process import Process, reserve_port
from tests.support.certificates import create_authority, create_certificate, write_pem_store
from tests.support.tools import debian_tool
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
_SINK = TypeAdapter[Any](AnySink, config=ConfigDict(hide_input_in_errors=True))
OK = 200
_DEBIAN_PACKAGE = "prometheus-alertmanager"
_TEMPLATES = "/usr/share/prometheus/alertmanager"
# The services for which `HttpReceiver` is a proxy.
SERVICES = (
    *("alert.victorops.com", "api.atlassian.com", "api.ilert.com", "api.incident.io", "api.opsgenie.com"),
    *("api.pagertree.com", "api.squadcast.com", "api.telegram.org", "chat.example.com", "connect.signl4.com"),
    *("discord.com", "events.pagerduty.com", "hooks.slack.com", "prod.westus.logic.azure.com"),
    "signals.firehydrant.com",
)


def make_sink(**settings: Any) -> Sink:
    """Return the sink for these settings of the configuration, with long time-outs. Raises ValidationError."""
    sink: Sink = _SINK.validate_python({"timeout": 300, **settings})
    return sink


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes
    host: str | None = None
    """The host to which the client sends the request, if it uses the receiver as a proxy."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Response:
    """The response to a request. `hold`: it is sent when the receiver is closed; `drop`: never."""

    status: int = OK
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    hold: bool = False
    drop: bool = False


class HttpReceiver:
    """Keeps every request; sends `responses` in turn, then `default`.

    With `proxy_tls` it is a proxy that answers for every host itself. So a client with fixed addresses, such as the
    address of a public service, sends its real requests to it.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        proxy_tls: ssl.SSLContext | None = None,
    ) -> None:
        """Start it on a free port."""
        self._proxy_tls = proxy_tls
        self.requests: list[Request] = []
        self.responses: deque[Response] = deque()
        self.default = Response()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def bodies(self) -> list[Any]:
        return [request.json for request in self.requests]

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            host: str | None = None

            def do_CONNECT(self) -> None:
                self.host = self.path.partition(":")[0]
                self.send_response(OK)
                self.end_headers()
                assert receiver._proxy_tls
                self.connection = receiver._proxy_tls.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
                self.close_connection = False

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                response = receiver.responses.popleft() if receiver.responses else receiver.default
                receiver.requests.append(Request(self.path, dict(self.headers), body, self.host))
                if response.hold:
                    receiver._closing.wait()
                if response.hold or response.drop:
                    self.close_connection = True
                    return
                self.send_response(response.status)
                for name, value in {"Content-Length": str(len(response.body)), **response.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(response.body)

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # a client that disconnected, or rejected the certificate
                    super().handle()

            def finish(self) -> None:
                try:
                    super().finish()
                finally:
                    self.connection.close()  # the server closes only connections that it accepted itself

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextlib.contextmanager
def serve_connections(behaviour: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Serve a port, and call `behaviour` with every connection and an event that ends it. Yields the port."""
    closing = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                behaviour(self.request, closing)

    with socketserver.ThreadingTCPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.server_address[1]
        closing.set()
        server.shutdown()
        thread.join()


def send_slowly(greeting: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Return a behaviour that sends the greeting, then a byte every 20 ms without end."""

    def behaviour(connection: socket.socket, closing: threading.Event) -> None:
        connection.sendall(greeting)
        while not closing.is_set():
            select.select((), (), (), 0.02)
            connection.sendall(b"a")

    return behaviour


def hang(_connection: socket.socket, closing: threading.Event) -> None:
    """Accept the connection and never send anything."""
    closing.wait()


class Certificates:
    """An authority and its certificates for 127.0.0.1: `server`, `client`, as PEM files with their key."""

    def __init__(self, directory: Path) -> None:
        issuer = create_authority()
        self.authority = write_pem_store(directory / "ca.pem", trusted=issuer)
        self.server, self.client = (
            write_pem_store(
                directory / f"{name}.pem",
                own=create_certificate(issuer, name, hosts=(HOST, *SERVICES)),
            )
            for name in ("server", "client")
        )

    def server_context(self, certificate: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        return context


class _SmtpController(Controller):
    """Uses a port that it has bound before it listens; has long time-outs."""

    def __init__(self, handler: SmtpReceiver, **settings: Any) -> None:
        self._socket = reserve_port()
        super().__init__(handler, HOST, self._socket.getsockname()[1], ready_timeout=300, **settings)

    def _create_server(self) -> Any:
        return self.loop.create_server(self._factory_invoker, sock=self._socket, ssl=self.ssl_context)


class SmtpReceiver:
    def __init__(self, tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None) -> None:
        self.envelopes: list[Envelope] = []
        self._login = login
        starttls = {"tls_context": tls, "require_starttls": True} if tls else {}
        auth = {"authenticator": self._authenticate, "auth_required": True, "auth_require_tls": True}
        self._controller = _SmtpController(self, **starttls, **(auth if login else {}))
        self._controller.start()
        self.port: int = self._controller.port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's names
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.envelopes.append(envelope)
        return "250 OK"

    def _authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _how: str, data: Any) -> AuthResult:
        given = (data.login.decode(), data.password.decode()) if isinstance(data, LoginPassword) else None
        return AuthResult(success=given == self._login, handled=False)


class Alertmanager:
    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        """Start it with these settings; skip the test if it is not installed."""
        program, working_directory = _alertmanager()
        config = directory / "alertmanager.json"  # YAML holds JSON
        config.write_text(json.dumps(settings))
        with reserve_port() as free:
            port = free.getsockname()[1]
        self.url = f"http://{HOST}:{port}"
        command = [
            "env",
            f"--chdir={working_directory}",
            program,
            f"--config.file={config}",
            f"--storage.path={directory / 'data'}",
        ]
        command += [f"--web.listen-address={HOST}:{port}", "--cluster.listen-address="]
        self._process = Process(list(map(str, command)), directory / "alertmanager.log")
        wait_until(lambda: self._ready() or self._process.exit_code is not None)
        if not self._ready():
            self.close()
            raise RuntimeError(f"{program} did not start: {last_line(directory / 'alertmanager.log')}")

    def alerts(self) -> list[dict[str, Any]]:
        return list(urllib3.request("GET", f"{self.url}/api/v2/alerts", timeout=60).json())

    def close(self) -> None:
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> bool:
        try:
            return urllib3.request("GET", f"{self.url}/-/ready", timeout=60, retries=False).status == OK
        except HTTPError:
            return False


def notify_of_all(receiver: str, templates: Sequence[str] = (), **other: Any) -> dict[str, Any]:
    """Return settings of an Alertmanager that notifies `receiver` of each alert at once, with `other` settings."""
    route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    hook = {"url": receiver, "send_resolved": True}
    receivers = [{"name": "test", "webhook_configs": [hook], **other}]
    return {"route": route, "receivers": receivers, "templates": list(templates)}


def start_alertmanager(directory: Path, settings: Mapping[str, Any]) -> Alertmanager:
    """Start one. Another process may take its port before it has bound it: then try another one."""
    for attempt in Retrying(retry=retry_if_exception_type(RuntimeError), stop=stop_after_attempt(3), reraise=True):
        with attempt:
            return Alertmanager(directory, settings)
    raise AssertionError


def _alertmanager() -> tuple[Path, Path]:
    """Return the program and its working directory. Debian's build has a fixed path for its templates."""
    if installed := shutil.which("alertmanager"):
        return Path(installed), Path(installed).parent
    program = debian_tool(_DEBIAN_PACKAGE, _DEBIAN_PACKAGE)
    unpacked = program.parents[2]
    patched = program.with_name("alertmanager")
    if not patched.exists():  # a copy that reads them from its working directory, with a path of the same length
        here = ".".ljust(len(_TEMPLATES), "/")
        new = patched.with_suffix(".new")
        new.write_bytes(program.read_bytes().replace(_TEMPLATES.encode(), here.encode()))
        new.chmod(0o755)
        new.replace(patched)
    return patched, unpacked / _TEMPLATES.lstrip("/")
