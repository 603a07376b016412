"""The settings of the page, and their valid values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from streaming_app.errors import UserError
from streaming_app.page.access import AccessPolicy, Credentials, is_loopback
from streaming_app.page.config import PageConfig
from streaming_app.text import split_address

DEFAULT_LISTEN = "127.0.0.1:8080"


class PageError(UserError):
    """The page cannot be served with these settings."""


class Brokers(NamedTuple):
    """The brokers to ask for descriptions, with Kafka client properties, and these as kafka-python's settings."""

    bootstrap_server: str
    properties: Mapping[str, str]
    security: Mapping[str, Any]


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
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """As `PageConfig` has them."""

    @classmethod
    def of(cls, config: PageConfig, listen: str, brokers: Brokers | None = None) -> PageSettings:
        """Return the settings of a configuration. Raises PageError if its file of users cannot be read."""
        return cls(
            listen=listen,
            base_path=config.base_path,
            allowed_hosts=frozenset(name.lower() for name in config.allowed_hosts),
            credentials=read_credentials(config.auth_file) if config.auth_file else None,
            bootstrap_server=brokers.bootstrap_server if brokers else None,
            broker_properties=brokers.properties if brokers else {},
            broker_security=brokers.security if brokers else {},
            labels=config.labels,
        )

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
