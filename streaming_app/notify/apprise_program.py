"""A program that sends one notification with apprise: a request as JSON on standard input, an answer on its output.

`notify/apprise.py` starts it for each notification and kills it at the deadline: many of apprise's services wait
without a limit for a receiver that sends a byte from time to time. So the job neither keeps a thread for such a
receiver nor loads apprise's 190 services. It is started by its path, in Python's isolated mode, and imports nothing of
this project.

Request: `path` (of imports), `seconds` (after which it ends itself, if the job no longer can), `url`, and for a
notification `title`, `text`, `kind` (one of apprise's types), `close` (the alias of an alert to close, or null).
Answer: `service` (its name; null for an invalid URL), `help` (a link), `log` (pairs of level and text, which may
contain secrets); and of a service `schemas` (of its URLs), `limit` (characters of a text) and `sent`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from bisect import bisect_left
from typing import Any

_MAX_LOG = 200  # records
_MAX_CHARACTERS = 4000  # of a text, before the service's own limit: people read it on a telephone
_FORMATS = {"discord": "markdown"}  # it shows plain text as Markdown; elsewhere plain text is preferred
# Services that apprise closes alerts of by what they answered to their creation, which a restart forgets, by the
# constant with the address of their API: an alert's alias is known.
_CLOSED_BY_ALIAS = {"opsgenie": "OPSGENIE_API_LOOKUP", "jira": "JIRA_API_LOOKUP"}


class _Log(logging.Handler):
    """Keeps what apprise logs: it says there why it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        if len(self.lines) < _MAX_LOG:
            self.lines.append((record.levelno, record.getMessage()))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request; without a `text` it only tells which service the URL is for."""
    import apprise  # noqa: PLC0415 - main sets the path first

    log = _Log()
    apprise.logger.addHandler(log)
    apprise.logger.setLevel(logging.DEBUG)
    service = make_service(request["url"])
    if service is None:
        return {"service": None, "help": _help(request["url"]), "log": log.lines}
    sent = request.get("text") is not None and _send(service, request)
    return {
        "service": str(service.service_name),
        "schemas": _schemas(service),
        "help": str(service.setup_url),
        "limit": service.body_maxlen,
        "sent": sent,
        "log": log.lines,
    }


def make_service(url: str) -> Any:  # noqa: ANN401 - apprise's services have no common type for what is used here
    """Return apprise's service for a URL; None if the URL is not one for it."""
    import apprise  # noqa: PLC0415 - as above

    asset = apprise.AppriseAsset(
        app_id="streams-groups",
        app_desc="streams-groups",
        image_url_mask="",  # no pictures from GitHub in people's chats
        image_url_logo="",
        http_redirects=False,
        interpret_emojis=False,
        storage_mode="memory",
    )
    return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)


def _schemas(service: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the schemas of the URLs of a service; each is one, several or None there."""
    given = (service.secure_protocol, service.protocol)
    return [one for some in given for one in ((some,) if isinstance(some, str) else some or ())]


def _help(url: str) -> str | None:
    """Return the link to what a URL of this schema needs; None for a schema that no service has."""
    from apprise.manager_plugins import NotificationManager  # noqa: PLC0415 - as above

    services = NotificationManager()
    schema = url.partition("://")[0].lower()
    return str(services[schema].setup_url) if schema in services else None


def _send(service: Any, request: dict[str, Any]) -> bool:  # noqa: ANN401 - as above
    schema, alias = _schemas(service)[0], request["close"]
    if alias and schema in _CLOSED_BY_ALIAS:
        return _close(service, _CLOSED_BY_ALIAS[schema], alias, request["title"])
    form = service.resolve_format(_FORMATS.get(schema, "text"))
    title, body = fit(service, form, request["title"], request["text"])
    return bool(service.notify(body=body, title=title, notify_type=request["kind"], body_format=form))


def _close(service: Any, addresses: str, alias: str, note: str) -> bool:  # noqa: ANN401 - as above
    import requests  # noqa: PLC0415 - comes with apprise

    base = getattr(sys.modules[type(service).__module__], addresses)[service.region_name]
    sent, _ = service._fetch(  # noqa: SLF001 - its requests with its credentials, and its log says why they fail
        requests.post,
        f"{base}/{alias}/close",
        {"source": service.app_desc, "note": note},
        {"identifierType": "alias"},
    )
    return bool(sent)


def fit(service: Any, form: Any, title: str, text: str) -> tuple[str, str]:  # noqa: ANN401 - as above
    """Return title and text for a service in its format, escaped and within its limits.

    Where the escaped text is too long, less of the plain text is taken: a cut through what is escaped could leave half
    of an escape. A service that shows no titles, or within the text, gets the title as the first line.
    """
    from apprise.conversion import convert_between  # noqa: PLC0415 - as above

    if service.title_maxlen <= 0 or service.overflow_amalgamate_title:
        title, text = "", f"{title}\n{text}"

    def converted(length: int) -> str:
        return str(convert_between("text", form, _shorten(text, length)))

    def fits(length: int) -> bool:
        return bool(len(service.dialect_convert(converted(length), form)) <= service.body_maxlen)

    most = min(len(text), _MAX_CHARACTERS)
    if not fits(most):
        most = bisect_left(range(most), True, key=lambda length: not fits(length)) - 1  # noqa: FBT003 - the first to be True
    return _shorten(title, service.title_maxlen), converted(most)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def main() -> None:
    """Answer the request on standard input. What apprise prints goes to standard error."""
    request = json.load(sys.stdin)
    signal.alarm(request["seconds"])
    sys.path[:] = request["path"]
    output, sys.stdout = sys.stdout, sys.stderr
    json.dump(answer(request), output)
    output.flush()
    os._exit(0)  # waits for no thread that a service started


if __name__ == "__main__":
    main()
