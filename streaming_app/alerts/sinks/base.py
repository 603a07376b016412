"""What every sink is: its settings, the one method it has, and how it says that something could not be sent.

A new kind of sink is a module with a subclass of both classes here, and its settings' name in `settings.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, model_validator
from typing_extensions import Self

from streaming_app.core.alert import FIRING, Alert


class SinkError(Exception):
    """A notification could not be sent. Its text is one line for the operator and holds no secret.

    `retry` tells whether it may mend by itself (the receiver is down, busy, slow). Without it somebody has to mend
    something first, such as a password: then it is tried again at the slowest pace only, never given up.
    `after_seconds` is how long the receiver asked to be left alone.
    """

    def __init__(self, line: str, *, retry: bool, after_seconds: float | None = None) -> None:
        super().__init__(line)
        self.retry = retry
        self.after_seconds = after_seconds


class Sink(ABC):
    """Somewhere to send notifications to. One thread at a time uses it."""

    resend_seconds: float | None = None
    """How often the receiver wants to hear of every alert that still fires; None if once is enough."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def send(self, alert: Alert, event: str) -> None:
        """Tell of `firing` or `resolved`, and return once the receiver has it. Raises SinkError."""

    def resend(self, alerts: Sequence[Alert]) -> None:
        """Tell again of alerts that still fire, every `resend_seconds`. Raises SinkError."""
        for alert in alerts:
            self.send(alert, FIRING)

    def close(self) -> None:  # noqa: B027 - most sinks have nothing to close
        """Give up what it holds."""


class BaseSettings(BaseModel):
    """What every sink can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    secrets: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a secret; each may be given in a file instead, under the same name and `_file`."""

    type: str
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")] = Field(
        default_factory=lambda told: told.get("type", "")
    )
    """Tells sinks of one type apart; the type, if not given."""
    runbook_url: str | None = None
    """Where to read what to do; `{rule}` in it becomes the name of the rule."""

    def sink(self) -> Sink:
        """Make the sink. It connects when it sends."""
        raise NotImplementedError

    def runbook(self, alert: Alert) -> str | None:
        """Where to read what to do about this alert."""
        return self.runbook_url and self.runbook_url.replace("{rule}", quote(alert.rule))

    def revealed(self, name: str) -> str | None:
        """A secret, from its file if it is in one: read anew each time, so that it can be changed without a restart.

        Raises SinkError when the file cannot be read.
        """
        given: SecretStr | None = getattr(self, name)
        file: Path | None = getattr(self, f"{name}_file")
        if file is None:
            if given is not None and not given.get_secret_value():
                raise SinkError(f"{name} is empty", retry=False)
            return None if given is None else given.get_secret_value()
        try:
            read = file.read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise SinkError(f"{name}_file {file}: {getattr(error, 'strerror', None) or error}", retry=False) from None
        if not read:
            raise SinkError(f"{name}_file {file} is empty", retry=False)
        return read

    @model_validator(mode="after")
    def _secrets_are_given_once(self) -> Self:
        for name in self.secrets:
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"give {name} or {name}_file, not both")
            checked(self.revealed, name)
        return self


def checked(check: Callable[..., object], *arguments: str) -> None:
    """Call what raises SinkError where pydantic expects a ValueError: what is wrong is better known at the start."""
    try:
        check(*arguments)
    except SinkError as error:
        raise ValueError(str(error)) from None
