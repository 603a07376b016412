"""Slack's incoming webhooks, and those of Mattermost and Rocket.Chat, which take the same messages."""

from __future__ import annotations

import re
from typing import Literal

from streaming_app.alerts.sinks.base import Sink
from streaming_app.alerts.sinks.posting import SecretUrlSettings, post
from streaming_app.alerts.sinks.wording import as_json, message, title
from streaming_app.core.alert import CRITICAL, RESOLVED, WARNING, Alert

_COLOURS = {CRITICAL: "#d00000", WARNING: "#e8a200"}
_OTHER, _GOOD = "#808080", "#2eb67d"
_MARKS = {CRITICAL: ":red_circle:", WARNING: ":warning:"}
_MOST = 3000  # characters; more than anyone reads in a chat
_CODE_WORD = re.compile(r"[a-z_]{1,60}")  # Slack says why by a word such as no_service; anything else may hold the URL


class SlackSettings(SecretUrlSettings):
    """`type: slack`. The URL is the secret."""

    type: Literal["slack"]

    def sink(self) -> SlackSink:
        """Make the sink."""
        return SlackSink(self)


class SlackSink(Sink):
    """Posts one message for each event."""

    def __init__(self, settings: SlackSettings) -> None:
        super().__init__(settings.name)
        self._settings = settings

    def send(self, alert: Alert, event: str) -> None:
        """Post it. Raises SinkError, with the time to wait when Slack says that there were too many."""
        good = event == RESOLVED
        mark = ":large_green_circle:" if good else _MARKS.get(alert.severity, ":information_source:")
        headline = escaped(title(alert, event))
        text = escaped(shortened(message(alert, event, self._settings.runbook(alert))))
        attachment = {
            "color": _GOOD if good else _COLOURS.get(alert.severity, _OTHER),
            "fallback": escaped(alert.summary),
            "text": text,
        }
        body = as_json({"text": f"{mark} {headline}", "attachments": [attachment]}).encode()
        post(self._settings.address(), body, {}, self._settings, quote=_CODE_WORD)


def escaped(text: str) -> str:
    """Spell the three characters that mean something to Slack; the others are not to be changed."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shortened(text: str) -> str:
    """As much as anyone reads."""
    return text if len(text) <= _MOST else text[: _MOST - 2] + " …"
