"""E-mail by SMTP: plain text; the resolved message is a reply to the firing message."""

from __future__ import annotations

import contextlib
import logging
import re
import smtplib
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import FIRING, Alert
from streaming_app.notify import message as texts
from streaming_app.notify.connection import Deadline, TlsSettings, tls_error
from streaming_app.notify.daily_summary import DailySummary, format_summary_text, format_summary_title
from streaming_app.notify.message import AlertGroup
from streaming_app.notify.sink import SinkError, TextSettings, TextSink, Timeout

_PORTS = {"starttls": 587, "smtps": 465, "none": 25}
_PERMANENT = 500  # replies from here on are permanent errors
_MAX_REPLY_CHARACTERS = 200
_log = logging.getLogger(__name__)


def _address(text: str) -> str:
    if not re.fullmatch(r"[^@\s]+@[^@\s]+", parseaddr(text)[1]) or not text.isprintable():
        raise ValueError("must be an address such as streams@example.com")
    return text


_Address = Annotated[str, AfterValidator(_address)]


class MailSettings(TextSettings, TlsSettings):
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
    timeout: Timeout = 10.0
    """The limit for one attempt, from connecting to the server's last reply."""

    def sink(self) -> MailSink:
        """Return a new sink."""
        return MailSink(self)

    def addresses(self) -> Sequence[tuple[str, int]]:
        """Return host and port of the server."""
        return [(self.host, self.port or _PORTS[self.tls])]

    @model_validator(mode="after")
    def _login_is_complete_and_encrypted(self) -> Self:
        if (self.username is None) != (self.password is None and self.password_file is None):
            raise ValueError("username and password must be set together")
        if self.username is not None and self.tls == "none":
            raise ValueError("a password cannot be sent without TLS: set tls to starttls or smtps")
        return self


class MailSink(TextSink):
    """Sends each message over a new connection: for a few per hour it is not worth keeping one open."""

    def __init__(self, settings: MailSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings

    def send(self, alert: Alert, event: str) -> None:
        """Send a message about one alert. Raises SinkError unless the server accepts it for any recipient."""
        self._send(compose(alert, event, self._settings))

    def send_group(self, group: AlertGroup) -> None:
        """Send one message about several alerts. Raises SinkError unless the server accepts it for any recipient."""
        self._send(compose_group(group, self._settings))

    def send_summary(self, summary: DailySummary) -> None:
        """Send the daily summary. Raises SinkError unless the server accepts it for any recipient."""
        own = f"summary-{summary.cluster}-{summary.at:%Y%m%d%H%M}"
        mail = _new_message(self._settings, format_summary_title(summary), summary.at, own)
        mail.set_content(format_summary_text(summary) + "\n")
        self._send(mail)

    def _send(self, mail: EmailMessage) -> None:
        settings = self._settings
        ((host, port),) = settings.addresses()
        server = f"{host}:{port}"
        password = settings.read_secret("password")
        with Deadline(settings.timeout) as deadline:
            try:
                self._deliver(mail, password, deadline)
            except ssl.SSLError as error:
                raise _timeout_error(server, deadline) or tls_error(server, error) from None
            except (OSError, smtplib.SMTPException) as error:
                raise _timeout_error(server, deadline) or _smtp_error(server, error) from None

    def _deliver(self, mail: EmailMessage, password: str | None, deadline: Deadline) -> None:
        settings = self._settings
        context = None if settings.tls == "none" else settings.ssl_context()
        smtp = _SmtpConnection(settings, deadline, context)
        try:
            if settings.tls == "starttls":
                smtp.starttls(context=context)
            if settings.username is not None:
                smtp.login(settings.username, password or "")
            rejected_recipients = smtp.send_message(mail)
            if rejected_recipients:
                _log.warning("%s: the server rejects the recipients %s", self.name, ", ".join(rejected_recipients))
            with contextlib.suppress(OSError, smtplib.SMTPException):  # the message is accepted: QUIT may fail
                smtp.quit()
        finally:
            smtp.close()


def compose(alert: Alert, event: str, settings: MailSettings) -> EmailMessage:
    """Return the message. Its id identifies duplicates, and threads both messages of an alert in mail programs."""
    first = texts.notification_id(alert, FIRING)
    own = texts.notification_id(alert, event, texts.repeat_number(alert, event, settings.name))
    mail = _new_message(settings, texts.format_title(alert, event), texts.event_at(alert, event), own, first)
    links = settings.runbook_link(alert), settings.page_link(alert)
    mail.set_content(texts.format_message(alert, event, *links) + "\n")
    return mail


def compose_group(group: AlertGroup, settings: MailSettings) -> EmailMessage:
    """Return the message about several alerts. Its id is the same for each attempt to send the same alerts."""
    own, first = group.notification_id(group.event), group.notification_id(FIRING)
    mail = _new_message(settings, texts.format_group_title(group), group.at, own, first)
    mail.set_content(texts.format_group_message(group, settings.runbook_link(group.first), settings.page_link) + "\n")
    return mail


def _new_message(
    settings: MailSettings, subject: str, at: datetime, own: str, first: str | None = None
) -> EmailMessage:
    """Return a message without a text; `own` and `first` are the ids of it and of the message that it replies to."""
    domain = parseaddr(settings.sender)[1].rpartition("@")[2]
    mail = EmailMessage()
    mail["Subject"] = subject
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{own}@{domain}>"
    if first not in (None, own):
        mail["In-Reply-To"] = mail["References"] = f"<{first}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: prevents automatic replies
    return mail


class _SmtpConnection(smtplib.SMTP):
    """A connection that is closed at its deadline. Implicit TLS is also here, as smtplib's own cannot be watched."""

    def __init__(self, settings: MailSettings, deadline: Deadline, context: ssl.SSLContext | None) -> None:
        self._deadline = deadline
        self._implicit_tls = context if settings.tls == "smtps" else None
        ((host, port),) = settings.addresses()
        super().__init__(host, port, timeout=settings.timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = socket.create_connection((host, port), timeout)
        self._deadline.watch(connected)
        return self._implicit_tls.wrap_socket(connected, server_hostname=host) if self._implicit_tls else connected


def _timeout_error(server: str, deadline: Deadline) -> SinkError | None:
    line = f"{server} did not complete the delivery within {deadline.seconds:g} s"
    return SinkError(line, retry=True) if deadline.expired else None


def _smtp_error(server: str, error: Exception) -> SinkError:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return SinkError(f"{server} rejects the login ({error.smtp_code}): check the credentials", retry=False)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return SinkError(f"{server}: {_reply_text(str(error))}: check tls and username", retry=False)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, reply = next(iter(error.recipients.values()))
        return SinkError(f"{server} rejects the recipients ({code} {_reply_text(reply)})", retry=code < _PERMANENT)
    if isinstance(error, smtplib.SMTPResponseException):
        line = f"{server} replied {error.smtp_code} {_reply_text(error.smtp_error)}"
        return SinkError(line, retry=error.smtp_code < _PERMANENT)
    if isinstance(error, smtplib.SMTPException):
        why = "closed the connection without a reply"
    elif isinstance(error, TimeoutError):
        why = "did not reply in time"
    else:
        why = f"cannot be reached: {getattr(error, 'strerror', None) or 'no connection'}"
    return SinkError(f"{server} {why}", retry=True)


def _reply_text(text: bytes | str) -> str:
    return texts.one_line(text if isinstance(text, str) else text.decode("utf-8", "replace"))[:_MAX_REPLY_CHARACTERS]
