"""The e-mail sink, with real SMTP servers, and the log sink."""

from __future__ import annotations

import email
import email.policy
import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, RESOLVED, Delivery
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.sandbox.process import reserve_port
from tests.alerts.examples import make_alert
from tests.hostile import HOSTILE, effective_characters
from tests.notify.receivers import HOST, Certificates, SmtpReceiver, hang, make_sink, send_slowly, serve_connections

LOGIN = ("alice", "s3cret-hunter2")
WRONG = "wr0ng-hunter3"


def mail_sink(port: int, **settings: Any) -> Sink:
    defaults = {"type": "email", "host": HOST, "port": port, "tls": "none", "from": "Us <us@example.com>"}
    return make_sink(**(defaults | {"to": ["a@example.com", "b@example.com"]} | settings))


def error_of(sink: Sink) -> SinkError:
    with pytest.raises(SinkError) as raised:
        sink.send(make_alert("email"), FIRING)
    text = str(raised.value)
    assert "\n" not in text
    assert LOGIN[1] not in text
    assert WRONG not in text
    return raised.value


def received_mails(server: SmtpReceiver) -> list[EmailMessage]:
    mails = [email.message_from_bytes(envelope.content, policy=email.policy.default) for envelope in server.envelopes]
    assert all(isinstance(mail, EmailMessage) for mail in mails)
    return mails


def test_a_mail_describes_the_alert_and_the_resolved_mail_is_a_reply_to_it() -> None:
    alert = make_alert("email", resolved=True)
    with SmtpReceiver() as server:
        sink = mail_sink(server.port, runbook_url="https://wiki#{rule}")
        sink.send(alert, FIRING)
        sink.send(alert, RESOLVED)
        sink.send(make_alert(deliveries=(Delivery("email", FIRING, repeat=1),)), FIRING)
        fired, resolved, repeated = received_mails(server)
        assert server.envelopes[0].mail_from == "us@example.com"
        assert server.envelopes[0].rcpt_tos == ["a@example.com", "b@example.com"]
    assert (fired["Subject"], fired["From"]) == ("[FIRING] not-ready: payments (cluster prod)", "Us <us@example.com>")
    assert resolved["Subject"] == "[RESOLVED] not-ready: payments (cluster prod)"
    assert fired["Auto-Submitted"] == "auto-generated"
    assert fired["References"] is None
    assert resolved["References"] == resolved["In-Reply-To"] == repeated["References"] == fired["Message-ID"]
    assert len({fired["Message-ID"], resolved["Message-ID"], repeated["Message-ID"]}) == 3
    assert fired.get_content_type() == "text/plain"
    assert fired.get_content().startswith("payments is NotReady: its source topic card-transactions does not exist")
    assert "runbook: https://wiki#not-ready" in fired.get_content()


def test_a_group_name_cannot_inject_a_header() -> None:
    hostile = make_alert(group_id="grün\r\nBcc: all@example.com\r\n\r\nhello \ud800", summary="\r\n.\r\nQUIT\r\n")
    with SmtpReceiver() as server:
        mail_sink(server.port).send(hostile, FIRING)
        [mail] = received_mails(server)
    assert mail["Subject"] == r"[FIRING] not-ready: grün Bcc: all@example.com hello \ud800 (cluster prod)"
    assert mail["Bcc"] is None


def test_a_mail_has_a_short_subject_and_no_characters_that_a_terminal_obeys() -> None:
    with SmtpReceiver() as server:
        mail_sink(server.port).send(make_alert(group_id=HOSTILE * 200, details={"clients": [HOSTILE]}), FIRING)
        [mail] = received_mails(server)
    assert len(mail["Subject"]) < 300
    assert effective_characters(mail["Subject"] + mail.get_content().replace("\r\n", "\n")) == set()


@pytest.mark.parametrize("tls", ["starttls", "smtps"])
def test_a_login_is_sent_over_tls_only_and_a_wrong_password_is_reported(certificates: Certificates, tls: str) -> None:
    settings: dict[str, Any] = {"tls": tls, "ca_file": certificates.authority, "username": LOGIN[0]}
    context = certificates.server_context(certificates.server)
    with SmtpReceiver(context, LOGIN, implicit_tls=tls == "smtps") as server:
        mail_sink(server.port, **settings, password=LOGIN[1]).send(make_alert(), FIRING)
        assert len(server.envelopes) == 1
        error = error_of(mail_sink(server.port, **settings, password=WRONG))
        assert str(error) == f"{HOST}:{server.port} rejects the login (535): check the credentials"
        assert not error.retry
        error = error_of(mail_sink(server.port, **{**settings, "ca_file": None}, password=LOGIN[1]))
        assert "its certificate is rejected" in str(error)
        assert len(server.envelopes) == 1


