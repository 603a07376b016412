"""One POST by HTTP, ended after so many seconds whatever the receiver does: for every sink that speaks HTTP."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, SecretStr, model_validator
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

from streaming_app.alerts.durations import Duration
from streaming_app.alerts.sinks.base import SinkError, checked
from streaming_app.alerts.sinks.deadline import Deadline
from streaming_app.alerts.sinks.tls import TlsSettings, refused

_ANSWER_BYTES = 1000  # how much of an answer is read to say why something was refused
_SUCCESS = range(200, 300)
_MAY_MEND = (408, 425, 429, *range(500, 600))
_HINTS = {
    **dict.fromkeys(range(300, 400), "redirects are not followed, check the URL"),
    **dict.fromkeys((401, 403, 407), "check the credentials"),
    **dict.fromkeys((404, 405, 410), "check the URL"),
}


class HttpSettings(TlsSettings):
    """What every sink that speaks HTTP can be told."""

    timeout: Annotated[Duration, Field(gt=0, le=300)] = 10.0
    """How long one try may take, from connecting to the end of the answer."""


class AuthSettings(HttpSettings):
    """HTTP with a login: by name and password, or by token."""

    secrets: ClassVar[tuple[str, ...]] = ("password", "token")

    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    """Sent as `Authorization: Bearer`."""
    token_file: Path | None = None

    def authorization(self) -> dict[str, str]:
        """The header for it; none if there is no login."""
        if token := self.revealed("token"):
            if not token.isascii() or not token.isprintable():
                raise SinkError(f"{'token_file' if self.token_file else 'token'} must be printable ASCII", retry=False)
            return {"Authorization": f"Bearer {token}"}
        if self.username is not None:
            login = f"{self.username}:{self.revealed('password') or ''}"
            return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
        return {}

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        password, token = (getattr(self, name) or getattr(self, f"{name}_file") for name in ("password", "token"))
        if self.username is not None and token:
            raise ValueError("give username and password, or a token, not both")
        if (self.username is None) != (password is None):
            raise ValueError("username and password go together")
        checked(self.authorization)
        return self


class SecretUrlSettings(HttpSettings):
    """A URL that lets everyone in who knows it."""

    secrets: ClassVar[tuple[str, ...]] = ("url",)

    url: SecretStr | None = None
    url_file: Path | None = None

    def address(self) -> str:
        """The URL. Raises SinkError if there is none that can be used."""
        url = self.revealed("url")
        if url is None:
            raise SinkError("url or url_file is missing", retry=False)
        try:
            return check_url(url)
        except ValueError as error:
            raise SinkError(f"{'url_file' if self.url_file else 'url'} {error}", retry=False) from None

    @model_validator(mode="after")
    def _url_can_be_used(self) -> Self:
        checked(self.address)
        return self


def check_url(url: str) -> str:
    """Return an HTTP URL that can be used. Raises ValueError, which does not repeat it: URLs can be secrets."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = Url()
    if parsed.scheme not in ("http", "https") or not parsed.host or re.search(r"[\s\x00-\x1f]", url):
        raise ValueError("must be a URL of the form https://host:port/path")
    if parsed.auth:
        raise ValueError("must not hold a user and password: give username and password_file")
    return url


def post(
    url: str, body: bytes, headers: Mapping[str, str], settings: HttpSettings, *, quote: re.Pattern[str] | None = None
) -> None:
    """Send JSON and return when it was taken (status 2xx). Raises SinkError, which names only the host of the URL.

    What the receiver says when it refuses is part of the error only if it matches `quote` wholly: some receivers
    repeat the path they were asked for, which can be a secret.
    """
    where = parse_url(url)
    origin = f"{where.scheme}://{where.netloc}"
    headers = {"Content-Type": "application/json", "User-Agent": "streams-groups", **headers}
    with Deadline(settings.timeout) as deadline:
        pool = _pool(where, settings, deadline)
        try:
            answer = pool.urlopen(
                "POST", where.request_uri, body, headers, retries=False, redirect=False, preload_content=False
            )
            try:
                if deadline.passed:  # it was cut short, wherever that was
                    raise TimedOutError
                if answer.status not in _SUCCESS:
                    raise _refusal(origin, answer, quote)
            finally:
                answer.close()
        except (HTTPError, OSError) as error:
            raise _failure(origin, error, deadline) from None
        finally:
            pool.close()


class _Watched(HTTPConnection):
    """A connection that ends with its deadline."""

    def __init__(self, *arguments: Any, deadline: Deadline, **settings: Any) -> None:  # noqa: ANN401 - urllib3's own
        super().__init__(*arguments, **settings)
        self._deadline = deadline

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        self._deadline.watch(connected)  # before the TLS handshake, which can be held up, too
        return connected


class _WatchedTls(_Watched, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Watched


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedTls


def _pool(where: Url, settings: HttpSettings, deadline: Deadline) -> HTTPConnectionPool:
    """Make a pool for one request: a few an hour are not worth a connection that may have died meanwhile."""
    host, common = where.hostname or "", {"timeout": settings.timeout, "deadline": deadline}
    if where.scheme == "https":
        return _TlsPool(host, where.port, ssl_context=settings.context(), **common)  # type: ignore[arg-type]
    return _Pool(host, where.port, **common)  # type: ignore[arg-type]


def _refusal(origin: str, answer: BaseHTTPResponse, quote: re.Pattern[str] | None) -> SinkError:
    said = ""
    if quote:
        with contextlib.suppress(HTTPError, OSError):
            said = " ".join(answer.read(_ANSWER_BYTES).decode("utf-8", "replace").split())
    why = f" ({said})" if quote and quote.fullmatch(said) else ""
    hint = f": {_HINTS[answer.status]}" if answer.status in _HINTS else ""
    try:
        after = Retry().get_retry_after(answer)
    except InvalidHeader:
        after = None
    line = f"{origin} answered {answer.status}{why}{hint}"
    return SinkError(line, retry=answer.status in _MAY_MEND, after_seconds=after)


def _failure(origin: str, error: Exception, deadline: Deadline) -> SinkError:
    """Say in a line what urllib3 says with the URL in it."""
    cause = error.__cause__ or (error.args[0] if error.args else None)
    for one in (error, cause):
        if isinstance(one, ssl.SSLError) and not deadline.passed:
            return refused(origin, one)
    if isinstance(error, NameResolutionError):
        why = ": its host name is not known"
    elif isinstance(error, NewConnectionError):  # which urllib3 counts among time-outs
        reason = cause.strerror if isinstance(cause, OSError) else None
        why = f" cannot be reached: {reason or 'no connection'}"
    elif deadline.passed or isinstance(error, TimedOutError):
        why = f" did not answer within {deadline.seconds:g} s"
    elif isinstance(error, SSLError):
        why = ": no TLS connection"
    else:
        why = " closed the connection without an answer"
    return SinkError(f"{origin}{why}", retry=True)
