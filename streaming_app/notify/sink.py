"""The base classes of all sinks: settings, sink, and the error for a notification that could not be sent.

A new kind of sink is a module with a subclass of both classes here; `config/settings.py` has the name of its settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import AfterValidator, Field, SecretStr, model_validator
from typing_extensions import Self

from streaming_app.alerts.problem import Problem
from streaming_app.errors import reason_of
from streaming_app.notify.message import AlertGroup
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
    """How many alerts the receiver takes in one request."""
    resend_seconds: float | None = None
    """How often the receiver needs every alert that still fires again; None if once is enough."""
    beat_seconds: float | None = None
    """How often a heartbeat is sent to it while alerts are evaluated; None: never."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def send(self, alert: Problem, event: str) -> None:
        """Send a `firing` or `resolved` notification, and return once the receiver has it. Raises SinkError."""

    def send_all(self, alerts: Sequence[Problem], event: str) -> None:
        """Send `at_once` alerts at most, or all that still fire every `resend_seconds`. Raises SinkError."""
        for alert in alerts:
            self.send(alert, event)

    def beat(self, cluster: str, reason: str) -> None:  # noqa: B027 - few receivers notice that nothing comes
        """Tell the receiver that alerts of the cluster are evaluated; `reason` is about the job. Raises SinkError."""

    def close(self) -> None:  # noqa: B027 - most sinks have nothing to close
        """Release its resources."""


class TextSink(Sink):
    """A sink whose notifications people read: alerts with one cause come in one notification."""

    @abstractmethod
    def send_group(self, group: AlertGroup) -> None:
        """Send one notification of several alerts, and return once the receiver has it. Raises SinkError."""


Timeout = Annotated[Duration, Field(gt=0, le=300)]
"""Of one attempt to send."""


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

    def sink(self) -> Sink:
        """Return a new sink. It connects when it sends."""
        raise NotImplementedError

    @property
    def has_heartbeats(self) -> bool:
        """Whether its sink has `beat_seconds`, known without creating one: that may open a file."""
        return False

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each receiver; empty for one that needs no connection. Raises SinkError."""
        return ()

    def runbook_link(self, alert: Problem) -> str | None:
        """Return the link to the runbook for this alert."""
        return self.runbook_url and self.runbook_url.replace("{rule}", quote(alert.rule))

    def page_link(self, alert: Problem) -> str | None:
        """Return the link to the page for this alert; None if it would need a group, or would be too long."""
        link = self.page_url
        if link is None or (alert.group_id is None and "{group}" in link):
            return None
        for name, value in (("cluster", alert.cluster), ("rule", alert.rule), ("group", alert.group_id or "")):
            link = link.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
        return link if len(link) <= _MAX_LINK else None

    def read_secret(self, name: str) -> str | None:
        """Return a secret, from its file if there is one: read each time, so that it can be changed without a restart.

        Raises SinkError when it is empty or the file cannot be read.
        """
        value: SecretStr | None = getattr(self, name)
        file: Path | None = getattr(self, f"{name}_file")
        if file is None:
            if value is not None and not value.get_secret_value():
                raise SinkError(f"{name} is empty", retry=False)
            return None if value is None else value.get_secret_value()
        try:
            content = read_secret_file(file).strip()
        except (OSError, UnicodeError) as error:
            raise SinkError(f"{name}_file {file}: {reason_of(error)}", retry=False) from None
        if not content:
            raise SinkError(f"{name}_file {file} is empty", retry=False)
        return content

    @model_validator(mode="after")
    def _secrets_are_given_once(self) -> Self:
        for name in self.secrets:
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"set {name} or {name}_file, not both")
            check_setting(self.read_secret, name)
        return self


def check_setting(check: Callable[..., object], *arguments: str) -> None:
    """Call what raises SinkError in a pydantic validator, which needs ValueError: errors should show at the start."""
    try:
        check(*arguments)
    except SinkError as error:
        raise ValueError(str(error)) from None
