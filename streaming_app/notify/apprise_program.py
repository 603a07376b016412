"""A program that sends one notification with apprise: a request as JSON on standard input, an answer on its output.

`notify/apprise.py` starts it for each notification and kills it at the deadline, because many of apprise's services
wait without limit for a receiver that sends a byte from time to time. So the job needs no thread for such a receiver,
and does not load apprise's 190 services. The job starts it by its path, in Python's isolated mode; it imports nothing
of this project.

Request: `path` (of imports), `url`, `seconds` (until the job kills it), and for a notification `title`, `texts` (the
first one that fits is sent), `kind` (one of apprise's types), `incident` (its id, for pagers) and `is_over` (whether
the incident ends).
Answer: `service` (its name; null for an invalid URL), `is_pager`, `sent`, and `log` (pairs of level and text, which may
contain secrets).
"""

import json
import logging
import os
import signal
import sys
from bisect import bisect_left
from typing import Any
from urllib.parse import urlencode

_LEFT_SECONDS = 5  # the program ends itself so long after its deadline, in case the job cannot kill it
_MAX_LOG = 200  # records
_MAX_CHARACTERS = 4000  # the longest text, if the service allows it: people read it on a telephone
_FORMATS = {"discord": "markdown"}  # Discord shows plain text as Markdown; other services get plain text if they can
_KEYS = ("dedup", "alias", "entity_id")  # the parts of pagers' URLs for the key of an incident


class _Log(logging.Handler):
    """Keeps apprise's log about failures, without the sent text: otherwise text of clients could look like a reason."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep warnings, and lines about exceptions such as `Socket Exception: …`."""
        text = record.getMessage()
        is_reason = record.levelno >= logging.WARNING or "Exception" in text.partition(":")[0]
        if is_reason and len(self.lines) < _MAX_LOG:
            self.lines.append((record.levelno, text))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request. Without `texts`, it only names the service of the URL."""
    import apprise  # noqa: PLC0415 - main sets the path first

    log, url = _Log(), request["url"]
    apprise.logger.addHandler(log)
    apprise.logger.setLevel(logging.DEBUG)
    service, sent = make_service(url), False
    key = next((one for one in _KEYS if service and one in service.template_args), None)
    if service and "texts" in request:
        # apprise's default time-outs are 4 s; `success` resolves an incident, every other kind opens one
        added = {"cto": f"{request['seconds']:g}", "rto": f"{request['seconds']:g}", "retry": "0"}
        added |= {key: request["incident"], "action": "map"} if key else {}
        service = make_service(f"{url}{'&' if '?' in url else '?'}{urlencode(added)}")
        sent = (_close if request["is_over"] and key == "alias" else _send)(service, request)
    name = service and str(service.service_name)
    return {"service": name, "is_pager": key is not None, "sent": sent, "log": log.lines}


def make_service(url: str) -> Any:  # noqa: ANN401 - apprise's services have no common type for what is used here
    """Return apprise's service for a URL; None if apprise does not know the URL."""
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


def schema_of(service: Any) -> str:  # noqa: ANN401 - as above
    """Return the first URL schema of a service. apprise has one, several or None for each kind."""
    given = service.secure_protocol or service.protocol
    return str(given if isinstance(given, str) else given[0])


def _send(service: Any, request: dict[str, Any]) -> bool:  # noqa: ANN401 - as above
    form = service.resolve_format(_FORMATS.get(schema_of(service), "text"))
    title, body = fit(service, form, request["title"], request["texts"])
    return bool(service.notify(body=body, title=title, notify_type=request["kind"], body_format=form))


def _close(service: Any, request: dict[str, Any]) -> bool:  # noqa: ANN401 - as above
    """Close an incident of Opsgenie or Jira by its alias.

    apprise itself closes it by an id from the response to its creation, which does not survive a restart.
    """
    import requests  # noqa: PLC0415 - comes with apprise

    module = sys.modules[type(service).__module__]
    addresses = getattr(module, f"{schema_of(service).upper()}_API_LOOKUP")  # region -> address of the API
    url = f"{addresses[service.region_name]}/{request['incident']}/close"
    body, by = {"source": service.app_desc, "note": request["title"]}, {"identifierType": "alias"}
    # apprise's own method sends its credentials, and logs why a request fails
    return bool(service._fetch(requests.post, url, body, by)[0])  # noqa: SLF001


def fit(service: Any, form: Any, title: str, texts: list[str]) -> tuple[str, str]:  # noqa: ANN401 - as above
    """Return the title, and the first text that fits the limits of the service in its format, or else a shortened one.

    The plain text is shortened before it is escaped, because a cut could leave half of an escape sequence. If a service
    has no titles, or shows them within the text, the title becomes the first line of the text.
    """
    from apprise.conversion import convert_between  # noqa: PLC0415 - as above

    if service.title_maxlen <= 0 or service.overflow_amalgamate_title:
        title, texts = "", [f"{title}\n{text}" for text in texts]

    def converted(text: str) -> str:
        return str(convert_between("text", form, text))

    def fits(text: str) -> bool:
        size = len(service.dialect_convert(converted(text), form))
        return bool(len(text) <= _MAX_CHARACTERS and size <= service.body_maxlen)

    if (text := next(filter(fits, texts), None)) is None:
        most = min(len(texts[-1]), _MAX_CHARACTERS) + 1
        first = bisect_left(range(most), True, key=lambda length: not fits(_shorten(texts[-1], length)))  # noqa: FBT003
        text = _shorten(texts[-1], first - 1)
    return _shorten(title, service.title_maxlen), converted(text)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def main() -> None:
    """Answer the request on standard input. What apprise prints goes to standard error."""
    request = json.load(sys.stdin)
    signal.alarm(int(request["seconds"]) + _LEFT_SECONDS)
    sys.path[:] = request["path"]
    output, sys.stdout = sys.stdout, sys.stderr
    json.dump(answer(request), output)
    output.flush()
    os._exit(0)  # does not wait for threads that a service started


if __name__ == "__main__":
    main()
