"""Slack's incoming webhooks, and those of Mattermost and Rocket.Chat, which accept the same messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from streaming_app.alerts.alert import CRITICAL, RESOLVED, WARNING, Alert
from streaming_app.notify import message as texts
from streaming_app.notify.daily_summary import DailySummary, format_summary_text, format_summary_title
from streaming_app.notify.http_post import SecretUrlSettings, post
from streaming_app.notify.message import AlertGroup
from streaming_app.notify.sink import TextSettings, TextSink
from streaming_app.text import shorten

_COLOURS = {CRITICAL: "#d00000", WARNING: "#e8a200"}
_OTHER_COLOUR, _RESOLVED_COLOUR = "#808080", "#2eb67d"
_MARKS = {CRITICAL: ":red_circle:", WARNING: ":warning:"}
_MAX_CHARACTERS = 2900  # a longer message is not readable in a chat
_PAGES = 5  # links below a message about several groups
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")  # Slack's error codes, such as no_service; any other text may contain the URL


class SlackSettings(TextSettings, SecretUrlSettings):
    """`type: slack`. The URL is the secret."""

    type: Literal["slack"]

    def sink(self) -> SlackSink:
        """Return a new sink."""
        return SlackSink(self)


class SlackSink(TextSink):
    """Posts messages. Slack's error says how long to wait when there were too many: SinkError has it."""

    def __init__(self, settings: SlackSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings

    def send(self, alert: Alert, event: str) -> None:
        """Post a message about one alert. Raises SinkError."""
        self._post(
            _mark(alert.severity, event),
            texts.format_title(alert, event, texts.format_code),
            texts.format_message(alert, event, None),
            {"runbook": [self._settings.runbook_link(alert)], "page": [self._settings.page_link(alert)]},
            texts.format_summary(alert),
        )

    def send_group(self, group: AlertGroup) -> None:
        """Post one message about several alerts. Raises SinkError."""
        title = texts.format_group_title(group)
        pages = dict.fromkeys(self._settings.page_link(alert) for alert in group.alerts[: group.max_named])
        self._post(
            _mark(group.severity, group.event),
            title,
            texts.format_group_message(group, max_characters=_MAX_CHARACTERS),
            {"runbook": [self._settings.runbook_link(group.first)], "page": [*pages][:_PAGES]},
            title,
        )

    def send_summary(self, summary: DailySummary) -> None:
        """Post the daily summary. Raises SinkError."""
        title = format_summary_title(summary)
        self._post(_Mark(":bar_chart:", _OTHER_COLOUR), title, format_summary_text(summary), {}, title)

    def _post(
        self, mark: _Mark, title: str, text: str, links: Mapping[str, Sequence[str | None]], fallback: str
    ) -> None:
        lines = [texts.format_code_block(shorten(text, _MAX_CHARACTERS))]
        lines += [f"{name}: {texts.escape_chat(url)}" for name, urls in links.items() for url in urls if url]
        attachment = {
            "color": mark.colour,
            "fallback": texts.escape_chat(fallback),
            "text": "\n".join(lines),
            "mrkdwn_in": ["text"],
        }
        body = {
            "text": f"{mark.emoji} {title}",
            "attachments": [attachment],
            "unfurl_links": False,
            "unfurl_media": False,
        }
        post(self._settings.read_url(), texts.dump_json(body).encode(), {}, self._settings, quotable=_ERROR_CODE)


class _Mark(NamedTuple):
    emoji: str
    colour: str


def _mark(severity: str, event: str) -> _Mark:
    if event == RESOLVED:
        return _Mark(":large_green_circle:", _RESOLVED_COLOUR)
    return _Mark(_MARKS.get(severity, ":information_source:"), _COLOURS.get(severity, _OTHER_COLOUR))
