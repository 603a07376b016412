"""The base class of sinks: the settings of a receiver with the method that sends to it, and the error of an attempt.

A new kind of sink is a module with a subclass of `Sink`, named in `config/settings.py`.
"""

import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import AfterValidator, Field, SecretStr, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import Alert
from streaming_app.errors import reason_of
from streaming_app.section import Duration, FilePath, Section, read_secret_file
from streaming_app.text import check_name

_MAX_LINK = 2000  # characters; not all receivers accept longer links
_TO_FIX = {
    **dict.fromkeys(range(300, 400), ": redirects are not followed, check the URL"),
    **dict.fromkeys((401, 403, 407), ": check the credentials"),
    **dict.fromkeys((404, 405, 410), ": check the URL"),
}
_RETRYABLE = (408, 425, 429, *range(500, 600))
# Text of an exception or a log; its meaning for the operator; whether a retry may help.
_REASONS = (
    (
        r"CERTIFICATE_VERIFY_FAILED(?:\] certificate verify failed(: [^('\"]+\w))?",
        r"its certificate is rejected\1; set ca_file to the authorities to trust",
        False,
    ),
    (r"SSL\w*Error( \[SSL: \w+\])?", r"no TLS connection\1", True),
    (r"NameResolutionError|gaierror|Unicode\w*Error|[Nn]ame (or service|resolution)", "unknown host name", True),
    ("(Connection refused|No route to host|Network is unreachable)", r"cannot be reached: \1", True),
    (r"\((?:530|534|535), ", "rejects the login: check user and password in the URL", False),
    ("[Tt]imed? ?out", "did not respond in time", True),
    ("RemoteDisconnected|Connection ?([Rr]eset|aborted)|Broken ?[Pp]ipe", "closed the connection early", True),
)


class SinkError(ValueError):
    """A notification could not be sent, or the settings are wrong. Its text is one line and contains no secret.

    `retry`: the error may be transient (the receiver is down, busy or slow). Otherwise an operator must fix something
    first, such as a password; then attempts continue at the longest pause. Notifications are never dropped.
    """

    def __init__(self, line: str, *, retry: bool) -> None:
        super().__init__(line)
        self.retry = retry


def failure(receiver: str, said: str, otherwise: str) -> SinkError:
    """Return the error for an attempt without a response, from the text of an exception or a log."""
    for pattern, meaning, retry in _REASONS:
        if found := re.search(pattern, said):
            return SinkError(f"{receiver}: {found.expand(meaning)}", retry=retry)
    return SinkError(f"{receiver}: {otherwise}", retry=True)


def status_error(receiver: str, status: int, why: str = "") -> SinkError:
    """Return the error for a response whose status is not 2xx: what to do, and whether to retry."""
    line = f"{receiver} responded with status {status}{why}{_TO_FIX.get(status, '')}"
    return SinkError(line, retry=status in _RETRYABLE)


class Sink(Section):
    """A receiver of notifications. One thread sends alerts to it, and another thread sends heartbeats."""

    at_once: ClassVar[int] = 1
    """How many alerts the receiver accepts in one request."""
    resend_seconds: ClassVar[float | None] = None
    """How often the receiver needs all open alerts; None if once is enough."""

    type: str
    name: Annotated[str, AfterValidator(check_name)] = Field(default_factory=lambda values: values.get("type", ""))
    """Distinguishes sinks of one type; default: the type."""
    runbook_url: str | None = None
    """A link to the runbook; `{rule}` in it is replaced by the name of the rule."""
    page_url: str | None = None
    """A link to a page about the group; `{cluster}`, `{group}` and `{rule}` in it are replaced."""
    ca_file: FilePath | None = None
    """A PEM file of the authorities to trust instead of the system's. Certificates are always verified."""
    timeout: Annotated[Duration, Field(gt=0, le=300)] = 10.0
    """The limit for one attempt to send, from its start to the end of the response."""

    @property
    def is_read_by_people(self) -> bool:
        """Whether the alerts of one rule are sent in one notification."""
        return False

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        """Send a `firing` or `resolved` notification, and return when the receiver has it. Raises SinkError.

        `alerts` are at most `at_once`; or for people all of one rule; or every `resend_seconds` all that fire.
        """
        raise NotImplementedError

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each receiver; empty if they are not known. Raises SinkError."""
        return ()

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        """Raise SinkError if a file cannot be used, when the job starts."""
        fields = type(self).model_fields
        for name in (name for name in fields if f"{name}_file" in fields):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise SinkError(f"set {name} or {name}_file, not both", retry=False)
            self.read_secret(name)
        if self.ca_file:
            self.ssl_context()
        return self

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context, so that files can be replaced without a restart. Raises SinkError for invalid files."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise SinkError(f"ca_file {self.ca_file}: {reason_of(error)}", retry=False) from None

    def links(self, alert: Alert) -> dict[str, str | None]:
        """Return `runbook_url` and `page_url` of an alert; None for a link that needs a group id or is too long."""
        return {"runbook_url": _link(self.runbook_url, alert), "page_url": _link(self.page_url, alert)}

    def read_secret(self, name: str) -> str | None:
        """Return a secret. Its file is read each time, so that the secret can change without a restart.

        Raises SinkError if the secret is empty or the file cannot be read.
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


class UrlSink(Sink):
    """A sink whose URL is a secret."""

    url: SecretStr | None = None
    url_file: FilePath | None = None

    @property
    def _url_key(self) -> str:
        """The key of the configuration that has the URL, for errors."""
        return "url_file" if self.url_file else "url"

    def read_url(self) -> str:
        """Return the URL. Raises SinkError if it is missing."""
        if (url := self.read_secret("url")) is None:
            raise SinkError("url or url_file is missing", retry=False)
        return url


def _link(template: str | None, alert: Alert) -> str | None:
    if template is None or (alert.group_id is None and "{group}" in template):
        return None
    for name, value in (("cluster", alert.cluster), ("rule", alert.rule), ("group", alert.group_id or "")):
        template = template.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
    return template if len(template) <= _MAX_LINK else None
