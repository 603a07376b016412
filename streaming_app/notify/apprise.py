"""Any of apprise's services by its URL: chats, mail, push messages, and pagers, whose incidents have the alert's key.

A program of its own sends each notification (`apprise_program`), so that a deadline ends it whatever a service waits
for, and apprise's services load only there. What apprise says about a failure goes to its log, in words that may
contain secrets: an error names the service, the status of its response, and what to do.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import unquote, urlencode

from pydantic import PrivateAttr, SecretStr

from streaming_app.alerts.problem import CRITICAL, FIRING, RESOLVED, WARNING, Problem
from streaming_app.notify import apprise_program
from streaming_app.notify import message as texts
from streaming_app.notify.http_post import SET_CA_FILE, SUCCESS, status_error
from streaming_app.notify.sink import BaseSettings, Sink, SinkError
from streaming_app.text import shorten

_MAX_CHARACTERS = 3500  # of a message about several alerts, so that it ends with how many more there are
_ESCAPED = 0.75  # how much of a service's limit that is, as escapes make it longer
_MAX_WHY = 200  # characters of what apprise says
_MIN_SECRET = 4  # characters: shorter parts of a URL are words
_CHECK_SECONDS = 60.0  # for a URL, without a connection, on a machine that has much to do
_LEFT_SECONDS = 5  # after its deadline the program has ended itself, if the job no longer could

# The services that open and resolve incidents, and the part of their URL that has an incident's key.
_KEYS = {
    **dict.fromkeys(("opsgenie", "jira"), "alias"),
    **dict.fromkeys(("splunk", "victorops"), "entity_id"),
    **dict.fromkeys(("pagerduty", "pagertree", "squadcast", "signl4", "ilert"), "dedup"),
    **dict.fromkeys(("incidentio", "firehydrant", "goalert", "goalerts"), "dedup"),
}
# Of a notification, for its colour, and for what pagers do: `success` resolves.
_KINDS = {CRITICAL: "failure", WARNING: "warning"}
_OTHER, _RESOLVED = "info", "success"

_STATUS = re.compile(r"error=(\d{3})")
# What the exceptions in apprise's log say, what that means, and whether it may pass.
_REASONS = (
    ("CERTIFICATE_VERIFY_FAILED", f"its certificate is rejected: {SET_CA_FILE}", False),
    ("SSLError", "no TLS connection", True),
    (r"NameResolutionError|Name or service not known|getaddrinfo|name resolution", "unknown host name", True),
    ("Connection refused", "cannot be reached: Connection refused", True),
    ("No route to host|Network is unreachable", "cannot be reached: no route", True),
    (r"\((?:530|534|535), ", "rejects the login: check user and password in the URL", False),
    ("[Tt]imed? ?out", "did not respond in time", True),
    ("RemoteDisconnected|Connection reset|Connection aborted", "closed the connection without a response", True),
)


class AppriseSettings(BaseSettings):
    """`type: apprise`. The URL is the secret; `timeout` includes the start of the program that sends."""

    secrets: ClassVar[tuple[str, ...]] = ("url",)

    type: Literal["apprise"]
    url: SecretStr | None = None
    """One of https://appriseit.com/services/, such as `slack://A/B/C/#channel` or `pagerduty://KEY@TOKEN`."""
    url_file: Path | None = None

    _service: dict[str, Any] = PrivateAttr(default_factory=dict)

    def sink(self) -> Sink:
        """Return a new sink."""
        key = next((_KEYS[schema] for schema in self._service["schemas"] if schema in _KEYS), None)
        return _AppriseSink(self, key, self._service["limit"])

    def read_url(self) -> str:
        """Return the URL. Raises SinkError if it is missing."""
        url = self.read_secret("url")
        if url is None or "://" not in url:
            why = "is missing" if url is None else "must be a URL of https://appriseit.com/services/"
            raise SinkError(f"{'url_file' if self.url_file else 'url'} {why}", retry=False)
        return url

    def check(self) -> None:
        """Ask apprise which service the URL is for, too."""
        super().check()
        self._service = _ask(self, self.read_url(), {}, _CHECK_SECONDS)


