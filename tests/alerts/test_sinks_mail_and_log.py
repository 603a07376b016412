"""E-mail, against real SMTP servers, and the log."""

from __future__ import annotations

import email
import email.policy
import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from streaming_app.alerts.sinks.base import Sink, SinkError
from streaming_app.alerts.sinks.settings import SinkSettings
from streaming_app.core.alert import FIRING, RESOLVED, Delivery
from streaming_app.local.answering import reserve
from tests.alerts.examples import an_alert
from tests.alerts.receivers import HOST, Certificates, SmtpReceiver, silence, talking, trickle

LOGIN = ("alice", "s3cret-hunter2")
WRONG = "wr0ng-hunter3"


def sink(**told: Any) -> Sink:
    made = TypeAdapter[Any](SinkSettings).validate_python(told).sink()
    assert isinstance(made, Sink)
    return made


def mailer(port: int, **told: Any) -> Sink:
    usual = {"type": "email", "host": HOST, "port": port, "tls": "none", "from": "Us <us@example.com>"}
    return sink(**(usual | {"to": ["a@example.com", "b@example.com"]} | told))


def refusal(one: Sink) -> SinkError:
    with pytest.raises(SinkError) as refused:
        one.send(an_alert("email"), FIRING)
    said = str(refused.value)
    assert "\n" not in said
    assert LOGIN[1] not in said
    assert WRONG not in said
    return refused.value


def received(server: SmtpReceiver) -> list[EmailMessage]:
    parsed = [email.message_from_bytes(one.content, policy=email.policy.default) for one in server.envelopes]
    assert all(isinstance(one, EmailMessage) for one in parsed)
    return parsed  # type: ignore[return-value]


def test_a_mail_says_what_is_wrong_and_its_end_answers_it() -> None:
    alert = an_alert("email", resolved=True)
    with SmtpReceiver() as server:
        mails = mailer(server.port, runbook_url="https://wiki#{rule}")
        mails.send(alert, FIRING)
        mails.send(alert, RESOLVED)
        mails.send(an_alert(deliveries=(Delivery("email", FIRING, repeat=1),)), FIRING)
        fired, resolved, repeated = received(server)
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


def test_no_group_can_write_a_header() -> None:
    hostile = an_alert(group_id="grün\r\nBcc: all@example.com\r\n\r\nhello \ud800", summary="\r\n.\r\nQUIT\r\n")
    with SmtpReceiver() as server:
        mailer(server.port).send(hostile, FIRING)
        [mail] = received(server)
    assert mail["Subject"] == "[FIRING] not-ready: grün Bcc: all@example.com hello (cluster prod)"
    assert mail["Bcc"] is None


@pytest.mark.parametrize("tls", ["starttls", "smtps"])
def test_a_login_goes_over_tls_only_and_a_wrong_password_is_told(certificates: Certificates, tls: str) -> None:
    told: dict[str, Any] = {"tls": tls, "ca_file": certificates.authority, "username": LOGIN[0]}
    serving = certificates.serving(certificates.server)
    with SmtpReceiver(serving, LOGIN, at_once=tls == "smtps") as server:
        mailer(server.port, **told, password=LOGIN[1]).send(an_alert(), FIRING)
        assert len(server.envelopes) == 1
        error = refusal(mailer(server.port, **told, password=WRONG))
        assert str(error) == f"{HOST}:{server.port} refuses the login (535): check the credentials"
        assert not error.retry
        error = refusal(mailer(server.port, **{**told, "ca_file": None}, password=LOGIN[1]))
        assert "its certificate is refused" in str(error)
        assert len(server.envelopes) == 1


def test_a_server_without_tls_gets_no_password() -> None:
    with SmtpReceiver() as server:
        error = refusal(mailer(server.port, tls="starttls", username=LOGIN[0], password=LOGIN[1]))
        assert "STARTTLS extension not supported" in str(error)
        assert not error.retry


def test_an_expired_certificate_is_refused(certificates: Certificates) -> None:
    with SmtpReceiver(certificates.serving(certificates.expired)) as server:
        error = refusal(mailer(server.port, tls="starttls", ca_file=certificates.authority))
        assert "certificate has expired" in str(error)


@pytest.mark.parametrize(
    ("command", "reply", "words", "retry"),
    [
        ("RCPT", "550 no such user", "refuses the recipients (550 no such user)", False),
        ("RCPT", "450 come back later", "refuses the recipients (450 come back later)", True),
        ("DATA", "554 spam", "answered 554 spam", False),
        ("DATA", "452 disk full", "answered 452 disk full", True),
    ],
)
def test_what_the_server_says_is_told(command: str, reply: str, words: str, retry: bool) -> None:
    with SmtpReceiver() as server:
        server.refuses[command] = reply
        error = refusal(mailer(server.port))
        assert words in str(error)
        assert error.retry == retry


def test_a_server_that_hangs_trickles_or_is_away_is_left_when_the_time_is_up() -> None:
    for talk in (silence, trickle(b"220 "), trickle(b"220 hi\r\n250-")):
        with talking(talk) as port:
            for tls in ("none", "smtps"):
                error = refusal(mailer(port, timeout=0.3, tls=tls))
                assert f"{HOST}:{port} " in f"{error} ".replace(": no TLS", " no TLS")
    with talking(trickle(b"220 ")) as port:
        assert str(refusal(mailer(port, timeout=0.3))) == f"{HOST}:{port} did not finish within 0.3 s"
    with reserve() as free:
        port = free.getsockname()[1]
    error = refusal(mailer(port))
    assert str(error) == f"{HOST}:{port} cannot be reached: Connection refused"
    assert error.retry


def test_the_log_has_a_line_for_each_and_follows_rotation(tmp_path: Path) -> None:
    file = tmp_path / "alerts.log"
    log, alert = sink(type="log", file=file), an_alert(group_id='a "b"\n=c', resolved=True)
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


def test_the_log_may_be_json_and_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = sink(type="log", format="json")
    log.send(an_alert(), FIRING)
    log.close()
    assert json.loads(capsys.readouterr().err)["data"]["group_id"] == "payments"


def test_a_log_that_cannot_be_written_is_told() -> None:
    log = sink(type="log", file="/dev/full")
    with pytest.raises(SinkError, match=r"^/dev/full: No space left on device$"):
        log.send(an_alert(), FIRING)
    with pytest.raises(OSError, match="No space"):
        log.close()
