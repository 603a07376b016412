"""The common part of sinks that use HTTP: one POST with a strict limit on its total time, and authentication.

`WatchdogSink` adds nothing to it: its receiver, such as Healthchecks, alerts when heartbeats stop, and gets no alerts.

A proxy is used as the environment says (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, in either case).

The standard library's http.client is enough for one request, and works with a connection that this module opens. At the
deadline this module shuts the connection down. The timeout of a socket is not enough: it begins again with each byte,
so a receiver that sends one byte from time to time would block its sink for ever. The system's resolver limits the time
of a name lookup.
"""

import base64
import re
import socket
import ssl
import string
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Literal
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import SecretStr, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import Alert
from streaming_app.errors import reason_of
from streaming_app.notify.sink import Sink, SinkError, UrlSink, failure, status_error
from streaming_app.section import FilePath

_PORTS = {"http": 80, "https": 443}
SUCCESS = range(200, 300)
_MAX_ERROR_BYTES = 1000  # how much of an error response is read to find its reason


class HttpSink(Sink):
    """An HTTP receiver, which may require a client certificate, and a password or a token."""

    cert_file: FilePath | None = None
    key_file: FilePath | None = None
    """The unencrypted key of the certificate; it may be in `cert_file` instead."""
    username: str | None = None
    password: SecretStr | None = None
    password_file: FilePath | None = None
    token: SecretStr | None = None
    """Sent as `Authorization: Bearer`."""
    token_file: FilePath | None = None

    def post(self, url: str, body: bytes, headers: Mapping[str, str], *, quotes_answer: bool = False) -> None:
        """Send JSON, and return when the receiver has accepted it (status 2xx). Raises SinkError.

        The error names only the host of the URL. With `quotes_answer` it also has the beginning of the response. Some
        receivers repeat the path of the request there, which may be a secret.
        """
        target = urlsplit(quote(url, safe=string.punctuation))
        origin, path = f"{target.scheme}://{target.netloc}", target.path or "/"
        own = {"Host": target.netloc, "Content-Type": "application/json", "User-Agent": "streams-groups"}
        headers = {**own, **self._authorization(), **headers}
        ends_at, (host, port) = time.monotonic() + self.timeout, split_url(url)
        path, proxy = f"{path}?{target.query}" if target.query else path, _proxy_of(url)
        try:
            with (
                socket.create_connection(proxy[0] if proxy else (host, port), self.timeout) as connected,
                _shut_down_at(ends_at, connected),
                closing(HTTPConnection(host, port)) as connection,
            ):
                connection.sock = connected
                if target.scheme == "https":
                    if proxy:
                        _open_tunnel(connected, proxy, f"{host}:{port}")
                    connection.sock = self.ssl_context().wrap_socket(connected, server_hostname=host)
                elif proxy:
                    path, headers = f"{origin}{path}", {**headers, **proxy[1]}
                with suppress(BrokenPipeError):  # a receiver may answer, for example 413, before it has read all
                    connection.request("POST", path, body, headers)
                response = connection.getresponse()
                if time.monotonic() >= ends_at:  # the response may be incomplete
                    raise TimeoutError
                if response.status not in SUCCESS:
                    said = ""
                    with suppress(HTTPException, OSError):
                        said = response.read(_MAX_ERROR_BYTES).decode("utf-8", "replace") if quotes_answer else ""
                    raise status_error(origin, response.status, f" ({' '.join(said.split())})" if said.strip() else "")
        except (OSError, HTTPException, UnicodeError) as error:
            if time.monotonic() >= ends_at or isinstance(error, TimeoutError):
                raise SinkError(f"{origin} did not respond within {self.timeout:g} s", retry=True) from None
            # the text of an error of http.client may contain received bytes
            is_http = not isinstance(error, OSError)
            otherwise = "its response is not HTTP" if is_http else f"cannot be reached: {reason_of(error)}"
            raise failure(origin, f"{type(error).__name__} {getattr(error, 'strerror', '')}", otherwise) from None

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context with the client certificate. Raises SinkError for invalid files."""
        context = super().ssl_context()
        if self.cert_file:
            try:
                # if a password is given, OpenSSL does not prompt for one at the terminal
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                key = f", key_file {self.key_file}" if self.key_file else ""
                raise SinkError(f"cert_file {self.cert_file}{key}: {reason_of(error)}", retry=False) from None
        return context

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        """Raise SinkError if there are several kinds of credentials, or the client certificate cannot be used."""
        if self.key_file and not self.cert_file:
            raise SinkError("key_file requires cert_file", retry=False)
        if self.cert_file:
            self.ssl_context()
        password, token = self.password or self.password_file, self.token or self.token_file
        if (self.username is None) != (password is None) or (password and token):
            raise SinkError("set username and password, or a token", retry=False)
        self._authorization()
        return self

    def _authorization(self) -> dict[str, str]:
        """Return the header `Authorization`; empty without credentials. Raises SinkError if they cannot be used."""
        if token := self.read_secret("token"):
            if not token.isascii() or not token.isprintable():
                raise SinkError(f"{'token_file' if self.token_file else 'token'} must be printable ASCII", retry=False)
            return {"Authorization": f"Bearer {token}"}
        if self.username is not None:
            credentials = f"{self.username}:{self.read_secret('password')}"
            return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
        return {}


class HttpUrlSink(HttpSink, UrlSink):
    """An HTTP receiver whose URL is a secret."""

    def read_url(self) -> str:
        """Return the URL. Raises SinkError if it is missing or invalid."""
        url = super().read_url()
        try:
            return check_url(url)
        except ValueError as error:
            raise SinkError(f"{self._url_key} {error}", retry=False) from None

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of the URL. Raises SinkError if it is missing or invalid."""
        return [split_url(self.read_url())]

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        self.read_url()
        return self


