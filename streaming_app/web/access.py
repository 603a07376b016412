"""Who may read page and metrics, and what a browser may do with them. Pure, except for the middleware.

Theory of operation
-------------------
Page and metrics are read-only and have no session. The risks left are other machines, and other sites in the reader's
browser. A site whose name resolves to 127.0.0.1 (DNS rebinding) sends its own name as `Host`. So the server answers
only for `localhost`, IP addresses, the host's own name and allowed names, and only GET and HEAD. The
Content-Security-Policy allows only files of this server. The worker that lays out pictures has another policy, because
it alone compiles WebAssembly.
"""

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


@dataclass(frozen=True)
class Access:
    """Where and to whom page or metrics are served."""

    listen: str = "127.0.0.1:8080"
    allowed_hosts: frozenset[str] = frozenset()
    """Names that a request may address, in addition to `localhost`, every IP address, and the server's own names."""
    advice: str = "add it to page.allowed_hosts"
    """For a refused client: how to allow another name."""

    @property
    def is_open(self) -> bool:
        """Whether anyone who reaches the address from another machine can read the page."""
        host = split_address(self.listen)[0]
        return host != "localhost" and not (_is_address(host) and ipaddress.ip_address(host).is_loopback)

    def refuses(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request addresses a name that is not allowed."""
        host = _host_of(headers.get("host", ""))
        return host is None or not (host in self._hosts or _is_address(host))

    @cached_property
    def _hosts(self) -> frozenset[str]:
        own, (listens, _) = socket.gethostname(), split_address(self.listen)
        names = {"localhost", *self.allowed_hosts, own, own.partition(".")[0], listens}
        return frozenset(name.lower() for name in names)


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

        app = self._app
        if self._access.refuses(Headers(scope=scope)):
            line = f"This name of the server is not allowed: {self._access.advice}\n"
            app = PlainTextResponse(line, HTTPStatus.MISDIRECTED_REQUEST)
        await app(scope, receive, send_with_headers)
