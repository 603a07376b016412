"""The sink of apprise's services: what they really send, to a proxy that answers for them, and to servers that fail."""

from __future__ import annotations

import email
import email.policy
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streaming_app.alerts.alert import CRITICAL, FIRING, INFO, RESOLVED, WARNING
from streaming_app.notify import apprise_program
from streaming_app.notify.apprise_program import fit, make_service
from streaming_app.notify.message import AlertGroup, notification_id
from streaming_app.notify.sink import Sink, SinkError, TextSink
from streaming_app.sandbox.process import reserve_port
from tests.alerts.examples import make_alert
from tests.long.hostile import HOSTILE, effective_characters
from tests.support import receivers
from tests.support.receivers import (
    HOST,
    OK,
    Certificates,
    HttpReceiver,
    Response,
    SmtpReceiver,
    hang,
    make_settings,
    send_slowly,
    serve_connections,
)

pytestmark = pytest.mark.slow  # each URL is judged by a process of its own
SECRET = "hunter2-hunter2"  # noqa: S105 - must never be printed
PAGERDUTY = f"pagerduty://{SECRET}@token"
OPSGENIE = "opsgenie://12345678-aaaa-bbbb/%23on-call?priority=p1"
CHATS = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
    "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "teams": "workflows://prod.westus.logic.azure.com:443/0123456789abcdef/signature",
    "telegram": "tgram://123456789:abcdefg_hijklmnop/12315544",
    "mattermost": "mmosts://chat.example.com/3ccdd113474722377935511fc85d3dd4",
    "rocket.chat": "rockets://3ccdd113474722377935511fc85d3dd4/x@chat.example.com",
}
UUID = "12345678-1234-1234-1234-123456789012"
PAGERS = [
    PAGERDUTY,
    OPSGENIE,
    "jira://12345678-aaaa-bbbb",
    f"splunk://route@{UUID}",
    f"victorops://route@{UUID}",
    "pagertree://int_ABCDEFGHIJ",
    "squadcast://0123456789abcdef0123456789abcdef01234567",
    "signl4://abcdefghij",
    "ilert://il1api0123456789",
    "incidentio://01GW2G3V0S59R238FAHPDS1R66/abcdef0123456789",
    "firehydrant://fhb-0123456789abcdef",
    f"goalerts://chat.example.com/{UUID}",
]
_HTML, _MARKDOWN = r"[<>]|&(?!(amp|lt|gt);)", r"(?<!\\)[*_`\[\]#]"
MARKUP_OF = {"slack": _HTML, "telegram": _HTML, "discord": _MARKDOWN, "rocket.chat": _MARKDOWN}
LIMITS = {"discord": 2000, "telegram": 4096, "mattermost": 4000, "rocket.chat": 1000}
ANSWERS = {"slack": b"ok", "opsgenie": b'{"requestId": "r1"}'}
MARKUP = "<!channel> @everyone <@U024> <@&12> *b* _i_ [pay](http://evil.example) `x` ``` <b>y</b> & #x"


def make_sink(url: str, **settings: Any) -> Sink:
    return receivers.make_sink(type="apprise", url=url, **settings)


def error_of(url: str, **settings: Any) -> SinkError:
    sink = make_sink(url, **settings)
    with pytest.raises(SinkError) as raised:
        sink.send(make_alert(), FIRING)
    assert "\n" not in str(raised.value)
    assert SECRET not in f"{raised.value} {raised.value!r}"
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    return raised.value


def generic(receiver: HttpReceiver) -> str:
    return f"{receiver.url.replace('http', 'json')}/{SECRET}"


