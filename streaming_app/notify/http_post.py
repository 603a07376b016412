"""One HTTP POST with a strict limit on its total time, for every sink that uses HTTP."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import SecretStr, model_validator
from typing_extensions import Self
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    HTTPError,
    InvalidHeader,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
)
from urllib3.exceptions import (
    TimeoutError as TimedOutError,
)
from urllib3.util import Url, parse_url

from streaming_app.notify.connection import Deadline, TlsSettings, tls_error
from streaming_app.notify.sink import SinkError, Timeout, check_setting

_HTTP_PORT, _HTTPS_PORT = 80, 443
_MAX_ERROR_BYTES = 1000  # how much of an error response is read for its reason
SUCCESS = range(200, 300)
_RETRYABLE = (408, 425, 429, *range(500, 600))
_HINTS = {
    **dict.fromkeys(range(300, 400), "redirects are not followed, check the URL"),
    **dict.fromkeys((401, 403, 407), "check the credentials"),
    **dict.fromkeys((404, 405, 410), "check the URL"),
}


class HttpSettings(TlsSettings):
    """The settings that every sink that uses HTTP has."""

    timeout: Timeout = 10.0
    """The limit for one attempt, from connecting to the end of the response."""


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

    @model_validator(mode="after")
    def _one_kind_of_credentials(self) -> Self:
        password, token = (getattr(self, name) or getattr(self, f"{name}_file") for name in ("password", "token"))
        if self.username is not None and token:
            raise ValueError("set username and password, or a token, not both")
        if (self.username is None) != (password is None):
            raise ValueError("username and password must be set together")
        check_setting(self.authorization_header)
        return self


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

    @model_validator(mode="after")
    def _url_is_valid(self) -> Self:
        check_setting(self.read_url)
        return self


def split_url(url: str) -> tuple[str, int]:
    """Return host and port of a valid URL."""
    parsed = parse_url(url)
    return (parsed.host or "").strip("[]"), parsed.port or (_HTTPS_PORT if parsed.scheme == "https" else _HTTP_PORT)


def check_url(url: str) -> str:
    """Return the URL if it is a valid HTTP URL. Raises ValueError, without the URL in it: it may be a secret."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = Url()
    if parsed.scheme not in ("http", "https") or not parsed.host or re.search(r"[\s\x00-\x1f]", url):
        raise ValueError("must be a URL of the form https://host:port/path")
    if parsed.auth:
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
    target = parse_url(url)
    origin = f"{target.scheme}://{target.netloc}"
    headers = {"Content-Type": "application/json", "User-Agent": "streams-groups", **headers}
    with Deadline(settings.timeout) as deadline:
        pool = _make_pool(target, settings, deadline)
        try:
            response = pool.urlopen(
                "POST", target.request_uri, body, headers, retries=False, redirect=False, preload_content=False
            )
            try:
                if deadline.expired:  # the response may be incomplete
                    raise TimedOutError
                if response.status not in SUCCESS:
                    raise _response_error(origin, response, quotes_answer=quotes_answer)
            finally:
                response.close()
        except (HTTPError, OSError) as error:
            raise _connection_error(origin, error, deadline) from None
        finally:
            pool.close()


class _HttpConnection(HTTPConnection):
    """A connection that is closed at its deadline."""

    def __init__(self, *arguments: Any, deadline: Deadline, **settings: Any) -> None:  # noqa: ANN401 - urllib3's own
        super().__init__(*arguments, **settings)
        self._deadline = deadline

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        self._deadline.watch(connected)  # before the TLS handshake, which can block, too
        return connected


class _HttpsConnection(_HttpConnection, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def _make_pool(target: Url, settings: HttpSettings, deadline: Deadline) -> HTTPConnectionPool:
    """Return a pool for one request: for a few per hour it is not worth keeping a connection open."""
    host, common = target.hostname or "", {"timeout": settings.timeout, "deadline": deadline}
    if target.scheme == "https":
        return _HttpsPool(host, target.port, ssl_context=settings.ssl_context(), **common)  # type: ignore[arg-type]
    return _HttpPool(host, target.port, **common)  # type: ignore[arg-type]


def status_error(origin: str, status: int, why: str = "", after_seconds: float | None = None) -> SinkError:
    """Return the error for a response with another status than 2xx: what to do, and whether to try again."""
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    line = f"{origin} responded with status {status}{why}{hint}"
    return SinkError(line, retry=status in _RETRYABLE, after_seconds=after_seconds)


def _response_error(origin: str, response: BaseHTTPResponse, *, quotes_answer: bool) -> SinkError:
    body = ""
    if quotes_answer:
        with contextlib.suppress(HTTPError, OSError):
            body = " ".join(response.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").split())
    try:
        after = Retry().get_retry_after(response)
    except InvalidHeader:
        after = None
    return status_error(origin, response.status, f" ({body})" if body else "", after)


def _connection_error(origin: str, error: Exception, deadline: Deadline) -> SinkError:
    """Return the error in one line; urllib3's own messages contain the URL."""
    cause = error.__cause__ or (error.args[0] if error.args else None)
    for one in (error, cause):
        if isinstance(one, ssl.SSLError) and not deadline.expired:
            return tls_error(origin, one)
    if isinstance(error, NameResolutionError):
        why = ": unknown host name"
    elif isinstance(error, NewConnectionError):  # a subclass of urllib3's timeout error
        reason = cause.strerror if isinstance(cause, OSError) else None
        why = f" cannot be reached: {reason or 'no connection'}"
    elif deadline.expired or isinstance(error, TimedOutError):
        why = f" did not respond within {deadline.seconds:g} s"
    elif isinstance(error, SSLError):
        why = ": no TLS connection"
    else:
        why = " closed the connection without a response"
    return SinkError(f"{origin}{why}", retry=True)
