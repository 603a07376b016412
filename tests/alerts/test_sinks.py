"""What is told to each kind of sink before it sends anything, and how wrong settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from streaming_app.alerts.sinks.base import Sink
from streaming_app.alerts.sinks.settings import SinkList, SinkSettings
from streaming_app.alerts.sinks.wording import message, one_line, title
from streaming_app.core.alert import FIRING, RESOLVED
from tests.alerts.examples import an_alert
from tests.alerts.receivers import Certificates

SECRET = "hunter2-hunter2"  # noqa: S105 - what must never be seen
MAIL = {"type": "email", "host": "mx", "from": "a@b.example", "to": ["c@d.example"]}


SINK = TypeAdapter[Any](SinkSettings, config=ConfigDict(hide_input_in_errors=True))


def sink(**told: Any) -> Sink:
    made = SINK.validate_python(told).sink()
    assert isinstance(made, Sink)
    return made


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"type": "slak"}, "does not match any of the expected tags: 'alertmanager'"),
        ({"type": "slack"}, "url or url_file is missing"),
        ({"type": "slack", "url": f"hooks/{SECRET}"}, "url must be a URL of the form https://"),
        ({"type": "slack", "url": f"https://u:{SECRET}@hooks"}, "must not hold a user and password"),
        ({"type": "slack", "url": f"https://hooks/{SECRET}", "url_file": "x"}, "give url or url_file, not both"),
        ({"type": "slack", "url_file": "/no/such"}, "url_file /no/such: No such file"),
        ({"type": "slack", "url": "https://hooks", "colour": 1}, "colour\n +Extra inputs"),
        ({"type": "slack", "url": "https://hooks", "timeout": 0}, "timeout\n"),
        ({"type": "slack", "url": "https://hooks", "name": "a b"}, "name\n"),
        ({"type": "slack", "url": "https://hooks", "ca_file": "/no/such"}, "ca_file /no/such: No such file"),
        ({"type": "slack", "url": "https://hooks", "ca_file": __file__}, "ca_file .*: .*no certificate"),
        ({"type": "slack", "url": "https://hooks", "cert_file": __file__}, "cert_file .*: "),
        ({"type": "slack", "url": "https://hooks", "key_file": __file__}, "key_file needs cert_file"),
        ({"type": "alertmanager"}, "urls\n +Field required"),
        ({"type": "alertmanager", "urls": []}, "urls\n"),
        ({"type": "alertmanager", "urls": [f"http://u:{SECRET}@am:9093"]}, "give username and password_file"),
        ({"type": "alertmanager", "urls": ["http://am"], "labels": {"a-b": "x"}}, "labels"),
        ({"type": "alertmanager", "urls": ["http://am"], "username": "u"}, "username and password go together"),
        (
            {"type": "alertmanager", "urls": ["http://am"], "username": "u", "token": SECRET},
            "username and password, or a token",
        ),
        ({"type": "alertmanager", "urls": ["http://am"], "token": f"{SECRET}\n"}, "token must be printable"),
        ({"type": "webhook", "url": "https://hook", "secret": SECRET}, "secret must be whsec_ and base64"),
        ({"type": "webhook", "url": "https://hook", "secret": "whsec_c2hvcnQ="}, "of 24 to 64 bytes"),
        ({"type": "webhook", "url": "https://hook", "headers": {"Webhook-Id": SECRET}}, "'Webhook-Id' cannot be set"),
        ({"type": "webhook", "url": "https://hook", "headers": {"X-Key": f"{SECRET}\r\nX: y"}}, "value of X-Key"),
        ({**MAIL, "to": []}, "to\n"),
        ({**MAIL, "to": ["nobody"]}, "must be an address"),
        ({**MAIL, "from": "a@b.example\nBcc: all@b.example"}, "must be an address"),
        ({**MAIL, "username": "u"}, "username and password go together"),
        ({**MAIL, "username": "u", "password": ""}, "password is empty"),
        ({"type": "slack", "url_file": "/dev/null"}, "url_file /dev/null is empty"),
        ({**MAIL, "username": "u", "password": SECRET, "tls": "none"}, "not sent without TLS"),
        ({"type": "log", "file": "/no/such/file"}, "/no/such is not a directory"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_that_hold_no_secret(told: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        sink(**told)
    assert SECRET not in str(refused.value)


def test_a_sink_is_named_by_its_type_and_two_of_a_type_need_names() -> None:
    sinks = TypeAdapter(SinkList)
    log = {"type": "log"}
    assert [one.name for one in sinks.validate_python([log, {**log, "name": "audit"}])] == ["log", "audit"]
    with pytest.raises(ValidationError, match="two sinks have the name log: give each"):
        sinks.validate_python([log, log])


def test_settings_show_no_secret(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    told = {"type": "webhook", "url": f"https://hook/{SECRET}", "headers": {"X-Key": SECRET}, "token_file": str(token)}
    settings = SINK.validate_python(told)
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert SECRET not in repr(vars(settings.sink()))


def test_an_encrypted_key_is_refused_and_not_asked_for_at_the_terminal(certificates: Certificates) -> None:
    certificates._openssl("pkey", "-in", "client.key", "-aes-256-cbc", "-passout", "pass:x", "-out", "encrypted")
    key = certificates.authority.with_name("encrypted")
    with pytest.raises(ValidationError, match=r"cert_file .*, key_file"):
        sink(type="slack", url="https://hooks", cert_file=certificates.client, key_file=key)


def test_a_message_says_what_matters_first() -> None:
    alert = an_alert(resolved=True)
    assert title(alert, FIRING) == "[FIRING] not-ready: payments (cluster prod)"
    assert message(alert, RESOLVED, "https://wiki/not-ready").splitlines() == [
        "payments is NotReady: its source topic card-transactions does not exist",
        "",
        "severity: critical",
        "since: 2026-11-21T03:12:05.765Z",
        "fired: 2026-11-21T03:17:05.765Z",
        "resolved: 2026-11-21T03:21:05.765Z",
        "missing_topics: card-transactions",
        "state: NotReady",
        "runbook: https://wiki/not-ready",
    ]


def test_an_alert_about_the_job_names_the_cluster() -> None:
    assert title(an_alert(group_id=None, rule="job-behind"), FIRING) == "[FIRING] job-behind: cluster prod"


@pytest.mark.parametrize("hostile", ["a\r\nBcc: x@y", "a\u2028b", "a\x00b", "a\ud800b", "a\tb"])
def test_what_is_shown_stays_on_one_line_whatever_a_group_is_called(hostile: str) -> None:
    assert one_line(hostile).isprintable()
    assert title(an_alert(group_id=hostile), FIRING).isprintable()
