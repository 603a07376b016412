"""The sinks that speak HTTP, against real servers that behave well and badly."""

from __future__ import annotations

import base64
import json
import shlex
import ssl
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from streaming_app.alerts.sinks.alertmanager import AlertmanagerSettings, AlertmanagerSink
from streaming_app.alerts.sinks.base import Sink, SinkError
from streaming_app.alerts.sinks.settings import SinkSettings
from streaming_app.alerts.sinks.webhook import WebhookSettings, WebhookSink, signature
from streaming_app.core.alert import FIRING, RESOLVED, WARNING, Delivery
from streaming_app.local.answering import reserve
from tests.alerts.examples import an_alert
from tests.alerts.receivers import Answer, Certificates, HttpReceiver, silence, talking, trickle

NOW = datetime(2026, 11, 21, 4, tzinfo=timezone.utc)
SECRET = "T0K3N-b64/hunter2"  # noqa: S105 - what must never be seen
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHORT = 0.3


def sink(**told: Any) -> Sink:
    made = TypeAdapter[Any](SinkSettings).validate_python(told).sink()
    assert isinstance(made, Sink)
    return made


def refusal(one: Sink) -> SinkError:
    with pytest.raises(SinkError) as refused:
        one.send(an_alert(one.name), FIRING)
    assert "\n" not in str(refused.value)
    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.__cause__}"
    assert refused.value.__context__ is None or refused.value.__suppress_context__
    return refused.value


def test_a_webhook_is_told_everything(receiver: HttpReceiver) -> None:
    told = {"url": f"{receiver.url}/{SECRET}", "runbook_url": "https://wiki/{rule}.html", "headers": {"X-Key": "k"}}
    hook, alert = sink(type="webhook", **told), an_alert(resolved=True)
    hook.send(alert, FIRING)
    hook.send(alert, RESOLVED)
    fired, resolved = receiver.requests
    assert fired.path == f"/{SECRET}"
    assert fired.headers["Content-Type"] == "application/json"
    assert fired.headers["X-Key"] == "k"
    assert fired.json == {
        "version": 1,
        "type": "alert.firing",
        "timestamp": "2026-11-21T03:17:05.765Z",
        "data": {
            "fingerprint": alert.fingerprint,
            "cluster": "prod",
            "group_id": "payments",
            "rule": "not-ready",
            "severity": "critical",
            "state": "resolved",
            "pending_since": "2026-11-21T03:12:05.765Z",
            "opened_at": "2026-11-21T03:17:05.765Z",
            "resolved_at": "2026-11-21T03:21:05.765Z",
            "summary": "payments is NotReady: its source topic card-transactions does not exist",
            "details": {"missing_topics": ["card-transactions"], "state": "NotReady"},
            "runbook_url": "https://wiki/not-ready.html",
        },
    }
    assert (resolved.json["type"], resolved.json["timestamp"]) == ("alert.resolved", "2026-11-21T03:21:05.765Z")


def test_every_try_has_the_same_id_and_every_notification_another(receiver: HttpReceiver) -> None:
    hook, alert = sink(type="webhook", url=receiver.url), an_alert("webhook", resolved=True)
    again = an_alert(deliveries=(Delivery("webhook", FIRING, repeat=1),))
    for one, event in ((alert, FIRING), (alert, FIRING), (alert, RESOLVED), (again, FIRING)):
        hook.send(one, event)
    first, retried, resolved, repeated = (request.headers["webhook-id"] for request in receiver.requests)
    assert first == retried
    assert len({first, resolved, repeated}) == 3


def test_a_signature_is_the_one_of_standard_webhooks_own_example() -> None:
    key = base64.b64decode(KEY.removeprefix("whsec_"))
    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_openssl_confirms_the_signatures_by_the_old_and_by_the_new_secret(
    receiver: HttpReceiver, tmp_path: Path
) -> None:
    old, new = KEY, "whsec_" + base64.b64encode(bytes(range(32))).decode()
    settings = WebhookSettings(type="webhook", url=receiver.url, secret=f"{new} {old}")  # type: ignore[arg-type]
    WebhookSink(settings, lambda: NOW).send(an_alert(group_id="größer.\n"), FIRING)
    [request] = receiver.requests
    assert request.headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    (tmp_path / "signed").write_bytes(signed)
    expected = []
    for secret in (new, old):
        key = base64.b64decode(secret.removeprefix("whsec_")).hex()
        command = f"openssl dgst -sha256 -mac HMAC -macopt hexkey:{key} -binary {shlex.quote(str(tmp_path / 'signed'))}"
        digest = subprocess.run(shlex.split(command), check=True, capture_output=True).stdout
        expected.append("v1," + base64.b64encode(digest).decode())
    assert request.headers["webhook-signature"].split() == expected


