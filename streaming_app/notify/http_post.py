"""One HTTP POST with a strict limit on its total time, for every sink that uses HTTP.

http.client of the standard library is enough for one request, and leaves the connection to us. That has to be shut down
at the deadline: the timeout of a socket begins again with each byte, so a receiver that sends one from time to time
would block its sink for ever. The name lookup is limited by the system's resolver.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlsplit

from pydantic import SecretStr
from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

from streaming_app.notify.sink import BaseSettings, SinkError, tls_reason

_PORTS = {"http": 80, "https": 443}
_MAX_ERROR_BYTES = 1000  # how much of an error response is read for its reason
SUCCESS = range(200, 300)
_RETRYABLE = (408, 425, 429, *range(500, 600))
_HINTS = {
    **dict.fromkeys(range(300, 400), "redirects are not followed, check the URL"),
    **dict.fromkeys((401, 403, 407), "check the credentials"),
    **dict.fromkeys((404, 405, 410), "check the URL"),
}
SET_CA_FILE = "set ca_file to the certificate of its authority"
_CERTIFICATE_HINTS = {  # OpenSSL's message for a rejected certificate, and how to fix it
    "unable to get local issuer certificate": SET_CA_FILE,
    "self-signed certificate": "set ca_file to this certificate to trust it",
}


class HttpSettings(BaseSettings):
    """The settings that every sink that uses HTTP has: those of a receiver that may require a client's certificate."""

    cert_file: Path | None = None
    """The client's certificate, a PEM file."""
    key_file: Path | None = None
    """Its unencrypted key; it may be in `cert_file` instead."""

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context, with the client's certificate. Raises SinkError for invalid files."""
        context = super().ssl_context()
        if self.cert_file:
            try:
                # with a password, OpenSSL does not prompt for one at the terminal
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                key = f", key_file {self.key_file}" if self.key_file else ""
                raise SinkError(f"cert_file {self.cert_file}{key}: {tls_reason(error)}", retry=False) from None
        return context

    def check(self) -> None:
        """Check the client's certificate, too."""
        super().check()
        if self.key_file and not self.cert_file:
            raise SinkError("key_file requires cert_file", retry=False)
        if self.cert_file:
            self.ssl_context()


class AuthSettings(HttpSettings):
    """HTTP with authentication: basic, or by a bearer token."""

    secrets: ClassVar[tuple[str, ...]] = ("password", "token")

    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    """Sent as `Authorization: Bearer`."""
    token_file: Path | None = None

    def authorization_header(self) -> dict[str, str]:
        """Return the header; an empty dict without credentials. Raises SinkError if they cannot be used."""
        if token := self.read_secret("token"):
            if not token.isascii() or not token.isprintable():
                raise SinkError(f"{'token_file' if self.token_file else 'token'} must be printable ASCII", retry=False)
            return {"Authorization": f"Bearer {token}"}
        if self.username is not None:
            credentials = f"{self.username}:{self.read_secret('password') or ''}"
            return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
        return {}

    def check(self) -> None:
        """Check that there is one kind of credentials, too."""
        super().check()
        password, token = (getattr(self, name) or getattr(self, f"{name}_file") for name in ("password", "token"))
        if self.username is not None and token:
            raise SinkError("set username and password, or a token, not both", retry=False)
        if (self.username is None) != (password is None):
            raise SinkError("username and password must be set together", retry=False)
        self.authorization_header()


