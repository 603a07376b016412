"""The settings of each kind of sink, the errors for invalid ones, and the text of messages."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError

from streaming_app.alerts.alert import FIRING, RESOLVED
from streaming_app.alerts.catalog import GROUP_ID, rules
from streaming_app.cli.main import main
from streaming_app.config.settings import SinkList
from streaming_app.notify.message import format_message, format_title, one_line
from tests.alerts.examples import make_alert
from tests.long.hostile import HOSTILE, effective_characters
from tests.support.receivers import make_sink

LINKS = {"runbook_url": None, "page_url": None}
SECRET = "hunter2-hunter2"  # noqa: S105 - must never be printed


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"type": "slak"}, "does not match any of the expected tags: 'alertmanager'"),
        ({"type": "webhook", "url": f"hooks/{SECRET}"}, "url must be a URL of the form https://"),
        ({"type": "webhook", "url": f"https://u:{SECRET}@hooks"}, "must not contain a user and password"),
        ({"type": "webhook", "url": f"https://hooks/{SECRET}", "url_file": "x"}, "set url or url_file, not both"),
        ({"type": "webhook", "url_file": "/no/such"}, "url_file /no/such: No such file"),
        ({"type": "alertmanager", "urls": [f"http://u:{SECRET}@am:9093"]}, "set username and password_file"),
        (
            {"type": "alertmanager", "urls": ["http://am"], "username": "u", "token": SECRET},
            "set username and password, or a token",
        ),
        ({"type": "alertmanager", "urls": ["http://am"], "token": f"{SECRET}\n"}, "token must be printable"),
        ({"type": "webhook", "url": "https://hook", "secret": SECRET}, "secret must be whsec_ and base64"),
        ({"type": "webhook", "url": "https://hook", "headers": {"Webhook-Id": SECRET}}, "'Webhook-Id' cannot be set"),
        ({"type": "webhook", "url": "https://hook", "headers": {"X-Key": f"{SECRET}\r\nX: y"}}, "value of X-Key"),
        (
            {"type": "apprise", "url": f"slak://{SECRET}"},
            r"url: apprise does not accept this slak://: [\w ]+\*+, see https://appriseit",
        ),
        ({"type": "apprise", "url": f"slack://{SECRET}"}, "apprise does not accept this slack://: An invalid Slack"),
        ({"type": "apprise", "url": SECRET}, "url: apprise does not accept this URL: Unsupported URL"),
    ],
)
def test_invalid_settings_raise_an_error_without_secrets(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as raised:
        make_sink(**settings)
    assert SECRET not in str(raised.value)


def test_a_sink_is_named_by_its_type_and_two_of_a_type_need_names() -> None:
    sinks = TypeAdapter(SinkList)
    hook = {"type": "webhook", "url": "https://hook"}
    assert [one.name for one in sinks.validate_python([hook, {**hook, "name": "audit"}])] == ["webhook", "audit"]
    with pytest.raises(ValidationError, match="two sinks have the name webhook: give each a different name"):
        sinks.validate_python([hook, hook])


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "webhook", "url": f"https://hook/{SECRET}", "headers": {"X-Key": SECRET}},
        {"type": "webhook", "url": "https://hook", "token_file": "TOKEN"},
        {"type": "apprise", "url": f"json://hook/{SECRET}"},
    ],
    ids=["URL", "file", "apprise"],
)
def test_settings_do_not_print_secrets(tmp_path: Path, settings: dict[str, Any]) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(SECRET)
    made = make_sink(**{name: str(token) if value == "TOKEN" else value for name, value in settings.items()})
    assert SECRET not in f"{made!r} {made} {made.model_dump()} {made.model_dump_json()} {vars(made)!r}"


def test_a_message_has_the_most_important_first() -> None:
    alert = make_alert(resolved=True)
    about_job = make_alert(group_id=None)
    assert [format_title(some, FIRING) for some in ([alert], [about_job], [about_job] * 3, [alert, about_job])] == [
        "[FIRING] not-ready: payments (cluster prod)",
        "[FIRING] not-ready: cluster prod",
        "[FIRING] not-ready: 3 alerts (cluster prod)",
        "[FIRING] not-ready: 1 group (cluster prod)",
    ]
    assert format_message(alert, RESOLVED, {**LINKS, "runbook_url": "https://wiki/not-ready"}).splitlines() == [
        "payments: not-ready is over since 2026-11-21 03:21:05Z, after 4m",
        "Its condition does not hold any more. Nothing is to be done.",
        "",
        "severity: critical",
        "since: 2026-11-21T03:12:05.765Z",
        "fired: 2026-11-21T03:17:05.765Z",
        "resolved: 2026-11-21T03:21:05.765Z",
        "missing_topics: card-transactions",
        "state: NotReady",
        "runbook: https://wiki/not-ready",
    ]


@pytest.mark.parametrize(
    ("by", "why"), [("retired", "A person ended it: retired."), ("ignored", "The configuration ignores the group.")]
)
def test_the_end_of_an_alert_says_who_ended_it_and_not_that_it_is_over(by: str, why: str) -> None:
    _, second, *_ = format_message(make_alert(resolved=True, ended_by=by), RESOLVED, LINKS).splitlines()
    assert second == f"{why} Nothing is to be done."


@pytest.mark.parametrize("group_id", ["payments", None])
@pytest.mark.parametrize("rule", rules())
def test_the_next_step_is_the_command_that_shows_what_is_wrong(rule: str, group_id: str | None) -> None:
    _, step, *_ = format_message(make_alert(rule=rule, group_id=group_id), FIRING, LINKS).splitlines()
    arguments = shlex.split(step.removeprefix("Next: ").partition(", and the runbook")[0])
    assert ("payments" in arguments) == (GROUP_ID in rules()[rule].confirm and group_id is not None)
    assert arguments[-2:] == ["--cluster", "prod"]
    assert CliRunner().invoke(main, [*arguments[1:], "--help"]).exit_code == 0


@pytest.mark.parametrize("hostile", ["a\r\nBcc: x@y", "a\u2028b", "a\x00b", "a\ud800b", "a\tb", "a\u3164b", HOSTILE])
def test_any_group_name_is_printed_on_one_line(hostile: str) -> None:
    alert = make_alert(group_id=hostile, summary=hostile, evidence={hostile: [hostile]})
    assert effective_characters(one_line(hostile)) == set()
    assert effective_characters(format_title([alert], FIRING)) == set()
    message = format_message(alert, FIRING, LINKS)
    assert effective_characters(message) == set()
    assert message.count("\n") == 6


def test_a_title_and_the_lines_of_a_message_are_short_whatever_the_length_of_an_id() -> None:
    long = make_alert(group_id="g" * 32_000, summary="s" * 32_000, evidence={"members": ["m" * 32_000]})
    assert format_title([long], FIRING) == f"[FIRING] not-ready: {'g' * 199}… (cluster prod)"
    lines = format_message(long, FIRING, LINKS).splitlines()
    assert lines[0] == "s" * 499 + "… (since 2026-11-21 03:12:05Z)"
    assert max(map(len, lines)) < 10_100


def test_links_to_the_page_are_of_the_group_and_an_alert_without_one_has_none() -> None:
    def page(url: str = "https://p/{cluster}/{group}?r={rule}", **alert: Any) -> str | None:
        return make_sink(type="webhook", url="https://hook", page_url=url).links(make_alert(**alert))["page_url"]

    hostile = page(group_id="a/b?c&{rule} \ud800")
    assert hostile == "https://p/prod/a%2Fb%3Fc%26%7Brule%7D%20%3F?r=not-ready"
    assert page(group_id=None) is None
    assert page(group_id="x" * 32_000) is None
    assert page("https://p/{cluster}", group_id=None) == "https://p/prod"