class _AppriseSink(Sink):
    """Messages that people read; for a pager incidents, each of which is resolved by the key it was opened with."""

    def __init__(self, settings: AppriseSettings, key: str | None, limit: int) -> None:
        """`key` is the part of a pager's URL; `limit` is how many characters of a message the service takes."""
        super().__init__(settings.name)
        self.is_read_by_people = key is None
        self._settings, self._key, self._most = settings, key, min(_MAX_CHARACTERS, int(limit * _ESCAPED))

    def send(self, problems: Sequence[Problem], event: str) -> None:
        """Send one message, or open or resolve the incident of each. Raises SinkError."""
        kind = _RESOLVED if event == RESOLVED else _KINDS.get(texts.worst_severity(problems), _OTHER)
        settings = self._settings
        if self.is_read_by_people and len(problems) > 1:
            links = settings.runbook_link(problems[0]), settings.page_link
            text = texts.format_group_message(problems, event, *links, max_characters=self._most)
            self._send(texts.format_group_title(problems, event), text, kind)
            return
        for problem in problems:
            links_of_one = settings.runbook_link(problem), settings.page_link(problem)
            text, own = texts.format_message(problem, event, *links_of_one), texts.notification_id(problem, FIRING)
            incident = {self._key: own, "action": "map"} if self._key else {}  # resolved by a success, else opened
            close = own if self._key and event == RESOLVED else None
            self._send(texts.format_title(problem, event), text, kind, incident, close)

    def _send(
        self, title: str, text: str, kind: str, incident: Mapping[str, str] | None = None, close: str | None = None
    ) -> None:
        """Send a notification, with further parameters of the URL. Raises SinkError unless the service accepts it."""
        url = self._settings.read_url()
        seconds = f"{self._settings.timeout:g}"  # apprise's own limits are 4 s, and each byte begins them again
        added = urlencode({"cto": seconds, "rto": seconds, "retry": "0", **(incident or {})})
        notification = {"title": texts.disarm(title), "text": texts.disarm(text), "kind": kind, "close": close}
        whole = f"{url}{'&' if '?' in url else '?'}{added}"
        answer = _ask(self._settings, whole, notification, self._settings.timeout)
        if not answer["sent"]:
            raise _failure(answer, url)


def _ask(settings: AppriseSettings, url: str, notification: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the program's answer. Raises SinkError if it gives none in time, or does not take the URL."""
    path = [place for place in sys.path if place]
    request = {"path": path, "seconds": int(seconds) + _LEFT_SECONDS, "url": url, **notification}
    command = [sys.executable, "-I", str(Path(apprise_program.__file__))]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=seconds,
            env=_environment(settings),
            check=False,
            start_new_session=True,  # a Ctrl-C for the job does not stop what it sends
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        line = f"{_scheme(url)}:// did not accept it within {seconds:g} s"
        raise SinkError(line, retry=True) from None
    except OSError as error:
        raise SinkError(f"no program to send with can be started: {error.strerror}", retry=True) from None
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SinkError(f"apprise failed: {_without_secrets(last, url)}", retry=True) from None
    if answer["service"] is None:
        raise _refusal(answer, url, settings)
    return answer


def _environment(settings: AppriseSettings) -> dict[str, str]:
    """Return the environment of the program, in which `ca_file` has the authorities for requests and for OpenSSL."""
    names = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE") if settings.ca_file else ()
    return {**os.environ, **dict.fromkeys(names, str(settings.ca_file))}


def _scheme(url: str) -> str:
    return texts.one_line(url.partition("://")[0])


def _refusal(answer: Mapping[str, Any], url: str, settings: AppriseSettings) -> SinkError:
    name = "url_file" if settings.url_file else "url"
    if answer["help"] is None:
        line = f"{name}: apprise has no service {_scheme(url)}://, see https://appriseit.com/services/"
    else:
        line = f"{name} is not one for {_scheme(url)}://: {_warning(answer, url, 0)}, see {answer['help']}"
    return SinkError(line, retry=False)


def _failure(answer: Mapping[str, Any], url: str) -> SinkError:
    """Return the error for a notification that was not sent, from what apprise logged about it."""
    log = "\n".join(text for _, text in answer["log"])
    if (status := _STATUS.search(log)) and int(status[1]) not in SUCCESS:
        return status_error(answer["service"], int(status[1]))
    for pattern, meaning, retry in _REASONS:
        if re.search(pattern, log):
            return SinkError(f"{answer['service']}: {meaning}", retry=retry)
    return SinkError(f"{answer['service']}: {_warning(answer, url, -1)}", retry=True)


def _warning(answer: Mapping[str, Any], url: str, which: int) -> str:
    warnings = [text for level, text in answer["log"] if level >= logging.WARNING]
    return _without_secrets(warnings[which], url) if warnings else "apprise gives no reason"


def _without_secrets(text: str, url: str) -> str:
    """Return the text on one line, without any part of the URL but its scheme: any may be a secret."""
    parts = [part for part in re.split(r"[/:@?&=#+,;\s]+", url.partition("://")[2]) if len(part) >= _MIN_SECRET]
    known = sorted({url, *parts, *map(unquote, parts)}, key=len, reverse=True)
    hidden = re.sub("|".join(map(re.escape, known)), "***", text, flags=re.IGNORECASE)
    return shorten(texts.one_line(hidden), _MAX_WHY).rstrip(".")