@pytest.fixture
def services(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    """A proxy that answers for the public services, as the environment's."""
    with HttpReceiver(proxy_tls=certificates.server_context(certificates.server)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        proxy.default = Response(body=b'{"ok": true, "requestId": "r1"}')
        yield proxy


# --- What is sent ---


def test_a_service_gets_title_text_and_severity(receiver: HttpReceiver) -> None:
    sink = make_sink(generic(receiver), runbook_url="https://wiki#{rule}", page_url="https://page/{group}")
    for severity, event in ((CRITICAL, FIRING), (WARNING, FIRING), (INFO, FIRING), (CRITICAL, RESOLVED)):
        sink.send(make_alert(severity=severity, resolved=event == RESOLVED), event)
    assert [body["type"] for body in receiver.bodies] == ["failure", "warning", "info", "success"]
    fired, resolved = receiver.bodies[0], receiver.bodies[-1]
    assert receiver.requests[0].path == f"/{SECRET}"
    assert fired["title"] == "[FIRING] not-ready: payments (cluster prod)"
    assert fired["message"].startswith(
        "payments is NotReady: its source topic card-transactions does not exist\n\nseve"
    )
    assert fired["message"].endswith("runbook: https://wiki#not-ready\npage: https://page/payments")
    assert resolved["title"].startswith("[RESOLVED]")
    sink.send(make_alert(details={"members": ["m" * 100] * 99}), FIRING)
    assert len(receiver.bodies[-1]["message"]) == 4000


def test_an_incident_of_pagerduty_is_resolved_by_the_key_that_it_was_opened_with(
    services: HttpReceiver, certificates: Certificates
) -> None:
    sink = make_sink(f"{PAGERDUTY}/streams?dedup=mine", ca_file=certificates.authority)
    assert not isinstance(sink, TextSink)  # alerts are not grouped: each is an incident
    sink.send(make_alert(), FIRING)
    sink.send(make_alert(group_id="other"), FIRING)
    sink.send(make_alert(resolved=True), RESOLVED)
    assert {(one.host, one.path) for one in services.requests} == {("events.pagerduty.com", "/v2/enqueue")}
    fired, other, resolved = services.bodies
    assert (fired["event_action"], fired["routing_key"]) == ("trigger", SECRET)
    assert fired["payload"]["summary"].startswith("[FIRING] not-ready: payments (cluster prod)\npayments is NotReady")
    assert (fired["payload"]["severity"], fired["payload"]["source"]) == ("critical", "streams")
    assert "images" not in fired
    assert resolved == {"routing_key": SECRET, "event_action": "resolve", "dedup_key": fired["dedup_key"]}
    assert len({fired["dedup_key"], other["dedup_key"], "mine"}) == 3


def test_an_alert_of_opsgenie_is_closed_by_its_alias_also_after_a_restart(
    services: HttpReceiver, certificates: Certificates
) -> None:
    make_sink(OPSGENIE, ca_file=certificates.authority).send(make_alert(), FIRING)
    make_sink(OPSGENIE, ca_file=certificates.authority).send(make_alert(resolved=True), RESOLVED)
    fired, resolved = services.requests
    assert (fired.host, fired.path) == ("api.opsgenie.com", "/v2/alerts")
    assert (fired.json["message"], fired.json["priority"]) == ("[FIRING] not-ready: payments (cluster prod)", "P1")
    assert fired.json["responders"] == [{"type": "team", "name": "on-call"}]
    assert resolved.path == f"/v2/alerts/{fired.json['alias']}/close?identifierType=alias"
    assert resolved.headers["Authorization"] == "GenieKey 12345678-aaaa-bbbb"
    assert resolved.json["note"] == "[RESOLVED] not-ready: payments (cluster prod)"


@pytest.mark.slow
@pytest.mark.parametrize("url", PAGERS)
def test_every_pager_ends_an_incident_by_the_key_that_it_was_opened_with(
    services: HttpReceiver, certificates: Certificates, url: str
) -> None:
    services.default = Response(OK if UUID in url else 202, body=b'{"ok": true, "requestId": "r1"}')
    sink = make_sink(url, ca_file=certificates.authority)
    sink.send(make_alert(), FIRING)
    sink.send(make_alert(resolved=True), RESOLVED)
    fired, resolved = (f"{request.path} {request.body.decode()}" for request in services.requests)
    key = notification_id(make_alert(), FIRING)
    assert key in fired
    assert key in resolved
    assert re.search(r"(?i)resolve\b|resolved|/close|recovery|\"close\"|CLOSED", resolved.replace("[RESOLVED]", ""))


def test_a_closed_alert_that_opsgenie_does_not_accept_is_an_error(
    services: HttpReceiver, certificates: Certificates
) -> None:
    sink = make_sink(OPSGENIE, ca_file=certificates.authority)
    services.default = Response(403, body=b"{}")
    with pytest.raises(SinkError, match=r"^Opsgenie responded with status 403: check the credentials$"):
        sink.send(make_alert(resolved=True), RESOLVED)


def test_several_alerts_are_one_message_that_ends_with_how_many_more_there_are(
    services: HttpReceiver, certificates: Certificates
) -> None:
    alerts = tuple(make_alert(group_id=f"app-{n}", summary=f"app-{n} is [stuck] in *Reconciling*") for n in range(300))
    for url in (CHATS["discord"], CHATS["teams"]):
        sink = make_sink(url, ca_file=certificates.authority, page_url="https://page/{group}")
        assert isinstance(sink, TextSink)
        sink.send_group(AlertGroup(alerts, FIRING))
    assert len(services.requests) == 2
    for request in services.requests:
        shown = request.body.decode().replace("\\\\", "")
        assert "[FIRING] not-ready: 300 groups (cluster prod)" in shown
        named = shown.count("is [stuck] in *Reconciling* https://page/app-")
        assert 3 < named <= 20
        assert f"and {300 - named} more" in shown


def test_a_mail_is_plain_text() -> None:
    with SmtpReceiver() as server:
        url = f"mailto://{HOST}:{server.port}?mode=insecure&from=us@example.com&to=a@example.com,b@example.com"
        make_sink(url).send(make_alert(group_id="größer\r\nBcc: x@example.com"), FIRING)
        envelopes = server.envelopes
    assert sorted(envelope.rcpt_tos[0] for envelope in envelopes) == ["a@example.com", "b@example.com"]
    mail = email.message_from_bytes(envelopes[0].content, policy=email.policy.default)
    assert mail["Subject"] == "[FIRING] not-ready: größer Bcc: x@example.com (cluster prod)"
    assert mail["Bcc"] is None
    assert mail.get_content_type() == "text/plain"


# --- What clients chose ---


def texts_of(body: object) -> Iterator[str]:
    """Return every text in a JSON body."""
    if isinstance(body, str):
        yield body
    for part in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        yield from texts_of(part)


@pytest.mark.parametrize("chat", CHATS)
def test_chats_show_what_clients_chose_as_text(services: HttpReceiver, certificates: Certificates, chat: str) -> None:
    services.default = Response(body=ANSWERS.get(chat, b'{"ok": true, "success": true}'))
    sink = make_sink(CHATS[chat], ca_file=certificates.authority)
    for hostile in (MARKUP, HOSTILE, f"{MARKUP} " * 700):
        details = {"clients": [hostile], hostile: hostile}
        sink.send(make_alert(group_id=hostile, summary=f"{hostile} is down", details=details), FIRING)
    texts = ["\n".join(texts_of(request.json)) for request in services.requests]
    longest = max(len(text) for request in services.requests for text in texts_of(request.json))
    assert longest <= LIMITS.get(chat, 6000)
    assert ["is down" in text for text in texts] == [True, True, False]
    for text in texts:
        assert not re.search(MARKUP_OF.get(chat, r"$^"), text)
        assert not re.search(r"@(?=everyone|channel|here|all|U024|&12)|<[!@#]|\]\(http", text)
        assert effective_characters(text.replace("\r\n", "\n")) <= {"\u200b"}


@pytest.mark.filterwarnings("ignore:.imghdr. is deprecated")  # all of apprise loads here
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (CHATS["slack"], html.unescape),
        (CHATS["telegram"], lambda text: html.unescape(text).replace("\r\n", "\n")),
        (CHATS["discord"], lambda text: re.sub(r"\\(.)", r"\1", text)),
        (CHATS["teams"], lambda text: re.sub(r"\\(.)", r"\1", text)),
        (CHATS["mattermost"], str),
        ("pagerduty://key@token", str),
        (f"mailto://{HOST}?from=a@b.example&to=a@b.example&format=html", html.unescape),
    ],
)
def test_a_long_text_is_cut_to_what_the_service_takes_and_never_within_an_escape(url: str, shown: Any) -> None:
    service = make_service(url)
    form = service.resolve_format(apprise_program._FORMATS.get(apprise_program._schemas(service)[0], "text"))
    plain = "&<>*_[]`" * 1000
    for extra in range(9):  # one of these lengths would cut an escape
        service.body_maxlen = 900 + extra
        title, body = fit(service, form, "T" * 500, plain)
        sent = service.dialect_convert(body, form)
        assert 880 < len(sent) <= 900 + extra
        assert len(title) <= max(service.title_maxlen, 0)
        whole = plain if title else f"{'T' * 500}\n{plain}"
        assert whole.startswith(shown(sent).removesuffix("…"))


