"""The sinks there are. A new one is a module beside this one, and its settings' name here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from streaming_app.alerts.sinks.alertmanager import AlertmanagerSettings
from streaming_app.alerts.sinks.log import LogSettings
from streaming_app.alerts.sinks.mail import MailSettings
from streaming_app.alerts.sinks.slack import SlackSettings
from streaming_app.alerts.sinks.webhook import WebhookSettings

SinkSettings = Annotated[
    AlertmanagerSettings | LogSettings | MailSettings | SlackSettings | WebhookSettings, Field(discriminator="type")
]
"""What a configuration says of one sink; `type` tells which kind. Its `sink()` makes it."""


def _named_apart(sinks: Sequence[SinkSettings]) -> Sequence[SinkSettings]:
    names = [sink.name for sink in sinks]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two sinks have the name {', '.join(doubles)}: give each a name of its own")
    return sinks


SinkList = Annotated[tuple[SinkSettings, ...], AfterValidator(_named_apart)]
"""The sinks of a configuration, each with a name that no other has.

Whoever validates it sets `hide_input_in_errors`, as pydantic asks only the outermost model whether to repeat secrets.
"""
