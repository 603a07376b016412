"""The sinks that use HTTP, with real servers that respond correctly or not."""

import base64
import json
import shlex
import ssl
import subprocess
import time
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, RESOLVED, Delivery
from streaming_app.notify import alertmanager
from streaming_app.notify.alertmanager import AlertmanagerSink
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.sandbox.child_process import reserve_port
from tests.alerts.examples import make_alert
from tests.notify import sending
from tests.support.receivers import (
    HOST,
    Certificates,
    HttpReceiver,
    Response,
    hang,
    make_sink,
    send_slowly,
    serve_connections,
)

NOW = datetime(2026, 11, 21, 4, tzinfo=timezone.utc)
SECRET = "T0K3N-b64/hunter2"  # noqa: S105 - must never be printed
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHORT = 0.3


@pytest.fixture(params=["webhook", pytest.param("apprise", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    """How it is sent: by this process, or by a process that apprise is in."""
    return str(request.param)


def sink_to(kind: str, url: str, **settings: Any) -> Sink:
    of_kind = url if kind == "webhook" else url.replace("http", "json", 1) + ("" if "?" in url else "?retry=3&wait=0")
    return make_sink(type=kind, url=of_kind, **settings)


error_of = partial(sending.error_of, secret=SECRET)


def test_a_webhook_gets_all_fields(receiver: HttpReceiver) -> None:
    links = {"runbook_url": "https://wiki/{rule}.html", "page_url": "https://page/{cluster}/{group}?{rule}"}
    settings = {"url": f"{receiver.url}/{SECRET}/größe?a=%20|", **links, "headers": {"X-Key": "k"}}
    hook, alert = make_sink(type="webhook", **settings), make_alert(resolved=True)
    hook.send([alert], FIRING)
    hook.send([alert], RESOLVED)
    fired, resolved = receiver.requests
    assert fired.path == f"/{SECRET}/gr%C3%B6%C3%9Fe?a=%20|"
    assert fired.headers["Host"] == receiver.url.removeprefix("http://")
    assert fired.headers["Content-Type"] == "application/json"
    assert fired.headers["X-Key"] == "k"
    assert fired.json == {
        "version": 1,
        "type": "alert.firing",
        "timestamp": "2026-11-21T03:17:05.765Z",
        "data": {
            "fingerprint": alert.alert_id,
            "cluster": "prod",
            "group_id": "payments",
            "rule": "not-ready",
            "severity": "critical",
            "state": "resolved",
            "pending_since": "2026-11-21T03:12:05.765Z",
            "opened_at": "2026-11-21T03:17:05.765Z",
            "resolved_at": "2026-11-21T03:21:05.765Z",
            "summary": "payments is NotReady: its source topic card-transactions does not exist",
            "next": "Next: streams-groups alerts --cluster prod, and the runbook of not-ready",
            "details": {"missing_topics": ["card-transactions"], "state": "NotReady"},
            "labels": {},
            "cause": None,
            "ended_by": "evidence",
            "runbook_url": "https://wiki/not-ready.html",
            "page_url": "https://page/prod/payments?not-ready",
        },
    }
    assert (resolved.json["type"], resolved.json["timestamp"]) == ("alert.resolved", "2026-11-21T03:21:05.765Z")


def test_every_attempt_has_the_same_id_and_every_notification_a_different_one(receiver: HttpReceiver) -> None:
    hook, alert = make_sink(type="webhook", url=receiver.url), make_alert("webhook", resolved=True)
    repetition = make_alert(deliveries=(Delivery("webhook", FIRING, repeat=1),))
    for sent, event in ((alert, FIRING), (alert, FIRING), (alert, RESOLVED), (repetition, FIRING)):
        hook.send([sent], event)
    first, retried, resolved, repeated = (request.headers["webhook-id"] for request in receiver.requests)
    assert first == retried
    assert len({first, resolved, repeated}) == 3


def test_openssl_confirms_the_signatures_with_the_old_and_the_new_secret(
    receiver: HttpReceiver, tmp_path: Path
) -> None:
    old, new = KEY, "whsec_" + base64.b64encode(bytes(range(32))).decode()
    hook = make_sink(type="webhook", url=receiver.url, secret=f"{new} {old}")
    hook.send([make_alert(group_id="größer.\n")], FIRING)
    [request] = receiver.requests
    assert 0 <= time.time() - int(request.headers["webhook-timestamp"]) < 600
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    (tmp_path / "signed").write_bytes(signed)
    expected = []
    for secret in (new, old):
        key = base64.b64decode(secret.removeprefix("whsec_")).hex()
        command = f"openssl dgst -sha256 -mac HMAC -macopt hexkey:{key} -binary {shlex.quote(str(tmp_path / 'signed'))}"
        digest = subprocess.run(shlex.split(command), check=True, capture_output=True).stdout
        expected.append("v1," + base64.b64encode(digest).decode())
    assert request.headers["webhook-signature"].split() == expected


def test_secrets_are_read_again_for_each_notification(receiver: HttpReceiver, tmp_path: Path) -> None:
    url, token = tmp_path / "url", tmp_path / "token"
    url.touch(0o600)
    url.write_text(f"{receiver.url}/old\n")
    token.touch(0o600)
    token.write_text("old\n")
    hook = make_sink(type="webhook", url_file=url, token_file=token)
    hook.send([make_alert()], FIRING)
    url.write_text(f"{receiver.url}/new")
    token.write_text("new")
    hook.send([make_alert()], FIRING)
    assert [request.path for request in receiver.requests] == ["/old", "/new"]
    assert [request.headers["Authorization"] for request in receiver.requests] == ["Bearer old", "Bearer new"]
    token.unlink()
    assert "No such file" in str(error_of(hook))


@pytest.mark.parametrize(
    ("response", "words", "retry"),
    [
        (Response(500, body=SECRET.encode()), "responded with status 500", True),
        (Response(400, body=b"invalid_payload"), "responded with status 400", False),
        (Response(404, body=f"no /services/{SECRET}".encode()), "responded with status 404: check the URL", False),
        (Response(302, {"Location": f"/{SECRET}"}), "responded with status 302: redirects are not followed", False),
        (Response(drop=True), "closed the connection early", True),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Response) else "",
)
def test_every_error_is_one_line_without_the_url(
    receiver: HttpReceiver, kind: str, response: Response, words: str, retry: bool
) -> None:
    receiver.default = response
    error = error_of(sink_to(kind, f"{receiver.url}/services/{SECRET}"))
    assert words in str(error)
    assert str(error).startswith(receiver.url if kind == "webhook" else "JSON")
    assert error.retry == retry
    assert len(receiver.requests) == 1


@pytest.mark.slow
def test_a_receiver_that_hangs_or_sends_slowly_is_a_timeout(receiver: HttpReceiver) -> None:
    receiver.default = Response(hold=True)
    assert "did not respond within 0.3 s" in str(error_of(make_sink(type="webhook", url=receiver.url, timeout=SHORT)))
    for behaviour in (hang, send_slowly(b"HTTP/1.1 500 "), send_slowly(b"HTTP/1.1 500 No\r\nX: ")):
        with serve_connections(behaviour) as port:
            error = error_of(make_sink(type="webhook", url=f"http://127.0.0.1:{port}/{SECRET}", timeout=SHORT))
            assert str(error) == f"http://127.0.0.1:{port} did not respond within 0.3 s"
            assert error.retry
            secure = error_of(make_sink(type="webhook", url=f"https://127.0.0.1:{port}/{SECRET}", timeout=SHORT))
            assert "did not respond" in str(secure) or "no TLS connection" in str(secure)


def test_a_receiver_that_cannot_be_reached_is_in_the_error(kind: str) -> None:
    with reserve_port() as closed:  # nothing listens
        error = error_of(sink_to(kind, f"http://127.0.0.1:{closed.getsockname()[1]}/{SECRET}"))
    assert "cannot be reached: Connection refused" in str(error)
    assert ": unknown host name" in str(error_of(sink_to(kind, f"http://nowhere.invalid/{SECRET}")))


def test_certificates_are_verified_by_the_given_authority(certificates: Certificates, kind: str) -> None:
    with HttpReceiver(certificates.server_context(certificates.server)) as good:
        sink_to(kind, good.url, ca_file=certificates.authority).send([make_alert()], FIRING)
        error = error_of(sink_to(kind, f"{good.url}/{SECRET}"))
        assert "its certificate is rejected: unable to get local issuer certificate; " in str(error)
        assert "ca_file" in str(error)
        assert not error.retry
        assert len(good.requests) == 1


def test_a_receiver_can_require_a_client_certificate(certificates: Certificates) -> None:
    context = certificates.server_context(certificates.server)
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    settings = {"type": "webhook", "ca_file": certificates.authority}
    with HttpReceiver(context) as receiver:
        make_sink(**settings, url=receiver.url, cert_file=certificates.client).send([make_alert()], FIRING)
        error_of(make_sink(**settings, url=receiver.url))
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("credentials", "header"),
    [
        ({}, None),
        ({"token": SECRET}, f"Bearer {SECRET}"),
        ({"username": "jürgen", "password": "p:w"}, "Basic " + base64.b64encode("jürgen:p:w".encode()).decode()),
    ],
)
def test_alertmanager_gets_the_credentials(
    receiver: HttpReceiver, credentials: dict[str, str], header: str | None
) -> None:
    make_sink(type="alertmanager", urls=[f"{receiver.url}/prefix/"], **credentials).send([make_alert()], FIRING)
    [request] = receiver.requests
    assert request.path == "/prefix/api/v2/alerts"
    assert request.headers.get("Authorization") == header


def test_alertmanager_gets_labels_annotations_and_an_end_in_the_future(
    receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alertmanager, "_now", lambda: NOW)
    manager = AlertmanagerSink(
        type="alertmanager", urls=(receiver.url,), runbook_url="https://wiki#{rule}", page_url="https://us/{group}"
    )
    alert = replace(make_alert(resolved=True), labels={"team": "payments", "severity": "no"})
    manager.send([alert], FIRING)
    manager.send([alert], RESOLVED)
    manager.send([make_alert(group_id=str(number)) for number in range(201)], FIRING)
    [fired], [resolved], *resent = receiver.bodies
    assert fired == {
        "labels": {
            "alertname": "not-ready",
            "severity": "critical",
            "cluster": "prod",
            "group": "payments",
            "team": "payments",
        },
        "annotations": {
            "summary": f"{alert.summary} (since 2026-11-21 03:12:05Z)",
            "description": "Next: streams-groups alerts --cluster prod, and the runbook of not-ready",
            "details": "missing_topics: card-transactions\nstate: NotReady",
            "runbook_url": "https://wiki#not-ready",
            "page_url": "https://us/payments",
        },
        "startsAt": "2026-11-21T03:17:05.765Z",
        "endsAt": "2026-11-28T04:00:00.000Z",
        "generatorURL": "https://us/payments",
    }
    over = {
        "summary": "payments: not-ready is over since 2026-11-21 03:21:05Z, after 4m",
        "description": "Its condition does not hold any more. Nothing is to be done.",
    }
    ends = {"endsAt": "2026-11-21T03:21:05.765Z", "annotations": fired["annotations"] | over}
    assert resolved == {**fired, **ends}
    assert [len(batch) for batch in resent] == [200, 1]


def test_one_of_two_alertmanagers_is_enough_and_the_failing_one_is_skipped_for_a_while(receiver: HttpReceiver) -> None:
    with HttpReceiver() as other:
        other.default = Response(drop=True)
        both = make_sink(type="alertmanager", urls=[other.url, receiver.url])
        for _ in range(3):
            both.send([make_alert()], FIRING)
        assert (len(other.requests), len(receiver.requests)) == (1, 3)
        receiver.default = Response(400, body=json.dumps("bad label").encode())
        error = error_of(both)
        assert str(error) == (
            f'{receiver.url} responded with status 400 ("bad label"); {other.url}: closed the connection early'
        )
        assert error.retry


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_is_used_as_the_environment_says(
    scheme: str, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
    with HttpReceiver(proxy_tls=certificates.server_context(certificates.server)) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.url.replace("://", "://user:p%40ss@"))
        settings = {"ca_file": certificates.authority} if scheme == "https" else {}
        hook = make_sink(type="webhook", url=f"{scheme}://{HOST}:1/hook?a=1", **settings)
        hook.send([make_alert(hook.name)], FIRING)
        (request,) = proxy.requests
        assert request.path == ("/hook?a=1" if scheme == "https" else f"http://{HOST}:1/hook?a=1")
        if scheme == "http":
            assert request.headers["Proxy-Authorization"] == "Basic " + base64.b64encode(b"user:p@ss").decode()
        monkeypatch.setenv("no_proxy", HOST)
        with pytest.raises(SinkError, match="cannot be reached"):
            hook.send([make_alert(hook.name)], FIRING)