# --- What fails ---


@pytest.mark.parametrize(
    ("response", "line", "retry"),
    [
        (Response(500, body=SECRET.encode()), "JSON responded with status 500", True),
        (Response(429), "JSON responded with status 429", True),
        (Response(401), "JSON responded with status 401: check the credentials", False),
        (Response(404), "JSON responded with status 404: check the URL", False),
        (
            Response(302, {"Location": f"/{SECRET}"}),
            "JSON responded with status 302: redirects are not followed, check the URL",
            False,
        ),
        (Response(drop=True), "JSON: closed the connection without a response", True),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Response) else "",
)
def test_an_error_says_what_to_do_without_the_url(
    receiver: HttpReceiver, response: Response, line: str, retry: bool
) -> None:
    receiver.default = response
    error = error_of(f"{generic(receiver)}?retry=3&wait=0")
    assert (str(error), error.retry) == (line, retry)
    assert len(receiver.requests) == 1


def test_a_receiver_that_hangs_or_sends_slowly_is_given_up_at_the_deadline() -> None:
    for behaviour in (hang, send_slowly(b"HTTP/1.1 200 "), send_slowly(b"HTTP/1.1 200 OK\r\n\r\n")):
        with serve_connections(behaviour) as port:
            error = error_of(f"json://{HOST}:{port}/{SECRET}", timeout=2)
            assert str(error) == "json:// did not accept it within 2 s"
            assert error.retry
    children = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "apprise_program"], capture_output=True)  # noqa: PLW1510
    assert children.stdout == b""


