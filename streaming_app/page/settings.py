"""The settings of the page, and their valid values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming_app.errors import UserError
from streaming_app.metrics.settings import split_address
from streaming_app.page.access import AccessPolicy, Credentials, is_loopback

DEFAULT_LISTEN = "127.0.0.1:8080"
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


class PageError(UserError):
    """The page cannot be served with these settings."""


@dataclass(frozen=True)
class PageSettings:
    """Where and to whom the page is served."""

    listen: str = DEFAULT_LISTEN
    base_path: str = ""
    """The path of the page, without a slash at the end, for a proxy that passes paths on as they are."""
    allowed_hosts: frozenset[str] = frozenset()
    """Names that a request may address, in addition to `localhost` and every IP address."""
    credentials: Credentials | None = None
    bootstrap_server: str | None = None
    """The brokers to ask for topology descriptions; None: they are not asked."""
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    """Kafka client properties, for what an error says."""
    broker_security: Mapping[str, Any] = field(default_factory=dict)
    """The same as kafka-python's settings."""

    @property
    def policy(self) -> AccessPolicy:
        """Which requests are accepted."""
        host, _ = split_address(self.listen)
        named = set() if host in {"0.0.0.0", "::"} else {host.lower()}  # noqa: S104 - compared, not bound
        return AccessPolicy(frozenset(self.allowed_hosts | named), self.credentials)

    @property
    def is_open(self) -> bool:
        """Whether anyone who reaches the address from another machine can read the page."""
        return self.credentials is None and not is_loopback(split_address(self.listen)[0])


def check_listen(text: str) -> str:
    """Return the address. Raises ValueError if it is not `HOST:PORT`."""
    split_address(text)
    return text


def check_base_path(text: str) -> str:
    """Return the path without a slash at the end. Raises ValueError if it is no path."""
    path = text if text.startswith("/") or not text else f"/{text}"
    if not _BASE_PATH.fullmatch(path):
        raise ValueError(f'must be a path of letters, digits and -._~, such as /streams, not "{text}"')
    return path.rstrip("/")


def read_credentials(file: Path) -> Credentials:
    """Read a file with a line `USER:PASSWORD` for each user, and a line `Bearer TOKEN` for each token.

    Raises PageError, without the content, when the file cannot be read or a line has another form.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PageError(f"Cannot read {file}: {reason}") from None
    users, tokens = set(), set()
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        scheme, _, token = entry.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            tokens.add(token.strip())
        elif entry.partition(":")[0] and entry.partition(":")[2]:
            users.add(entry)
        else:
            raise PageError(f"{file}, line {number}: must be USER:PASSWORD or Bearer TOKEN")
    if not users and not tokens:
        raise PageError(f"{file} has no line USER:PASSWORD or Bearer TOKEN")
    return Credentials(frozenset(users), frozenset(tokens))
