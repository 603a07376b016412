"""The text of notifications, about one alert or several, and the format of details in all sinks.

Ids of groups and clients are chosen by clients, with any characters and up to 32 kB, and are part of summaries and
details. People see them as they are, but as text only: without characters that a terminal obeys, and without mentions,
links and markup for chats.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from streaming_app.alerts.problem import BY_EVIDENCE, HEALTH, RESOLVED, Problem, severity_rank
from streaming_app.text import and_more, count, digest, escape, lasted, shorten, utc, utc_iso

_MAX_ID, _MAX_SUMMARY, _MAX_VALUE = 200, 500, 10_000  # characters
_MAX_NAME = 100  # of an id among others
_MAX_NAMED = 20  # of several alerts

# Of everybody, wherever it is, and of one user or group, where a word could start.
_MENTION = re.compile(r"@(?=all|channel|here|everyone)|(?<![A-Za-z0-9])@(?=[\w!&])", re.IGNORECASE)
_MARKUP = re.compile(r"(\](?=\()|<(?=[!@#&]|https?:))")  # [text](link), and what Slack and Discord have in brackets
_NO_WIDTH = "\u200b"


# --- One alert --------------------------------------------------------------------------------------------------------


def format_title(alert: Problem, event: str) -> str:
    """Return the title in one line: `[FIRING] StreamsGroupNotReady: payments (cluster default)`."""
    subject = f"cluster {alert.cluster}"
    if alert.group_id is not None:
        subject = f"{shorten(one_line(alert.group_id), _MAX_ID)} ({subject})"
    return f"[{event.upper()}] {alert.rule}: {subject}"


def format_summary(alert: Problem, event: str) -> str:
    """Return one line: which group, what is wrong with it, and since when; or that it is over, and after how long."""
    if event == RESOLVED and alert.ended_at:
        subject = "" if alert.group_id is None else f"{shorten(one_line(alert.group_id), _MAX_NAME)}: "
        by = "" if alert.ended_by in {None, BY_EVIDENCE} else f" ({alert.ended_by})"
        after = lasted(alert.ended_at - (alert.opened_at or alert.ended_at))
        return f"{subject}{alert.rule} is over since {utc(alert.ended_at)}, after {after}{by}"
    summary = shorten(one_line(alert.summary), _MAX_SUMMARY)
    return summary if " since " in summary else f"{summary} (since {utc(alert.since)})"


def format_next(alert: Problem, event: str) -> str:
    """Return one line: the next step of who reads it; of a problem that is over, why it is."""
    if event == RESOLVED:
        last = alert.timeline[-1] if alert.timeline else None
        is_of_group = last is not None and last.verdict is not None and last.at == alert.ended_at
        return shorten(one_line(last.why), _MAX_SUMMARY) if last and is_of_group else "Its condition does not hold."
    if alert.subject == HEALTH and alert.group_id is not None:
        group = shorten(one_line(alert.group_id), _MAX_NAME)
        return f"Next: streams-groups why --group {shlex.quote(group)} --cluster {alert.cluster}"
    return f"Next: streams-groups alerts --cluster {alert.cluster}, and the runbook of {alert.rule}"


def format_message(alert: Problem, event: str, runbook: str | None, page: str | None = None) -> str:
    """Return the whole message in a few lines, the most important first."""
    fields = {"severity": alert.severity, "since": utc_iso(alert.since)}
    if alert.opened_at:
        fields["fired"] = utc_iso(alert.opened_at)
    if event == RESOLVED and alert.ended_at:
        fields["resolved"] = utc_iso(alert.ended_at)
    if event == RESOLVED and alert.ended_by and alert.ended_by != BY_EVIDENCE:
        fields["ended by"] = alert.ended_by
    fields |= {name: one_line(value) for name, value in alert.labels.items()}
    if alert.cause:
        fields["cause"] = shorten(one_line(alert.cause), _MAX_ID)
    for name, value in alert.evidence.items():
        fields[shorten(one_line(str(name)), _MAX_ID)] = shorten(one_line(format_value(value)), _MAX_VALUE)
    if runbook:
        fields["runbook"] = runbook
    if page:
        fields["page"] = page
    return "\n".join(
        [
            format_summary(alert, event),
            format_next(alert, event),
            "",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
    )


# --- Several alerts of one rule, which fire or are resolved at about the same time ------------------------------------


def format_group_title(alerts: Sequence[Problem], event: str) -> str:
    """Return the title in one line: `[FIRING] StreamsGroupNotReady: 300 groups (cluster default)`."""
    groups = len({alert.group_id for alert in alerts} - {None})
    subject = count(groups, "group") if groups else f"{len(alerts):,} alerts"  # those about the job
    return f"[{event.upper()}] {alerts[0].rule}: {subject} (cluster {alerts[0].cluster})"


def format_group_message(
    alerts: Sequence[Problem],
    event: str,
    runbook: str | None = None,
    page_link: Callable[[Problem], str | None] = lambda _alert: None,
    max_characters: float = math.inf,
) -> str:
    """Return the message: a line for each alert that is named, how many more there are, and what they have in common.

    It names as many as fit, 20 at most.
    """
    common = [f"severity: {worst_severity(alerts)}", f"since: {utc_iso(min(alert.since for alert in alerts))}"]
    common += [f"runbook: {runbook}"] if runbook else []
    left = max_characters - len("\n".join(common)) - _MAX_NAME
    lines: list[str] = []
    for alert in alerts[:_MAX_NAMED]:
        link = page_link(alert)
        line = f"- {format_summary(alert, event)}" + (f" {link}" if link else "")
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    if more := and_more(len(alerts) - len(lines)):
        lines.append(more.strip())
    return "\n".join([*lines, "", *common])


def worst_severity(alerts: Sequence[Problem]) -> str:
    """Return the highest severity."""
    return min((alert.severity for alert in alerts), key=severity_rank)


# --- Details, ids, and escapes ----------------------------------------------------------------------------------------


def format_value(value: object) -> str:
    """Format a detail for people: lists with commas, text without quotes, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return ", ".join(map(str, value))
    return dump_json(value)


def dump_json(value: object) -> str:
    """Return JSON in ASCII, on one line."""
    return json.dumps(value, default=_to_jsonable, separators=(",", ":"))


def event_at(alert: Problem, event: str) -> datetime:
    """Return when the alert fired, or was resolved."""
    return (alert.ended_at if event == RESOLVED else alert.opened_at) or alert.since


def notification_id(alert: Problem, event: str, sink: str | None = None) -> str:
    """Return an id that is the same for every attempt. A hash, because headers cannot contain every group name.

    With a `sink` it is another one each time that the problem has become worse.
    """
    repeat = next((d.repeat for d in alert.deliveries if (d.sink, d.event) == (sink, event)), 0)
    return digest(f"{alert.alert_id}/{event}/{repeat}", 32)


def one_line(text: str) -> str:
    """Return the text with only what is valid in a header or a log line: spaces for line breaks, escapes for others."""
    return escape(" ".join(text.split()))


def disarm(text: str) -> str:
    """Return a text in which no chat finds a mention, or a link with another text, however it escapes the rest.

    Services that show Markdown although they ask for plain text are among those that do not escape it.
    """
    return _MENTION.sub("@" + _NO_WIDTH, _MARKUP.sub(rf"\1{_NO_WIDTH}", text))


def _to_jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return utc_iso(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
