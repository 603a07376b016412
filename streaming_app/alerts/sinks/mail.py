"""E-mail by SMTP: plain text, the message of the end as an answer to the one of the beginning."""

from __future__ import annotations

import contextlib
import logging
import re
import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator
from typing_extensions import Self

from streaming_app.alerts.durations import Duration
from streaming_app.alerts.sinks.base import Sink, SinkError
from streaming_app.alerts.sinks.deadline import Deadline
from streaming_app.alerts.sinks.tls import TlsSettings, refused
from streaming_app.alerts.sinks.wording import identity, message, one_line, repeat, title
from streaming_app.core.alert import FIRING, RESOLVED, Alert

_PORTS = {"starttls": 587, "smtps": 465, "none": 25}
_FOR_GOOD = 500  # replies from here on will be the same next time
_SAID_CHARACTERS = 200
_log = logging.getLogger(__name__)


def _address(text: str) -> str:
    if not re.fullmatch(r"[^@\s]+@[^@\s]+", parseaddr(text)[1]) or not text.isprintable():
        raise ValueError("must be an address such as streams@example.com")
    return text


_Address = Annotated[str, AfterValidator(_address)]


class MailSettings(TlsSettings):
    """`type: email`."""

    secrets: ClassVar[tuple[str, ...]] = ("password",)

    type: Literal["email"]
    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    """By default 587 for `starttls`, 465 for `smtps`, 25 for `none`."""
    tls: Literal["starttls", "smtps", "none"] = "starttls"
    sender: Annotated[_Address, Field(alias="from")]
    to: Annotated[tuple[_Address, ...], Field(min_length=1)]
    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    timeout: Annotated[Duration, Field(gt=0, le=300)] = 10.0
    """How long one try may take, from connecting to the server's last word."""

    def sink(self) -> MailSink:
        """Make the sink."""
        return MailSink(self)

    @model_validator(mode="after")
    def _login_is_whole_and_safe(self) -> Self:
        if (self.username is None) != (self.password is None and self.password_file is None):
            raise ValueError("username and password go together")
        if self.username is not None and self.tls == "none":
            raise ValueError("a password is not sent without TLS: set tls to starttls or smtps")
        return self


class MailSink(Sink):
    """Connects for each message: a few an hour are not worth a connection that the server may have closed."""

    def __init__(self, settings: MailSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings

    def send(self, alert: Alert, event: str) -> None:
        """Hand the message to the server. Raises SinkError unless the server takes it for at least one recipient."""
        settings = self._settings
        mail = compose(alert, event, settings)
        server = f"{settings.host}:{settings.port or _PORTS[settings.tls]}"
        password = settings.revealed("password")
        with Deadline(settings.timeout) as deadline:
            try:
                self._deliver(mail, password, deadline)
            except ssl.SSLError as error:
                raise _late(server, deadline) or refused(server, error) from None
            except (OSError, smtplib.SMTPException) as error:
                raise _late(server, deadline) or _failure(server, error) from None

    def _deliver(self, mail: EmailMessage, password: str | None, deadline: Deadline) -> None:
        settings = self._settings
        context = None if settings.tls == "none" else settings.context()
        smtp = _Watched(settings, deadline, context)
        try:
            if settings.tls == "starttls":
                smtp.starttls(context=context)
            if settings.username is not None:
                smtp.login(settings.username, password or "")
            refused_by = smtp.send_message(mail)
            if refused_by:
                _log.warning("%s: the server refuses the recipients %s", self.name, ", ".join(refused_by))
            with contextlib.suppress(OSError, smtplib.SMTPException):  # the message is taken: its farewell may fail
                smtp.quit()
        finally:
            smtp.close()


def compose(alert: Alert, event: str, settings: MailSettings) -> EmailMessage:
    """Write the message. Its id tells doubles, and lets mail programs show both messages of an alert together."""
    domain = parseaddr(settings.sender)[1].rpartition("@")[2]
    first = f"<{identity(alert, FIRING)}@{domain}>"
    own = f"<{identity(alert, event, repeat(alert, event, settings.name))}@{domain}>"
    mail = EmailMessage()
    mail["Subject"] = title(alert, event)
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    at = alert.resolved_at if event == RESOLVED else alert.opened_at
    mail["Date"] = format_datetime(at or alert.pending_since)
    mail["Message-ID"] = own
    if own != first:
        mail["In-Reply-To"] = mail["References"] = first
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic answers, please
    mail.set_content(message(alert, event, settings.runbook(alert)) + "\n")
    return mail


class _Watched(smtplib.SMTP):
    """A connection that ends with its deadline. TLS from the start is here, too, as smtplib's own cannot be watched."""

    def __init__(self, settings: MailSettings, deadline: Deadline, context: ssl.SSLContext | None) -> None:
        self._deadline = deadline
        self._at_once = context if settings.tls == "smtps" else None
        super().__init__(settings.host, settings.port or _PORTS[settings.tls], timeout=settings.timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = socket.create_connection((host, port), timeout)
        self._deadline.watch(connected)
        return self._at_once.wrap_socket(connected, server_hostname=host) if self._at_once else connected


def _late(server: str, deadline: Deadline) -> SinkError | None:
    return SinkError(f"{server} did not finish within {deadline.seconds:g} s", retry=True) if deadline.passed else None


def _failure(server: str, error: Exception) -> SinkError:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return SinkError(f"{server} refuses the login ({error.smtp_code}): check the credentials", retry=False)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return SinkError(f"{server}: {_said(str(error))}: check tls and username", retry=False)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, said = next(iter(error.recipients.values()))
        return SinkError(f"{server} refuses the recipients ({code} {_said(said)})", retry=code < _FOR_GOOD)
    if isinstance(error, smtplib.SMTPResponseException):
        line = f"{server} answered {error.smtp_code} {_said(error.smtp_error)}"
        return SinkError(line, retry=error.smtp_code < _FOR_GOOD)
    if isinstance(error, smtplib.SMTPException):
        why = "closed the connection without an answer"
    elif isinstance(error, TimeoutError):
        why = "did not answer in time"
    else:
        why = f"cannot be reached: {getattr(error, 'strerror', None) or 'no connection'}"
    return SinkError(f"{server} {why}", retry=True)


def _said(text: bytes | str) -> str:
    return one_line(text if isinstance(text, str) else text.decode("utf-8", "replace"))[:_SAID_CHARACTERS]
