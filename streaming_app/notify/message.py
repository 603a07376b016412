"""The text of notifications, and the format of times and details in all sinks.

Ids of groups and clients are chosen by clients, with any characters and up to 32 kB, and are part of summaries and
details. People see them as they are, but as text only: without characters that a terminal obeys, and without mentions,
links and markup for chats.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime

from streaming_app.alerts.alert import RESOLVED, Alert
from streaming_app.text import escape, shorten, utc_iso

_MAX_ID, _MAX_SUMMARY, _MAX_VALUE = 200, 500, 10_000  # characters

# Of everybody, wherever it is, and of one user or group, where a word could start.
_MENTION = re.compile(r"@(?=all|channel|here|everyone)|(?<![A-Za-z0-9])@(?=[\w!&])", re.IGNORECASE)
_MARKUP = re.compile(r"(\](?=\()|<(?=[!@#&]|https?:))")  # [text](link), and what Slack and Discord have in brackets
_NO_WIDTH = "\u200b"


def format_title(alert: Alert, event: str, show_id: Callable[[str], str] = str) -> str:
    """Return the title in one line: `[FIRING] StreamsGroupNotReady: payments (cluster default)`.

    `show_id` gets the group id, shortened, and returns what to show for it.
    """
    subject = f"cluster {alert.cluster}"
    if alert.group_id is not None:
        subject = f"{show_id(shorten(one_line(alert.group_id), _MAX_ID))} ({subject})"
    return f"[{event.upper()}] {alert.rule}: {subject}"


def format_summary(alert: Alert) -> str:
    """Return the summary in one line."""
    return shorten(one_line(alert.summary), _MAX_SUMMARY)


def format_message(alert: Alert, event: str, runbook: str | None, page: str | None = None) -> str:
    """Return the whole message in a few lines, the most important first."""
    fields = {"severity": alert.severity, "since": utc_iso(alert.pending_since)}
    if alert.opened_at:
        fields["fired"] = utc_iso(alert.opened_at)
    if event == RESOLVED and alert.resolved_at:
        fields["resolved"] = utc_iso(alert.resolved_at)
    for name, value in alert.details.items():
        fields[shorten(one_line(str(name)), _MAX_ID)] = shorten(one_line(format_value(value)), _MAX_VALUE)
    if runbook:
        fields["runbook"] = runbook
    if page:
        fields["page"] = page
    return "\n".join([format_summary(alert), "", *(f"{name}: {value}" for name, value in fields.items())])


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


def repeat_number(alert: Alert, event: str, sink: str) -> int:
    """Return how often this sink was notified of the event before, with `repeat_after`."""
    return next((d.repeat for d in alert.deliveries if (d.sink, d.event) == (sink, event)), 0)


def notification_id(alert: Alert, event: str, repeat: int = 0) -> str:
    """Return an id that is the same for every attempt. A hash, because headers cannot contain every group name."""
    name = f"{alert.fingerprint}/{event}/{repeat}"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def one_line(text: str) -> str:
    """Return the text with only what is valid in a header or a log line: spaces for line breaks, escapes for others."""
    return escape(" ".join(text.split()))


def escape_chat(text: str) -> str:
    """Return a text in which Slack, Mattermost and Rocket.Chat find neither their own syntax nor mentions.

    They show `&`, `<` and `>` for the entities, and need no others.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub("@" + _NO_WIDTH, escaped)


def disarm(text: str) -> str:
    """Return a text in which no chat finds a mention, or a link with another text, however it escapes the rest.

    Services that show Markdown although they ask for plain text are among those that do not escape it.
    """
    return _MENTION.sub("@" + _NO_WIDTH, _MARKUP.sub(rf"\1{_NO_WIDTH}", text))


def format_code(text: str) -> str:
    """Return a line as code, in which those chats also find neither links nor markup."""
    code = escape_chat(text).replace("`", "'")
    return f"`{code}`"


def format_code_block(text: str) -> str:
    """Return lines as a block of code, in which those chats also find neither links nor markup."""
    code = escape_chat(text).replace("`" * 3, "'" * 3)
    return f"```\n{code}\n```"


def _to_jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return utc_iso(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
