"""Sends alerts as JSON over HTTP. The signature follows standardwebhooks.com, whose libraries can verify it.

The body, version 1:

    {"version": 1,
     "type": "alert.firing" or "alert.resolved",
     "timestamp": when it fired or was resolved,
     "data": {"fingerprint": identifies this alert; a later alert of the same rule and group has a different one,
              "cluster", "group_id": null for alerts about the job or the cluster, "rule", "severity", "state",
              "pending_since": since when the condition holds, "opened_at", "resolved_at": null while it fires,
              "summary": one line, "next": the next step in one line, "details": an object with further context,
              "labels": those of the section `labels` for the group, "cause": a proven cause, or null,
              "ended_by": null while it fires,
              "runbook_url", "page_url": null if there is none}}

The alerts that are older than the job are one alert (see `message`): "group_id" is null, "details" names groups.

Times are ISO 8601 in UTC. Later releases may add fields; an incompatible change increases the version. The header
`webhook-id` is unique to a notification, and the same for every attempt to send it: use it to deduplicate.
"""

import base64
import binascii
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import SecretStr, field_validator, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import RESOLVED, Alert
from streaming_app.notify.http_sink import HttpUrlSink
from streaming_app.notify.message import dump_json, format_next, notification_id
from streaming_app.notify.sink import SinkError
from streaming_app.section import FilePath
from streaming_app.text import utc_iso

VERSION = 1
_PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)
_RESERVED = re.compile(r"webhook-.*|content-.*|host|authorization|transfer-encoding|connection", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class WebhookSink(HttpUrlSink):
    """`type: webhook`."""

    type: Literal["webhook"]
    secret: SecretStr | None = None
    """`whsec_` and base64 of 24 to 64 random bytes. During a rotation there may be several, separated by spaces."""
    secret_file: FilePath | None = None
    headers: Mapping[str, SecretStr] = {}

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        """Post the notification of an alert. Raises SinkError if the response status is not 2xx."""
        (alert,) = alerts
        body = dump_json(payload(alert, event, self.links(alert))).encode()
        message_id, sent_at = f"msg_{notification_id(alert, event, self.name)}", int(time.time())
        headers = {name: value.get_secret_value() for name, value in self.headers.items()}
        headers |= {"webhook-id": message_id, "webhook-timestamp": str(sent_at)}
        if keys := self._signing_keys():
            headers["webhook-signature"] = " ".join(signature(key, message_id, sent_at, body) for key in keys)
        self.post(self.read_url(), body, headers)

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        self._signing_keys()
        return self

    def _signing_keys(self) -> list[bytes]:
        """Return the keys to sign with; none if there is no secret. Raises SinkError for an invalid secret."""
        return [_decode_key(secret) for secret in (self.read_secret("secret") or "").split()]

    @field_validator("headers")
    @classmethod
    def _headers_are_valid(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
                raise ValueError(f"{name!r} cannot be set here")
            if not value.get_secret_value().isascii() or not value.get_secret_value().isprintable():
                raise ValueError(f"the value of {name} must be printable ASCII")
        return headers


def payload(alert: Alert, event: str, links: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the body for an alert, as documented in the module's docstring."""
    data = {
        "fingerprint": alert.alert_id,
        "cluster": alert.cluster,
        "group_id": alert.group_id,
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state,
        "pending_since": utc_iso(alert.since),
        "opened_at": alert.opened_at and utc_iso(alert.opened_at),
        "resolved_at": alert.ended_at and utc_iso(alert.ended_at),
        "summary": alert.summary,
        "next": format_next(alert, event),
        "details": dict(alert.evidence),
        "labels": dict(alert.labels),
        "cause": alert.cause,
        "ended_by": alert.ended_by,
        **links,
    }
    at = (alert.ended_at if event == RESOLVED else alert.opened_at) or alert.since
    return {"version": VERSION, "type": f"alert.{event}", "timestamp": utc_iso(at), "data": data}


def signature(key: bytes, message_id: str, sent_at: int, body: bytes) -> str:
    """Return the signature of Standard Webhooks 1.0.0: HMAC-SHA256 over `id.seconds.body`."""
    signed = hmac.digest(key, f"{message_id}.{sent_at}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(signed).decode()


def _decode_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or len(key) not in _KEY_BYTES:
        line = (
            "secret must be whsec_ and base64 of 24 to 64 bytes: create one with echo whsec_$(openssl rand -base64 32)"
        )
        raise SinkError(line, retry=False)
    return key