class SecretUrlSettings(HttpSettings):
    """HTTP with a URL that is itself the secret."""

    secrets: ClassVar[tuple[str, ...]] = ("url",)

    url: SecretStr | None = None
    url_file: Path | None = None

    def read_url(self) -> str:
        """Return the URL. Raises SinkError if it is missing or invalid."""
        url = self.read_secret("url")
        if url is None:
            raise SinkError("url or url_file is missing", retry=False)
        try:
            return check_url(url)
        except ValueError as error:
            raise SinkError(f"{'url_file' if self.url_file else 'url'} {error}", retry=False) from None

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of the URL. Raises SinkError if it is missing or invalid."""
        return [split_url(self.read_url())]

    def check(self) -> None:
        """Check the URL, too."""
        super().check()
        self.read_url()


def split_url(url: str) -> tuple[str, int]:
    """Return host and port of a valid URL."""
    parsed = urlsplit(url)
    return parsed.hostname or "", parsed.port or _PORTS[parsed.scheme]


def check_url(url: str) -> str:
    """Return the URL if it is a valid HTTP URL. Raises ValueError, without the URL in it: it may be a secret."""
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


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    settings: HttpSettings,
    *,
    quotes_answer: bool = False,
) -> None:
    """Send JSON and return when it was accepted (status 2xx). Raises SinkError, which names only the host of the URL.

    The body of an error response is part of the error only if it `quotes_answer`: some receivers repeat the path of the
    request, which may be a secret.
    """
    target = urlsplit(quote(url, safe=string.punctuation))
    origin, path = f"{target.scheme}://{target.netloc}", target.path or "/"
    headers = {"Host": target.netloc, "Content-Type": "application/json", "User-Agent": "streams-groups", **headers}
    ends_at = time.monotonic() + settings.timeout
    host, port = split_url(url)
    try:
        with (
            socket.create_connection((host, port), settings.timeout) as connected,
            _shut_down_at(ends_at, connected),
            closing(HTTPConnection(host, port)) as connection,
        ):
            is_secure = target.scheme == "https"
            connection.sock = (
                settings.ssl_context().wrap_socket(connected, server_hostname=host) if is_secure else connected
            )
            with suppress(BrokenPipeError):  # it answers before it has read all, such as that this is too large
                connection.request("POST", f"{path}?{target.query}" if target.query else path, body, headers)
            response = connection.getresponse()
            if time.monotonic() >= ends_at:  # the response may be incomplete
                raise TimeoutError
            if response.status not in SUCCESS:
                raise _response_error(origin, response, quotes_answer=quotes_answer)
    except (OSError, HTTPException, UnicodeError) as error:
        is_late = time.monotonic() >= ends_at or isinstance(error, TimeoutError)
        late = SinkError(f"{origin} did not respond within {settings.timeout:g} s", retry=True)
        raise (late if is_late else _connection_error(origin, error)) from None


@contextmanager
def _shut_down_at(ends_at: float, connected: socket.socket) -> Iterator[None]:
    """Shut a connection down when the time is up, which unblocks the thread that reads from it."""
    watched = connected.dup()  # TLS takes the other one over

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


def status_error(origin: str, status: int, why: str = "", after_seconds: float | None = None) -> SinkError:
    """Return the error for a response with another status than 2xx: what to do, and whether to try again."""
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    line = f"{origin} responded with status {status}{why}{hint}"
    return SinkError(line, retry=status in _RETRYABLE, after_seconds=after_seconds)


def _response_error(origin: str, response: HTTPResponse, *, quotes_answer: bool) -> SinkError:
    body, after = "", None
    if quotes_answer:
        with suppress(HTTPException, OSError):
            body = " ".join(response.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").split())
    if given := response.getheader("Retry-After"):
        with suppress(InvalidHeader):
            after = Retry().parse_retry_after(given)
    return status_error(origin, response.status, f" ({body})" if body else "", after)


def _connection_error(origin: str, error: Exception) -> SinkError:
    """Return the error in one line; those of http.client may contain what was received."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = next((f": {hint}" for words, hint in _CERTIFICATE_HINTS.items() if words in error.verify_message), "")
        return SinkError(f"{origin}: its certificate is rejected: {error.verify_message}{hint}", retry=False)
    if isinstance(error, ssl.SSLError):
        why = f": no TLS connection: {tls_reason(error)}"
    elif isinstance(error, socket.gaierror | UnicodeError):
        why = ": unknown host name"
    elif isinstance(error, ConnectionResetError | BrokenPipeError | HTTPException):
        why = " closed the connection without a response"
    else:
        why = f" cannot be reached: {getattr(error, 'strerror', None) or 'no connection'}"
    return SinkError(f"{origin}{why}", retry=True)
