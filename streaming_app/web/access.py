"""Who may read page and metrics, and what a browser may do with them. Pure, except for files and the middleware.

Theory of operation
-------------------
Page and metrics are read-only and have no session. The risks left are other machines, and other sites in the reader's
browser. A site whose name resolves to 127.0.0.1 (DNS rebinding) sends its own name as `Host`. So the server answers
only for `localhost`, IP addresses, the host's own name and allowed names, and only GET and HEAD. The
Content-Security-Policy allows only files of this server. The worker that lays out pictures has another policy, because
it alone compiles WebAssembly.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming_app.errors import UserError
from streaming_app.section import read_secret_file
from streaming_app.text import split_address

TRUSTED_TYPES_POLICY = "streams-groups"
"""The only policy of Trusted Types, see workers.js: it passes the URLs of workers, and the drawing of one of them."""
PAGE_CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        f"trusted-types {TRUSTED_TYPES_POLICY}",
    )
)
WORKER_CSP = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'"
WORKER_FILE = "layout-worker.js"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


DEFAULT_LISTEN = "127.0.0.1:8080"


class PageError(UserError):
    """The page cannot be served with these settings."""


@dataclass(frozen=True)
class Access:
    """Where and to whom page or metrics are served."""

    listen: str = DEFAULT_LISTEN
    base_path: str = ""
    """The path of the page, without a slash at the end, for a proxy that passes paths on as they are."""
    allowed_hosts: frozenset[str] = frozenset()
    """Names that a request may address, in addition to `localhost`, every IP address, and the server's own names."""
    credentials: frozenset[str] = frozenset()
    """Accepted values of the Authorization header, from `read_credentials`; empty: everybody may read."""
    advice: str = "add it to page.allowed_hosts"
    """For a refused client: how to allow another name."""

    @property
    def is_open(self) -> bool:
        """Whether anyone who reaches the address from another machine can read the page."""
        return not self.credentials and not is_loopback(split_address(self.listen)[0])

    def refuse(self, headers: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        """Return the status and the line that refuse a request; None if it is accepted."""
        host = _host_of(headers.get("host", ""))
        if host is None or not (host in self._hosts or _is_address(host)):
            return HTTPStatus.MISDIRECTED_REQUEST, f"This name of the server is not allowed: {self.advice}"
        if self.credentials and not self._accepts(headers.get("authorization", "")):
            return HTTPStatus.UNAUTHORIZED, "A user and password, or a token, is needed"
        return None

    def _accepts(self, authorization: str) -> bool:
        """Return whether it is one of the credentials. The time does not depend on the value."""
        scheme, _, value = authorization.partition(" ")
        given = f"{scheme.lower()} {value.strip()}".encode()
        matches = [hmac.compare_digest(one.encode(), given) for one in self.credentials]
        return any(matches)

    @property
    def challenge(self) -> str:
        """The value of the WWW-Authenticate header."""
        has_users = any(one.startswith("basic ") for one in self.credentials)
        return 'Basic realm="streams-groups", charset="UTF-8"' if has_users else "Bearer"

    @cached_property
    def _hosts(self) -> frozenset[str]:
        """The accepted names, in lower case."""
        own, (listens, _) = socket.gethostname(), split_address(self.listen)
        names = {"localhost", *self.allowed_hosts, own, own.partition(".")[0], listens}
        return frozenset(name.lower() for name in names)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address to listen at."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _host_of(header: str) -> str | None:
    """Return the host of a Host header or an origin's authority, in lower case; None if it has another form."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    is_plain = parts.netloc == header and "@" not in header and not parts.path
    return parts.hostname.rstrip(".") if is_plain and parts.hostname else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class AccessMiddleware:
    """Refuses requests, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        csp = WORKER_CSP if scope["path"].endswith(f"/static/{WORKER_FILE}") else PAGE_CSP

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({"Content-Security-Policy": csp, **_HEADERS})
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        refusal = self._access.refuse(Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, line = refusal
        headers = {"WWW-Authenticate": self._access.challenge} if status is HTTPStatus.UNAUTHORIZED else {}
        await PlainTextResponse(line + "\n", status, headers)(scope, receive, send_with_headers)


def read_credentials(file: Path) -> frozenset[str]:
    """Return the values of the Authorization header that a file allows, with the scheme in lower case.

    It has a line `USER:PASSWORD` for each user, and a line `Bearer TOKEN` for each token. Raises PageError, without the
    content, when the file cannot be read or a line has another form.
    """
    try:
        text = read_secret_file(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PageError(f"Cannot read {file}: {reason}") from None
    found = set[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        scheme, _, token = entry.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            found.add(f"bearer {token.strip()}")
        elif entry.partition(":")[0] and entry.partition(":")[2]:
            found.add(f"basic {base64.b64encode(entry.encode()).decode()}")
        else:
            raise PageError(f"{file}, line {number}: must be USER:PASSWORD or Bearer TOKEN")
    if not found:
        raise PageError(f"{file} has no line USER:PASSWORD or Bearer TOKEN")
    return frozenset(found)
