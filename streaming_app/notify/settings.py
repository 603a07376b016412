"""All kinds of sinks. A new one is a module in this package, and the name of its settings here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from streaming_app.notify.alertmanager import AlertmanagerSettings
from streaming_app.notify.apprise import AppriseSettings
from streaming_app.notify.log import LogSettings
from streaming_app.notify.mail import MailSettings
from streaming_app.notify.slack import SlackSettings
from streaming_app.notify.webhook import WebhookSettings

SinkSettings = Annotated[
    AlertmanagerSettings | AppriseSettings | LogSettings | MailSettings | SlackSettings | WebhookSettings,
    Field(discriminator="type"),
]
"""The configuration of one sink; `type` is its kind. Its method `sink()` creates the sink."""


def _check_unique_names(sinks: Sequence[SinkSettings]) -> Sequence[SinkSettings]:
    names = [sink.name for sink in sinks]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two sinks have the name {', '.join(duplicates)}: give each a different name")
    return sinks


SinkList = Annotated[tuple[SinkSettings, ...], AfterValidator(_check_unique_names)]
"""The sinks of a configuration, with unique names.

A model that contains it must set `hide_input_in_errors`: pydantic uses the setting of the outermost model, and its
errors would otherwise show secrets.
"""
