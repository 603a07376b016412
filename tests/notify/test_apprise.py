"""The sink of apprise's services: what they really send, to a proxy that answers for them, and to servers that fail."""

import email
import email.policy
import html
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from streaming_app.alerts.alert import CRITICAL, FIRING, INFO, RESOLVED, WARNING
from streaming_app.notify import apprise_program
from streaming_app.notify.apprise_program import fit, make_service
from streaming_app.notify.message import notification_id
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.sandbox.child_process import reserve_port
from tests.alerts.examples import make_alert
from tests.long.hostile import HOSTILE, effective_characters
from tests.notify import sending
from tests.support import receivers
from tests.support.receivers import (
    HOST,
    OK,
    Certificates,
    HttpReceiver,
    Response,
    SmtpReceiver,
    hang,
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
    return sending.error_of(make_sink(url, **settings), SECRET)


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
    url = f"{receiver.url.replace('http', 'json')}/{SECRET}"
    sink = make_sink(url, runbook_url="https://wiki#{rule}", page_url="https://page/{group}")
    for severity, event in ((CRITICAL, FIRING), (WARNING, FIRING), (INFO, FIRING), (CRITICAL, RESOLVED)):
        sink.send([make_alert(severity=severity, resolved=event == RESOLVED)], event)
    assert [body["type"] for body in receiver.bodies] == ["failure", "warning", "info", "success"]
    fired, resolved = receiver.bodies[0], receiver.bodies[-1]
    assert receiver.requests[0].path == f"/{SECRET}"
    assert fired["title"] == "[FIRING] not-ready: payments (cluster prod)"
    assert fired["message"].startswith(
        "payments is NotReady: its source topic card-transactions does not exist (since 2026-11-21 03:12:05Z)\n"
        "Next: streams-groups alerts --cluster prod, and the runbook of not-ready\n\nseve"
    )
    assert fired["message"].endswith("runbook: https://wiki#not-ready\npage: https://page/payments")
    assert resolved["title"].startswith("[RESOLVED]")
    sink.send([make_alert(evidence={"members": ["m" * 100] * 99})], FIRING)
    assert len(receiver.bodies[-1]["message"]) == 4000


@pytest.mark.parametrize("url", PAGERS)
def test_every_pager_ends_an_incident_by_the_key_that_it_was_opened_with(
    services: HttpReceiver, certificates: Certificates, url: str
) -> None:
    services.default = Response(OK if UUID in url else 202, body=b'{"ok": true, "requestId": "r1"}')
    sink = make_sink(url, ca_file=certificates.authority)
    for event in (FIRING, RESOLVED):  # each by a process of its own
        sink.send([make_alert(resolved=event == RESOLVED)], event)
    fired, resolved = (f"{request.path} {request.body.decode()}" for request in services.requests)
    key = notification_id(make_alert(), FIRING)
    assert key in fired
    assert key in resolved
    assert re.search(r"(?i)resolve\b|resolved|/close|recovery|\"close\"|CLOSED", resolved.replace("[RESOLVED]", ""))


def test_several_alerts_are_one_message_that_ends_with_how_many_more_there_are(
    services: HttpReceiver, certificates: Certificates
) -> None:
    alerts = tuple(make_alert(group_id=f"app-{n}", summary=f"app-{n} is [stuck] in *Reconciling*") for n in range(300))
    for url in (CHATS["discord"], CHATS["teams"]):
        links = {"page_url": "https://page/{group}", "runbook_url": "https://wiki#{rule}"}
        make_sink(url, ca_file=certificates.authority, **links).send(alerts, FIRING)
    assert len(services.requests) == 2
    for request in services.requests:
        shown = request.body.decode().replace("\\\\", "")
        assert "[FIRING] not-ready: 300 groups (cluster prod)" in shown
        named = shown.count("is [stuck] in *Reconciling* (since 2026-11-21 03:12:05Z) https://page/app-")
        assert 3 < named <= 20
        assert f"and {300 - named} more" in shown
        assert "runbook: https://wiki" in shown


def test_a_mail_is_plain_text() -> None:
    with SmtpReceiver() as server:
        url = f"mailto://{HOST}:{server.port}?mode=insecure&from=us@example.com&to=a@example.com,b@example.com"
        make_sink(url).send([make_alert(group_id="größer\r\nBcc: x@example.com")], FIRING)
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
        sink.send([make_alert(group_id=hostile, summary=f"{hostile} is down", evidence=details)], FIRING)
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
        (CHATS["mattermost"], str),
        ("pagerduty://key@token", str),
        (f"mailto://{HOST}?from=a@b.example&to=a@b.example&format=html", html.unescape),
    ],
)
def test_a_long_text_is_cut_to_what_the_service_takes_and_never_within_an_escape(url: str, shown: Any) -> None:
    service = make_service(url)
    form = service.resolve_format(apprise_program._FORMATS.get(apprise_program.schema_of(service), "text"))
    plain = "&<>*_[]`" * 1000
    for extra in range(9):  # one of these lengths would cut an escape
        service.body_maxlen = 900 + extra
        title, body = fit(service, form, "T" * 500, [plain * 2, plain])
        sent = service.dialect_convert(body, form)
        assert 880 < len(sent) <= 900 + extra
        assert len(title) <= max(service.title_maxlen, 0)
        whole = plain if title else f"{'T' * 500}\n{plain}"
        assert whole.startswith(shown(sent).removesuffix("…"))


# --- The program ---


def test_a_receiver_that_hangs_or_sends_slowly_is_given_up_at_the_deadline() -> None:
    for behaviour in (hang, send_slowly(b"HTTP/1.1 200 "), send_slowly(b"HTTP/1.1 200 OK\r\n\r\n")):
        with serve_connections(behaviour) as port:
            error = error_of(f"json://{HOST}:{port}/{SECRET}", timeout=2)
            assert str(error) == "json:// did not accept it within 2 s"
            assert error.retry
    children = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "apprise_program"], capture_output=True)  # noqa: PLW1510
    assert children.stdout == b""


def test_a_mail_server_is_verified_and_its_errors_say_what_to_do(certificates: Certificates) -> None:
    login = ("alice", SECRET)
    with SmtpReceiver(certificates.server_context(certificates.server), login) as server:
        url = f"mailtos://alice:{SECRET}@{HOST}:{server.port}?mode=starttls&from=us@example.com&to=a@example.com"
        make_sink(url, ca_file=certificates.authority).send([make_alert()], FIRING)
        assert len(server.envelopes) == 1
        wrong = error_of(url.replace(SECRET, "wrong-password"), ca_file=certificates.authority)
        assert str(wrong) == "E-Mail: rejects the login: check user and password in the URL"
        assert not wrong.retry
        assert "its certificate is rejected" in str(error_of(url))
    with reserve_port() as closed:  # nothing listens
        port = closed.getsockname()[1]
        error = error_of(f"mailto://{HOST}:{port}?mode=insecure&from=us@example.com&to=a@example.com")
    assert str(error) == "E-Mail: cannot be reached: Connection refused"