def test_secrets_are_read_anew_for_each_notification(receiver: HttpReceiver, tmp_path: Path) -> None:
    url, token = tmp_path / "url", tmp_path / "token"
    url.write_text(f"{receiver.url}/old\n")
    token.write_text("old\n")
    hook = sink(type="webhook", url_file=url, token_file=token)
    hook.send(an_alert(), FIRING)
    url.write_text(f"{receiver.url}/new")
    token.write_text("new")
    hook.send(an_alert(), FIRING)
    assert [request.path for request in receiver.requests] == ["/old", "/new"]
    assert [request.headers["Authorization"] for request in receiver.requests] == ["Bearer old", "Bearer new"]
    token.unlink()
    assert "No such file" in str(refusal(hook))


def test_slack_gets_a_line_for_the_phone_and_the_rest_below(receiver: HttpReceiver) -> None:
    alert = an_alert(group_id="a&b <script>", summary="<!channel> & co", severity=WARNING)
    sink(type="slack", url=f"{receiver.url}/services/{SECRET}").send(alert, FIRING)
    [body] = receiver.bodies
    assert body["text"] == ":warning: [FIRING] not-ready: a&amp;b &lt;script&gt; (cluster prod)"
    [attachment] = body["attachments"]
    assert attachment["fallback"] == "&lt;!channel&gt; &amp; co"
    assert attachment["text"].startswith("&lt;!channel&gt; &amp; co\n\nseverity: warning\nsince: 2026-11-21T03:12:05")


def test_slack_is_not_sent_more_than_anyone_reads(receiver: HttpReceiver) -> None:
    sink(type="slack", url=receiver.url).send(an_alert(details={"members": ["m" * 100] * 1000}), RESOLVED)
    assert 2000 < len(receiver.bodies[0]["attachments"][0]["text"]) <= 3000


@pytest.mark.parametrize(
    ("answer", "words", "retry", "after"),
    [
        (Answer(500, body=SECRET.encode()), "answered 500", True, None),
        (Answer(503, {"Retry-After": "7"}), "answered 503", True, 7),
        (Answer(429, {"Retry-After": "30"}), "answered 429", True, 30),
        (Answer(429, {"Retry-After": "soon"}), "answered 429", True, None),
        (Answer(408), "answered 408", True, None),
        (Answer(400, body=b"invalid_payload"), "answered 400 (invalid_payload)", False, None),
        (Answer(404, body=f"no /services/{SECRET}".encode()), "answered 404: check the URL", False, None),
        (Answer(403, body=b"\xff"), "answered 403: check the credentials", False, None),
        (Answer(302, {"Location": f"/{SECRET}"}), "answered 302 (ok): redirects are not followed", False, None),
        (Answer(drop=True), "closed the connection without an answer", True, None),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else "",
)
def test_every_refusal_is_told_in_a_line_without_the_url(
    receiver: HttpReceiver, answer: Answer, words: str, retry: bool, after: float | None
) -> None:
    receiver.usual = answer
    error = refusal(sink(type="slack", url=f"{receiver.url}/services/{SECRET}"))
    assert str(error).startswith(f"{receiver.url} {words}")
    assert (error.retry, error.after_seconds) == (retry, after)
    assert len(receiver.requests) == 1


def test_a_receiver_that_hangs_or_trickles_is_left_when_the_time_is_up(receiver: HttpReceiver) -> None:
    receiver.usual = Answer(hold=True)
    assert "did not answer within 0.3 s" in str(refusal(sink(type="slack", url=receiver.url, timeout=SHORT)))
    for talk in (silence, trickle(b"HTTP/1.1 500 "), trickle(b"HTTP/1.1 500 No\r\nX: ")):
        with talking(talk) as port:
            error = refusal(sink(type="slack", url=f"http://127.0.0.1:{port}/{SECRET}", timeout=SHORT))
            assert str(error) == f"http://127.0.0.1:{port} did not answer within 0.3 s"
            assert error.retry
            secure = refusal(sink(type="slack", url=f"https://127.0.0.1:{port}/{SECRET}", timeout=SHORT))
            assert "did not answer" in str(secure) or "no TLS connection" in str(secure)


def test_a_success_is_one_even_if_the_answer_never_ends() -> None:
    with talking(trickle(b"HTTP/1.1 200 OK\r\n\r\n")) as port:
        sink(type="slack", url=f"http://127.0.0.1:{port}", timeout=5).send(an_alert(), FIRING)


def test_who_cannot_be_reached_is_told() -> None:
    with reserve() as free:
        port = free.getsockname()[1]
    error = refusal(sink(type="slack", url=f"http://127.0.0.1:{port}/{SECRET}"))
    assert str(error) == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
    error = refusal(sink(type="slack", url=f"http://nowhere.invalid/{SECRET}"))
    assert str(error) == "http://nowhere.invalid: its host name is not known"


def test_certificates_are_checked(certificates: Certificates) -> None:
    told = {"type": "webhook", "ca_file": certificates.authority}
    with HttpReceiver(certificates.serving(certificates.server)) as good:
        sink(**told, url=good.url).send(an_alert(), FIRING)
        assert len(good.requests) == 1
        error = refusal(sink(type="webhook", url=f"{good.url}/{SECRET}"))
        assert "its certificate is refused" in str(error)
        assert "ca_file" in str(error)
        assert not error.retry
        assert len(good.requests) == 1
        error = refusal(sink(**told, url=good.url.replace("127.0.0.1", "localhost")))
        assert "Hostname mismatch" in str(error)
    with HttpReceiver(certificates.serving(certificates.expired)) as expired:
        assert "its certificate is refused: certificate has expired" in str(refusal(sink(**told, url=expired.url)))
    with HttpReceiver() as plain:
        assert "no TLS connection" in str(refusal(sink(**told, url=plain.url.replace("http:", "https:"))))


def test_a_receiver_may_ask_for_a_certificate_of_ours(certificates: Certificates) -> None:
    asking = certificates.serving(certificates.server)
    asking.load_verify_locations(certificates.authority)
    asking.verify_mode = ssl.CERT_REQUIRED
    told = {"type": "webhook", "ca_file": certificates.authority, "timeout": 5}
    with HttpReceiver(asking) as receiver:
        sink(**told, url=receiver.url, cert_file=certificates.client).send(an_alert(), FIRING)
        refusal(sink(**told, url=receiver.url))
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("login", "header"),
    [
        ({}, None),
        ({"token": SECRET}, f"Bearer {SECRET}"),
        ({"username": "jürgen", "password": "p:w"}, "Basic " + base64.b64encode("jürgen:p:w".encode()).decode()),
    ],
)
def test_alertmanager_gets_the_login(receiver: HttpReceiver, login: dict[str, str], header: str | None) -> None:
    sink(type="alertmanager", urls=[f"{receiver.url}/prefix/"], **login).send(an_alert(), FIRING)
    [request] = receiver.requests
    assert request.path == "/prefix/api/v2/alerts"
    assert request.headers.get("Authorization") == header