class WatchdogSink(HttpUrlSink):
    """`type: watchdog`. A heartbeat is a POST of one line of text that says whether the tables are up to date."""

    type: Literal["watchdog"]

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        """Request the URL, for the test notification of `check`. Raises SinkError."""
        del event
        self.beat(alerts[0].cluster, alerts[0].summary)

    def beat(self, cluster: str, reason: str) -> None:
        """Request the URL; `reason` is a line about the job. Raises SinkError if the response is not a success."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        self.post(self.read_url(), f"{cluster}: {reason}\n".encode(), headers)


_Proxy = tuple[tuple[str, int], Mapping[str, str]]
"""The address of a proxy, and the header with its password."""


def _proxy_of(url: str) -> _Proxy | None:
    """Return the proxy that the environment names for a URL, if any. Raises SinkError if it is not one for HTTP."""
    target = urlsplit(url)
    found = getproxies().get(target.scheme)
    if not found or proxy_bypass(target.netloc):
        return None
    parsed = urlsplit(found if "://" in found else f"http://{found}")
    if parsed.scheme != "http" or not parsed.hostname:
        raise SinkError(f"{target.scheme}_proxy must be a URL of the form http://host:port", retry=False)
    user = f"{unquote(parsed.username or '')}:{unquote(parsed.password or '')}"
    token = base64.b64encode(user.encode()).decode()
    headers = {"Proxy-Authorization": f"Basic {token}"} if parsed.username else {}
    return (parsed.hostname, parsed.port or _PORTS["http"]), headers


def _open_tunnel(connected: socket.socket, proxy: _Proxy, host: str) -> None:
    """Ask the proxy for a connection to a receiver. Raises SinkError if it refuses."""
    address, headers = proxy
    tunnel = HTTPConnection(*address)
    tunnel.sock = connected
    tunnel.request("CONNECT", host, headers={"Host": host, **headers})
    response = HTTPResponse(connected, method="CONNECT")  # `getresponse` would close the connection
    response.begin()
    if response.status not in SUCCESS:
        raise status_error(f"the proxy {address[0]}:{address[1]}", response.status, "")


def split_url(url: str) -> tuple[str, int]:
    """Return host and port of a valid URL."""
    parsed = urlsplit(url)
    return parsed.hostname or "", parsed.port or _PORTS[parsed.scheme]


def check_url(url: str) -> str:
    """Return the URL if it is a valid HTTP URL. Raises ValueError without the URL in its text: it may be a secret."""
    try:
        parsed = urlsplit(url)
        is_valid = bool(parsed.hostname) and parsed.netloc.isascii() and parsed.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parsed.scheme not in _PORTS or re.search(r"[\s\x00-\x1f]", url):
        raise ValueError("must be a URL of the form https://host:port/path")
    if "@" in parsed.netloc:
        raise ValueError("must not contain a user and password: set username and password_file")
    return url


@contextmanager
def _shut_down_at(ends_at: float, connected: socket.socket) -> Iterator[None]:
    """Shut the connection down at the deadline. This unblocks the thread that reads from it."""
    watched = connected.dup()  # TLS detaches the original socket

    def shut_down() -> None:
        with suppress(OSError):  # the other side has closed it already
            watched.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(ends_at - time.monotonic(), 0), shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        watched.close()
