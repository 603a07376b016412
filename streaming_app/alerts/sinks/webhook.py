"""Any receiver of JSON by HTTP, signed as standardwebhooks.com says, so that its libraries can check the signature.

The body, version 1:

    {"version": 1,
     "type": "alert.firing" or "alert.resolved",
     "timestamp": when it fired or was resolved,
     "data": {"fingerprint": names this alert for ever; a group that has the same trouble again gets another,
              "cluster", "group_id": null for alerts about the job or the cluster, "rule", "severity", "state",
              "pending_since", "opened_at", "resolved_at": null while it fires,
              "summary": one line, "details": what else to know, an object, "runbook_url": null if there is none}}

Times are ISO 8601 in UTC. New fields may come; a change of what is there would be another version. The header
`webhook-id` is the same for every try of a notification, and no two notifications share one: tell doubles by it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import SecretStr, field_validator, model_validator
from typing_extensions import Self

from streaming_app.alerts.sinks.base import Sink, SinkError, checked
from streaming_app.alerts.sinks.posting import AuthSettings, SecretUrlSettings, post
from streaming_app.alerts.sinks.wording import as_json, identity, repeat, utc
from streaming_app.core.alert import RESOLVED, Alert

VERSION = 1
_PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)
_RESERVED = re.compile(r"webhook-.*|content-.*|host|authorization|transfer-encoding|connection", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class WebhookSettings(AuthSettings, SecretUrlSettings):
    """`type: webhook`."""

    secrets: ClassVar[tuple[str, ...]] = (*AuthSettings.secrets, *SecretUrlSettings.secrets, "secret")

    type: Literal["webhook"]
    secret: SecretStr | None = None
    """`whsec_` and base64 of 24 to 64 random bytes. Several, with spaces between them, while one replaces another."""
    secret_file: Path | None = None
    headers: Mapping[str, SecretStr] = {}
    """Further headers."""

    def sink(self) -> WebhookSink:
        """Make the sink."""
        return WebhookSink(self)

    def keys(self) -> list[bytes]:
        """What to sign with; nothing if there is no secret. Raises SinkError for a secret of no use."""
        return [_key(secret) for secret in (self.revealed("secret") or "").split()]

    @field_validator("headers")
    @classmethod
    def _may_be_sent(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
                raise ValueError(f"{name!r} cannot be set here")
            if not value.get_secret_value().isascii() or not value.get_secret_value().isprintable():
                raise ValueError(f"the value of {name} must be printable ASCII")
        return headers

    @model_validator(mode="after")
    def _can_sign(self) -> Self:
        checked(self.keys)
        return self


class WebhookSink(Sink):
    """Posts one notification at a time."""

    def __init__(
        self, settings: WebhookSettings, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    ) -> None:
        super().__init__(settings.name)
        self._settings = settings
        self._now = now

    def send(self, alert: Alert, event: str) -> None:
        """Post it. Raises SinkError unless the answer is 2xx."""
        body = as_json(payload(alert, event, self._settings.runbook(alert))).encode()
        telling = repeat(alert, event, self.name)
        message_id, sent_at = f"msg_{identity(alert, event, telling)}", int(self._now().timestamp())
        headers = {
            **{name: value.get_secret_value() for name, value in self._settings.headers.items()},
            **self._settings.authorization(),
            "webhook-id": message_id,
            "webhook-timestamp": str(sent_at),
        }
        if keys := self._settings.keys():
            headers["webhook-signature"] = " ".join(signature(key, message_id, sent_at, body) for key in keys)
        post(self._settings.address(), body, headers, self._settings)


def payload(alert: Alert, event: str, runbook: str | None = None) -> dict[str, Any]:
    """Put an alert into the form that the module's docstring documents."""
    at = alert.resolved_at if event == RESOLVED else alert.opened_at
    data = {
        "fingerprint": alert.fingerprint,
        "cluster": alert.cluster,
        "group_id": alert.group_id,
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state,
        "pending_since": utc(alert.pending_since),
        "opened_at": alert.opened_at and utc(alert.opened_at),
        "resolved_at": alert.resolved_at and utc(alert.resolved_at),
        "summary": alert.summary,
        "details": dict(alert.details),
        "runbook_url": runbook,
    }
    return {"version": VERSION, "type": f"alert.{event}", "timestamp": utc(at or alert.pending_since), "data": data}


def signature(key: bytes, message_id: str, sent_at: int, body: bytes) -> str:
    """Sign as Standard Webhooks 1.0.0: HMAC-SHA256 over `id.seconds.body`."""
    signed = hmac.digest(key, f"{message_id}.{sent_at}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(signed).decode()


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or len(key) not in _KEY_BYTES:
        line = "secret must be whsec_ and base64 of 24 to 64 bytes: make one by echo whsec_$(openssl rand -base64 32)"
        raise SinkError(line, retry=False)
    return key