def test_the_program_ends_itself_when_the_job_no_longer_can() -> None:
    with serve_connections(send_slowly(b"HTTP/1.1 200 ")) as port:
        request = {"path": sys.path, "seconds": 1, "url": f"json://{HOST}:{port}?rto=60"}
        request |= {"title": "a", "text": "b", "kind": "info", "close": None}
        program = subprocess.run(
            [sys.executable, "-I", apprise_program.__file__],
            input=json.dumps(request).encode(),
            check=False,
        )
    assert program.returncode == -14  # SIGALRM


def test_a_receiver_that_cannot_be_reached_is_in_the_error() -> None:
    with reserve_port() as closed:  # nothing listens
        port = closed.getsockname()[1]
        assert str(error_of(f"json://{HOST}:{port}/{SECRET}")) == "JSON: cannot be reached: Connection refused"
        error = error_of(f"mailto://{HOST}:{port}?mode=insecure&from=us@example.com&to=a@example.com")
    assert str(error) == "E-Mail: cannot be reached: Connection refused"
    assert str(error_of(f"json://nowhere.invalid/{SECRET}")) == "JSON: unknown host name"


def test_certificates_are_verified_by_the_given_authority_in_http_and_mail(certificates: Certificates) -> None:
    with HttpReceiver(certificates.server_context(certificates.server)) as receiver:
        url = generic(receiver)
        make_sink(url, ca_file=certificates.authority).send(make_alert(), FIRING)
        error = error_of(url)
    assert "its certificate is rejected: set ca_file" in str(error)
    assert not error.retry
    login = ("alice", SECRET)
    with SmtpReceiver(certificates.server_context(certificates.server), login) as server:
        url = f"mailtos://alice:{SECRET}@{HOST}:{server.port}?mode=starttls&from=us@example.com&to=a@example.com"
        make_sink(url, ca_file=certificates.authority).send(make_alert(), FIRING)
        assert len(server.envelopes) == 1
        wrong = error_of(url.replace(SECRET, "wrong-password"), ca_file=certificates.authority)
        assert str(wrong) == "E-Mail: rejects the login: check user and password in the URL"
        assert not wrong.retry
        assert "its certificate is rejected" in str(error_of(url))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "url or url_file is missing|url is missing"),
        ({"url": SECRET}, "url must be a URL of https://appriseit.com/services/"),
        ({"url": f"slak://{SECRET}/b/c"}, "url: apprise has no service slak://, see https://appriseit.com/services/"),
        ({"url": f"slack://{SECRET}"}, "url is not one for slack://: .*, see https://appriseit.com/services/slack/"),
        ({"url": f"pagerduty://{SECRET}"}, "url is not one for pagerduty://: .*, see https://.*pagerduty"),
        ({"url": f"json://h/{SECRET}", "url_file": "x"}, "set url or url_file, not both"),
        ({"url": f"json://h/{SECRET}", "ca_file": "/no/such"}, "ca_file /no/such: No such file"),
        ({"url": f"json://h/{SECRET}", "timeout": 0}, "timeout\n"),
    ],
)
def test_invalid_settings_are_an_error_without_secrets(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as raised:
        make_settings(type="apprise", **settings)
    assert SECRET not in str(raised.value)


def test_the_url_may_be_in_a_file_and_is_printed_nowhere(receiver: HttpReceiver, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.touch(0o600)
    file.write_text(generic(receiver))
    settings = make_settings(type="apprise", url_file=str(file))
    file.write_text(generic(receiver) + "/new")
    settings.sink().send(make_alert(), FIRING)
    assert [request.path for request in receiver.requests] == [f"/{SECRET}/new"]
    given = make_settings(type="apprise", url=generic(receiver))
    for one in (settings, given):
        assert SECRET not in f"{one!r} {one} {one.model_dump()} {one.model_dump_json()} {vars(one.sink())!r}"


def test_modules_of_the_user_do_not_get_in_the_way(tmp_path: Path) -> None:
    for name in ("apprise", "requests", "json", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the user')")
    code = "import sys; sys.path.remove(''); from streaming_app.notify.apprise import AppriseSettings as A; "
    code += "sys.path.insert(0, ''); print(A(type='apprise', url='json://localhost').sink().name)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == "apprise\n"


def test_only_a_notification_loads_apprise() -> None:
    code = "import sys, streaming_app.config.settings; print([m for m in ('apprise', 'requests') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
