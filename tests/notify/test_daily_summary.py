"""The daily summary: when it is due, over restarts and outages, what is in it, and how each sink sends it."""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import ValidationError

from streaming_app.alerts.alert import PENDING, Alert, Delivery
from streaming_app.health.verdict import Verdict
from streaming_app.notify.daily_summary import DailySummaries, DailySummary, format_summary_text, make_summary
from streaming_app.notify.sink import TextSink
from tests.alerts.examples import make_alert
from tests.hostile import HOSTILE, effective_characters
from tests.notify.receivers import HOST, HttpReceiver, Response, SmtpReceiver, make_settings, make_sink
from tests.notify.sending import Sending

DAY = datetime(2026, 11, 22, tzinfo=timezone.utc)
SUMMARY = DailySummary("prod", DAY, {"Down": 2, "Ok": 117}, [make_alert()], 0, {"not-ready": 3}, 2)


@dataclass
class Schedule:
    """Summaries at 08:00 for the sink `chat`, with the file that survives a restart, and a clock."""

    now: datetime = DAY
    times: dict[str, time] = field(default_factory=lambda: {"chat": time(8)})
    readings: int = 0
    text: str | None = None
    sent: list[datetime] = field(default_factory=list)
    accepts: bool = True
    unsent: list[Callable[[], None]] = field(default_factory=list)
    summaries: DailySummaries = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.summaries = DailySummaries(
            self.times, self, lambda at: replace(SUMMARY, at=at), self._send, lambda: self.now
        )

    def read(self) -> str | None:
        self.readings += 1
        return self.text

    def write(self, text: str) -> None:
        self.text = text

    def _send(self, sink: str, summary: DailySummary, on_sent: Callable[[], None]) -> None:
        assert sink == "chat"
        if self.accepts:
            self.sent.append(summary.at)
            on_sent()
        else:
            self.unsent.append(on_sent)

    def evaluate(self, hours: float) -> None:
        self.now = DAY + timedelta(hours=hours)
        self.summaries.send_due()


def test_a_summary_is_sent_once_a_day_at_its_time() -> None:
    schedule = Schedule()
    for hours in (7, 7.999, 8, 8.001, 20, 31.9, 32, 32.1):
        schedule.evaluate(hours)
    assert schedule.sent == [DAY + timedelta(hours=8), DAY + timedelta(hours=32)]


def test_a_job_that_starts_for_the_first_time_after_the_hour_waits_for_the_next_day() -> None:
    schedule = Schedule()
    schedule.evaluate(9)
    assert schedule.sent == []
    schedule.evaluate(33)
    assert len(schedule.sent) == 1


def test_a_restart_repeats_no_summary_and_a_job_that_was_down_sends_it_late() -> None:
    schedule = Schedule()
    schedule.evaluate(7)
    schedule.restart()
    schedule.evaluate(11)  # it was down at 8
    schedule.restart()
    schedule.evaluate(12)
    assert schedule.sent == [DAY + timedelta(hours=11)]


def test_runs_from_cron_send_the_summary_in_the_first_run_after_the_hour() -> None:
    schedule = Schedule()
    for hours in range(5, 40, 3):
        schedule.restart()
        schedule.evaluate(hours)
    assert schedule.sent == [DAY + timedelta(hours=8), DAY + timedelta(hours=32)]


def test_a_summary_that_is_not_sent_yet_is_not_made_again_and_comes_after_a_restart() -> None:
    schedule = Schedule(accepts=False)
    schedule.evaluate(7)
    schedule.evaluate(8)
    schedule.evaluate(9)
    assert len(schedule.unsent) == 1
    schedule.restart()
    schedule.accepts = True
    schedule.evaluate(10)
    assert len(schedule.sent) == 1


def test_a_clock_that_is_set_back_sends_nothing_twice() -> None:
    schedule = Schedule()
    for hours in (7, 8, 6, 8, 9):
        schedule.evaluate(hours)
    assert len(schedule.sent) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"chat": 5}', '{"chat": "soon"}'])
def test_a_file_that_something_else_wrote_is_replaced(text: str) -> None:
    schedule = Schedule(text=text)
    schedule.evaluate(9)
    assert (schedule.sent, json.loads(schedule.text or "")) == ([], {"chat": "2026-11-22T08:00:00+00:00"})


def test_without_a_time_nothing_is_read_or_sent() -> None:
    schedule = Schedule(times={})
    for hours in (7, 9, 33):
        schedule.evaluate(hours)
    assert (schedule.readings, schedule.text, schedule.sent) == (0, None, [])


def _verdict(name: str) -> Verdict:
    return Verdict(name, DAY, DAY, "why")


