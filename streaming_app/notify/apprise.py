"""Sends alerts with apprise, by a URL: chats, mail, push messages and pagers. Incidents of pagers have the alert's key.

A separate program sends each notification (`apprise_program`): a deadline can end it, and only it loads apprise's
services. apprise logs the reason of a failure with text that may contain secrets. So an error of this sink names only
the service, the status of its response, and what to do.
"""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import PrivateAttr, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import CRITICAL, FIRING, RESOLVED, WARNING, Alert
from streaming_app.notify import apprise_program
from streaming_app.notify import message as texts
from streaming_app.notify.sink import SinkError, UrlSink, failure, status_error
from streaming_app.text import shorten

_MAX_NAMED = 20  # alerts that one message names
_MAX_WHY = 200  # characters of apprise's text
_MIN_SECRET = 4  # characters: shorter parts of a URL are words, not secrets
_CHECK_SECONDS = 60.0  # to check a URL, which needs no connection, also on a busy machine
_KINDS = {CRITICAL: "failure", WARNING: "warning"}  # set the colour; a pager resolves an incident at `success`
_STATUS = re.compile(r"error=([1345]\d{2})")


class AppriseSink(UrlSink):
    """`type: apprise`. A chat gets messages for people, a pager gets incidents. `timeout` includes the program's start.

    The URL is one of https://appriseit.com/services/, such as `slack://A/B/C/#channel` or `pagerduty://KEY@TOKEN`.
    """

    type: Literal["apprise"]

    _is_pager: bool = PrivateAttr(default=False)

    @property
    def is_read_by_people(self) -> bool:
        """Whether the service is not a pager."""
        return not self._is_pager

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        """Ask apprise which service the URL is for."""
        self._is_pager = self._ask({}, _CHECK_SECONDS)["is_pager"]
        return self

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        """Send one message, or open or resolve an incident. Raises SinkError if the service does not accept it."""
        links, most = [self.links(one) for one in alerts], min(len(alerts), _MAX_NAMED)
        found = [texts.format_list(alerts, event, named, links) for named in range(most, 0, -1)]
        if len(alerts) == 1:
            found = [texts.format_message(alerts[0], event, links[0])]
        answer = self._ask(
            {
                "title": texts.disarm(texts.format_title(alerts, event)),
                "texts": [texts.disarm(one) for one in found],
                "kind": "success" if event == RESOLVED else _KINDS.get(texts.worst_severity(alerts), "info"),
                "incident": texts.notification_id(alerts[0], FIRING),
                "is_over": event == RESOLVED,
            },
            self.timeout,
        )
        if not answer["sent"]:
            log = "\n".join(text for _, text in answer["log"])
            if status := _STATUS.search(log):
                raise status_error(answer["service"], int(status[1]))
            raise failure(answer["service"], log, _warnings(answer, self.read_url())[-1])

    def _ask(self, notification: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the program's answer. Raises SinkError if there is none in time, or apprise does not know the URL."""
        url = self.read_url()
        scheme, mark, _ = url.partition("://")
        scheme = f"{texts.one_line(scheme)}://" if mark else "URL"  # without a scheme, the whole URL may be a secret
        request = {"path": [one for one in sys.path if one], "seconds": seconds, "url": url}
        ca_file = dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE") if self.ca_file else (), str(self.ca_file))
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-I", str(Path(apprise_program.__file__))],
                input=json.dumps(request | notification).encode(),
                capture_output=True,
                timeout=seconds,
                env=os.environ | ca_file,
                check=False,
                start_new_session=True,  # a Ctrl-C for the job does not stop what it sends
            )
            answer: dict[str, Any] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            raise SinkError(f"{scheme} did not accept it within {seconds:g} s", retry=True) from None
        except OSError as error:
            raise SinkError(f"the program for apprise cannot be started: {error.strerror}", retry=True) from None
        except ValueError:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise SinkError(f"apprise failed: {_without_secrets(last, url)}", retry=True) from None
        if answer["service"] is None:
            why = _warnings(answer, url)[0]
            line = f"{self._url_key}: apprise does not accept this {scheme}: {why}, see https://appriseit.com/services/"
            raise SinkError(line, retry=False)
        return answer


def _warnings(answer: Mapping[str, Any], url: str) -> list[str]:
    found = [_without_secrets(text, url) for level, text in answer["log"] if level >= logging.WARNING]
    return found or ["apprise gives no reason"]


def _without_secrets(text: str, url: str) -> str:
    """Return the text on one line, with *** for each URL (apprise shortens URLs) and for each part of this URL."""
    parts = [part for part in re.split(r"[/:@?&=#+,;\s]+", url.split("://", 1)[-1]) if len(part) >= _MIN_SECRET]
    known = sorted({url, *parts, *map(unquote, parts)}, key=len, reverse=True)
    hidden = re.sub(rf"\S+://\S*|{'|'.join(map(re.escape, known))}", "***", text, flags=re.IGNORECASE)
    return shorten(texts.one_line(hidden), _MAX_WHY).rstrip(".")
