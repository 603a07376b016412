"""The base classes of all sinks: settings, sink, and the error for a notification that could not be sent.

A new kind of sink is a module with a subclass of both classes here; `config/settings.py` has the name of its settings.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import AfterValidator, Field, SecretStr, model_validator
from typing_extensions import Self

from streaming_app.alerts.problem import Problem
from streaming_app.errors import reason_of
from streaming_app.secret_file import read_secret_file
from streaming_app.section import Duration, Section
from streaming_app.text import check_name

_MAX_LINK = 2000  # characters; longer ones are not accepted everywhere


class SinkError(Exception):
    """A notification could not be sent. Its text is one line for the operator and contains no secret.

    `retry`: the error may be transient (the receiver is down, busy, slow). Otherwise an operator has to fix something
    first, such as a password: then it is only retried at the longest interval, but never dropped. `after_seconds` is
    how long the receiver asked to wait before the next request.
    """

    def __init__(self, line: str, *, retry: bool, after_seconds: float | None = None) -> None:
        super().__init__(line)
        self.retry = retry
        self.after_seconds = after_seconds


class Sink(ABC):
    """A receiver of notifications. It is used by one thread at a time."""

    at_once: int = 1
    """How many problems the receiver takes in one request."""
    is_read_by_people: bool = False
    """Whether the problems of one rule come in one notification."""
    resend_seconds: float | None = None
    """How often the receiver needs every problem that still fires again; None if once is enough."""
    beat_seconds: float | None = None
    """How often a heartbeat is sent to it while alerts are evaluated; None: never."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def send(self, problems: Sequence[Problem], event: str) -> None:
        """Send a `firing` or `resolved` notification, and return once the receiver has it. Raises SinkError.

        They are `at_once` problems at most, those of one rule for people, or all that still fire, each
        `resend_seconds`.
        """

    def beat(self, cluster: str, reason: str) -> None:  # noqa: B027 - few receivers notice that nothing comes
        """Tell the receiver that alerts of the cluster are evaluated; `reason` is about the job. Raises SinkError."""


class BaseSettings(Section):
    """The settings that every sink has."""

    shows_values: ClassVar[bool] = False
    secrets: ClassVar[tuple[str, ...]] = ()
    """Fields that contain a secret; each may be given in a file instead, under the same name and `_file`."""
    gets_alerts: ClassVar[bool] = True
    """False of a receiver that gets heartbeats only."""

    type: str
    name: Annotated[str, AfterValidator(check_name)] = Field(default_factory=lambda values: values.get("type", ""))
    """Distinguishes sinks of one type; default: the type."""
    runbook_url: str | None = None
    """A link to the runbook; `{rule}` in it is replaced by the name of the rule."""
    page_url: str | None = None
    """A link to a page about the group; `{cluster}`, `{group}` and `{rule}` in it are replaced."""
    ca_file: Path | None = None
    """A PEM file of the authorities to trust instead of the system's. Certificates are always verified."""
    timeout: Annotated[Duration, Field(gt=0, le=300)] = 10.0
    """The limit for one attempt to send, from its start to the end of the response."""

    def sink(self) -> Sink:
        """Return a new sink. It connects when it sends."""
        raise NotImplementedError

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each receiver; empty for one that needs no connection. Raises SinkError."""
        return ()

    def check(self) -> None:
        """Raise SinkError if the settings do not fit together, or a file of theirs cannot be used: at the start."""
        for name in self.secrets:
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise SinkError(f"set {name} or {name}_file, not both", retry=False)
            self.read_secret(name)
        if self.ca_file:
            self.ssl_context()

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context, so that files can be replaced without a restart. Raises SinkError for invalid files."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise SinkError(f"ca_file {self.ca_file}: {tls_reason(error)}", retry=False) from None

    def runbook_link(self, problem: Problem) -> str | None:
        """Return the link to the runbook for this problem."""
        return self.runbook_url and self.runbook_url.replace("{rule}", quote(problem.rule))

    def page_link(self, problem: Problem) -> str | None:
        """Return the link to the page for this problem; None if it would need a group, or would be too long."""
        link = self.page_url
        if link is None or (problem.group_id is None and "{group}" in link):
            return None
        for name, value in (("cluster", problem.cluster), ("rule", problem.rule), ("group", problem.group_id or "")):
            link = link.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
        return link if len(link) <= _MAX_LINK else None

    def read_secret(self, name: str) -> str | None:
        """Return a secret, from its file if there is one: read each time, so that it can be changed without a restart.

        Raises SinkError when it is empty or the file cannot be read.
        """
        given: SecretStr | None = getattr(self, name)
        file: Path | None = getattr(self, f"{name}_file")
        if given is None and file is None:
            return None
        try:
            secret = read_secret_file(file).strip() if file else given.get_secret_value() if given else ""
        except (OSError, UnicodeError) as error:
            raise SinkError(f"{name}_file {file}: {reason_of(error)}", retry=False) from None
        if not secret:
            raise SinkError(f"{name}_file {file} is empty" if file else f"{name} is empty", retry=False)
        return secret

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.check()
        except SinkError as error:
            raise ValueError(str(error)) from None
        return self


def tls_reason(error: OSError) -> str:
    """Return why a file of certificates cannot be used, or a TLS connection was not made."""
    if not isinstance(error, ssl.SSLError):
        return reason_of(error)
    return (error.reason or "not a valid PEM file").lower().replace("_", " ")