def test_a_summary_has_the_groups_by_verdict_what_fires_and_what_happened_in_24_hours() -> None:
    now = make_alert().opened_at
    assert now
    verdicts = {"a": _verdict("Ok"), "b": _verdict("Ok"), "c": _verdict("Stalled")}
    verdicts |= {"deleted": _verdict("Down"), "deleted-before": _verdict("Off")}
    alerts: list[Alert] = [
        make_alert(severity="warning", group_id="w"),
        make_alert(group_id="c"),
        make_alert(state=PENDING, opened_at=None, group_id="p"),
        make_alert(resolved=True, group_id="r", opened_at=now - timedelta(hours=23)),
        make_alert(
            resolved=True, group_id="old", opened_at=now - timedelta(days=3), resolved_at=now - timedelta(days=2)
        ),
    ]
    summary = make_summary("prod", now, ["a", "b", "c", "new"], verdicts, alerts, lambda alert: alert.group_id == "w")
    assert list(summary.groups.items()) == [("Down", 1), ("Stalled", 1), ("Unknown", 1), ("Ok", 2)]
    assert [alert.group_id for alert in summary.firing] == ["c", "w"]
    assert (summary.silenced, summary.fired, summary.resolved) == (1, {"not-ready": 3}, 1)


def test_a_summary_names_20_alerts_and_no_text_breaks_a_line() -> None:
    alerts = [make_alert(summary=f"{HOSTILE}{n}") for n in range(300)]
    text = format_summary_text(replace(SUMMARY, firing=alerts, silenced=7))
    assert effective_characters(text) == set()
    assert text.splitlines()[:2] == ["groups: 2 Down, 117 Ok", "firing: 300, 7 of them silenced"]
    assert text.splitlines()[22] == "and 280 more"


def test_an_empty_cluster_without_alerts_has_a_summary() -> None:
    text = format_summary_text(DailySummary("prod", DAY, {}, [], 0))
    assert text.splitlines() == [
        "groups: none",
        "firing: 0",
        "fired in the last 24 hours: none",
        "resolved in the last 24 hours: 0",
        "as of: 2026-11-22T00:00:00.000Z",
    ]


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_chat_mail_and_log_send_the_summary(receiver: HttpReceiver, tmp_path: Path, form: str) -> None:
    title = "[SUMMARY] 1 alert fires, 119 groups (cluster prod)"
    log = tmp_path / "alerts.log"
    with SmtpReceiver() as mail:
        addresses = {"from": "us@example.com", "to": ["a@example.com"]}
        sinks = (
            make_sink(type="slack", url=receiver.url),
            make_sink(type="log", file=log, format=form),
            make_sink(type="email", host=HOST, port=mail.port, tls="none", **addresses),
        )
        for sink in sinks:
            assert isinstance(sink, TextSink)
            sink.send_summary(SUMMARY)
            sink.close()
        (message,) = (email.message_from_bytes(e.content, policy=email.policy.default) for e in mail.envelopes)
    (body,) = receiver.bodies
    assert body["text"] == f":bar_chart: {title}"
    assert "groups: 2 Down, 117 Ok\n" in body["attachments"][0]["text"]
    assert message["Subject"] == title
    assert "fired in the last 24 hours: 3 not-ready" in message.get_content()
    line = log.read_text("utf-8").removesuffix("\n")
    if form == "json":
        assert json.loads(line)["data"]["groups"] == {"Down": 2, "Ok": 117}
        assert json.loads(line)["type"] == "summary"
    else:
        assert line.startswith("time=2026-11-22T00:00:00.000Z event=summary cluster=prod ")


def test_a_summary_is_retried_until_it_is_accepted(receiver: HttpReceiver) -> None:
    receiver.responses.extend([Response(503), Response(503)])
    results: list[tuple[str, Delivery]] = []
    dispatcher = Sending([make_sink(type="slack", url=receiver.url)], results.extend)
    done: list[bool] = []
    dispatcher.offer_summary("slack", SUMMARY, lambda: done.append(True))
    dispatcher.offer_summary("other", SUMMARY, lambda: done.append(False))
    assert dispatcher.flush(10)
    dispatcher.close(5)
    assert (len(receiver.requests), done, results) == (3, [True], [])


@pytest.mark.parametrize(
    ("given", "expected"), [("08:00", time(8)), ("23:59", time(23, 59)), (1080, time(18)), (None, None)]
)
def test_the_time_is_hours_and_minutes_also_as_yaml_reads_it_without_quotes(given: object, expected: object) -> None:
    settings = make_settings(type="log", summary=given)
    assert settings.summary == expected
    assert settings.model_dump(mode="json")["summary"] == (f"{expected:%H:%M}" if expected else None)


@pytest.mark.parametrize("given", ["8", "24:00", "08:60", "8:5", "", True, -5, 1440, "noon"])
def test_another_time_is_an_error_with_the_valid_form(given: object) -> None:
    with pytest.raises(ValidationError, match=r'must be a time of day in UTC such as "08:00", not'):
        make_settings(type="log", summary=given)


def test_sinks_for_machines_have_no_summary() -> None:
    with pytest.raises(ValidationError, match=r"summary"):
        make_settings(type="webhook", url="http://h", summary="08:00")