def test_alertmanager_is_told_labels_annotations_and_an_end_ahead(receiver: HttpReceiver) -> None:
    settings = AlertmanagerSettings(
        type="alertmanager",
        urls=(receiver.url,),
        resend="30s",  # type: ignore[arg-type]
        labels={"team": "payments", "severity": "no"},
        runbook_url="https://wiki#{rule}",
        generator_url="https://us",
    )
    manager, alert = AlertmanagerSink(settings, lambda: NOW), an_alert(resolved=True)
    manager.send(alert, FIRING)
    manager.send(alert, RESOLVED)
    manager.resend([an_alert(group_id=str(number)) for number in range(201)])
    [fired], [resolved], *again = receiver.bodies
    assert fired == {
        "labels": {
            "alertname": "not-ready",
            "severity": "critical",
            "cluster": "prod",
            "group": "payments",
            "team": "payments",
        },
        "annotations": {
            "summary": alert.summary,
            "details": "missing_topics: card-transactions\nstate: NotReady",
            "runbook_url": "https://wiki#not-ready",
        },
        "startsAt": "2026-11-21T03:17:05.765Z",
        "endsAt": "2026-11-21T04:02:00.000Z",
        "generatorURL": "https://us",
    }
    assert resolved == {**fired, "endsAt": "2026-11-21T03:21:05.765Z"}
    assert [len(some) for some in again] == [200, 1]


def test_one_of_two_alertmanagers_is_enough_and_the_other_is_left_alone_for_a_while(receiver: HttpReceiver) -> None:
    with HttpReceiver() as other:
        other.usual = Answer(hold=True)
        both = sink(type="alertmanager", urls=[other.url, receiver.url], timeout=SHORT)
        for _ in range(3):
            both.send(an_alert(), FIRING)
        assert (len(other.requests), len(receiver.requests)) == (1, 3)
        receiver.usual = Answer(400, body=json.dumps("bad label").encode())
        error = refusal(both)
        assert str(error) == f'{receiver.url} answered 400 ("bad label"); {other.url} did not answer within 0.3 s'
        assert error.retry


def test_no_thread_or_socket_is_left(receiver: HttpReceiver) -> None:
    files = Path("/proc/self/fd")
    hook = sink(type="webhook", url=receiver.url)
    hook.send(an_alert(), FIRING)
    before = len(list(files.iterdir()))
    for _ in range(20):
        hook.send(an_alert(), FIRING)
    deadline = time.monotonic() + 5
    while len(list(files.iterdir())) > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(list(files.iterdir())) <= before