def test_no_password_is_sent_to_a_server_without_tls() -> None:
    with SmtpReceiver() as server:
        error = error_of(mail_sink(server.port, tls="starttls", username=LOGIN[0], password=LOGIN[1]))
        assert "STARTTLS extension not supported" in str(error)
        assert not error.retry


def test_an_expired_certificate_is_rejected(certificates: Certificates) -> None:
    with SmtpReceiver(certificates.server_context(certificates.expired)) as server:
        error = error_of(mail_sink(server.port, tls="starttls", ca_file=certificates.authority))
        assert "certificate has expired" in str(error)


@pytest.mark.parametrize(
    ("command", "reply", "words", "retry"),
    [
        ("RCPT", "550 no such user", "rejects the recipients (550 no such user)", False),
        ("RCPT", "450 come back later", "rejects the recipients (450 come back later)", True),
        ("DATA", "554 spam", "replied 554 spam", False),
        ("DATA", "452 disk full", "replied 452 disk full", True),
    ],
)
def test_the_reply_of_the_server_is_in_the_error(command: str, reply: str, words: str, retry: bool) -> None:
    with SmtpReceiver() as server:
        server.error_replies[command] = reply
        error = error_of(mail_sink(server.port))
        assert words in str(error)
        assert error.retry == retry


def test_a_server_that_hangs_or_sends_slowly_or_is_down_is_a_timeout_or_an_error() -> None:
    for behaviour in (hang, send_slowly(b"220 "), send_slowly(b"220 hi\r\n250-")):
        with serve_connections(behaviour) as port:
            for tls in ("none", "smtps"):
                error = error_of(mail_sink(port, timeout=0.3, tls=tls))
                assert f"{HOST}:{port} " in f"{error} ".replace(": no TLS", " no TLS")
    with serve_connections(send_slowly(b"220 ")) as port:
        assert (
            str(error_of(mail_sink(port, timeout=0.3))) == f"{HOST}:{port} did not complete the delivery within 0.3 s"
        )
    with reserve_port() as free:
        port = free.getsockname()[1]
    error = error_of(mail_sink(port))
    assert str(error) == f"{HOST}:{port} cannot be reached: Connection refused"
    assert error.retry


def test_the_log_has_a_line_for_each_notification_and_follows_rotation(tmp_path: Path) -> None:
    file = tmp_path / "alerts.log"
    log, alert = make_sink(type="log", file=file), make_alert(group_id='a "b"\n=c', resolved=True)
    log.send(alert, FIRING)
    file.rename(tmp_path / "alerts.log.1")
    log.send(alert, RESOLVED)
    log.close()
    assert (tmp_path / "alerts.log.1").read_text() == (
        "time=2026-11-21T03:17:05.765Z event=firing severity=critical rule=not-ready cluster=prod "
        'group="a \\"b\\"\\n=c" since=2026-11-21T03:12:05.765Z '
        'summary="payments is NotReady: its source topic card-transactions does not exist" '
        "missing_topics=card-transactions state=NotReady\n"
    )
    assert file.read_text().startswith("time=2026-11-21T03:21:05.765Z event=resolved ")


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_line_of_the_log_has_no_characters_that_a_terminal_obeys(tmp_path: Path, form: str) -> None:
    log = make_sink(type="log", file=tmp_path / "alerts.log", format=form)
    for group_id in (HOSTILE, "a\u3164b", "a\x7fb"):
        log.send(make_alert(group_id=group_id, summary=group_id, details={group_id: {"id": [group_id]}}), FIRING)
    log.close()
    text = (tmp_path / "alerts.log").read_text("utf-8")
    assert text.count("\n") == 3
    assert effective_characters(text) == set()
    if form == "json":
        assert json.loads(text.splitlines()[0])["data"]["group_id"] == HOSTILE


def test_the_log_can_be_json_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = make_sink(type="log", format="json")
    log.send(make_alert(), FIRING)
    log.close()
    assert json.loads(capsys.readouterr().err)["data"]["group_id"] == "payments"


def test_a_log_that_cannot_be_written_raises_an_error() -> None:
    log = make_sink(type="log", file="/dev/full")
    with pytest.raises(SinkError, match=r"^/dev/full: No space left on device$"):
        log.send(make_alert(), FIRING)
    with pytest.raises(OSError, match="No space"):
        log.close()
