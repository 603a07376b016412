"""Renders the templates, and keeps rendered pages.

It escapes every value. Names, times and numbers go through the filters of this module.
"""

import gzip
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from streaming_app import job_status
from streaming_app.queries.group_list import TYPES
from streaming_app.queries.output import cell
from streaming_app.tables.reader import quote
from streaming_app.text import EPOCH, count, duration, utc, utc_iso
from streaming_app.web import group_page, overview, window, words

COMPRESSED_FROM = 1_000
"""Bytes of a response: shorter ones are sent as they are."""
_COMPRESS_LEVEL = 6
_UTC_FORM = "%Y-%m-%d %H:%M:%S"
_MAX_SQL = 1_000  # characters in a link
_NAME = Markup('<bdi class="name">{}</bdi>')
_TIME = Markup('<time datetime="{}" data-time>{}</time>')
_AGE = Markup('<time datetime="{}" data-age title="{}">{}</time>')
_NOTHING = Markup('<span class="none">{}</span>').format(words.NOTHING)


def render(
    template: str,
    now: datetime,
    cluster_parameter: str | None,
    **values: Any,  # noqa: ANN401 - the values of templates
) -> str:
    """Return the page as HTML. Ages are relative to `now`. All links have `cluster_parameter`."""
    chosen = {} if cluster_parameter is None else {"cluster": cluster_parameter}
    suffix = f"?{urlencode(chosen)}" if chosen else ""

    def age(moment: datetime | None) -> Markup:
        if moment is None:
            return _NOTHING
        text = duration((now - moment).total_seconds())
        return _AGE.format(utc_iso(moment), utc(moment), text)

    names = ("alerts", "changes", "sql")
    links = {"home": f"./{suffix}", **{f"{one}_link": f"{one}{suffix}" for one in names}}
    links["with_alerts_url"] = f"./?{urlencode({**chosen, 'show': overview.FIRING_ONLY})}"
    return _ENVIRONMENT.get_template(template).render(
        age=age,
        now=now,
        group_query=partial(words.group_query, cluster=cluster_parameter),
        group_fields=partial(words.group_fields, cluster=cluster_parameter),
        sql_url=partial(sql_url, cluster=cluster_parameter),
        cluster_parameter=cluster_parameter,
        **links,
        **values,
    )


class Rendered:
    """A rendered page, plain and compressed: after a change all viewers load it."""

    def __init__(self, response: Response) -> None:
        self._response = response
        body = bytes(response.body)
        self._compressed = gzip.compress(body, _COMPRESS_LEVEL) if len(body) >= COMPRESSED_FROM else None

    def answer(self, request: Request, etag: str) -> Response:
        """Return the response to a request."""
        status, headers = self._response.status_code, {**self._response.headers, "ETag": etag}
        if self._compressed is None or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self._response.body, status, headers)
        size = str(len(self._compressed))
        headers |= {"content-length": size, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(self._compressed, status, headers)


def name(text: str | None, limit: int = 96) -> Markup:
    """Return a name from Kafka: on one line, without invisible characters, and with its own text direction."""
    return _NOTHING if text is None else _NAME.format(words.short_name(text, limit))


def rows_of(name: str, group_id: str | None = None, order: str = "", **values: str) -> str | None:
    """Return the query of the rows of a table or view with these values; None if it is too long for a URL."""
    wanted = {**values, **({} if group_id is None else {"group_id": group_id})}
    where = " AND ".join(f"{column} = {quote(value)}" for column, value in wanted.items())
    sql = f"SELECT * FROM {name}{where and f' WHERE {where}'}{order and f' ORDER BY {order}'}"  # noqa: S608 - quoted
    return sql if len(sql) < _MAX_SQL else None


def sql_url(sql: str, cluster: str | None, **others: str) -> str:
    """Return the URL that runs a query."""
    return f"sql?{urlencode({**({} if cluster is None else {'cluster': cluster}), 'q': sql, **others})}"


def time(moment: datetime | None) -> Markup:
    """Return a time in UTC. The browser adds the local time as a title."""
    return _NOTHING if moment is None else _TIME.format(utc_iso(moment), utc(moment))


def timed(text: str) -> Markup:
    """Return a sentence with its times, as `text.utc` writes them, for the browser to show as local times."""
    shown, begin = Markup(), 0
    end = text.find("Z")
    while end >= 0:
        start = end + 1 - len(utc(EPOCH))
        with suppress(ValueError):
            moment = datetime.strptime(text[max(start, begin) : end], _UTC_FORM).replace(tzinfo=timezone.utc)
            shown += escape(text[begin:start]) + time(moment)
            begin = end + 1
        end = text.find("Z", end + 1)
    return shown + escape(text[begin:])


_ENVIRONMENT = Environment(
    loader=PackageLoader("streaming_app.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "name": name,
    "number": words.number,
    "duration": duration,
    "time": time,
    "plain": lambda text, limit=400: "" if text is None else words.short_name(text, limit),
    "timed": timed,
    **{one: vars(words)[one] for one in ("causes_text", "event_text", "health_meaning")},
}
_SHOWN = {
    group_page: ("MAX_EVENTS", "SHOWN_LAG", "SHOWN_MEMBERS", "not_over"),
    job_status: ("inputs", "inputs_of_lag"),
    overview: ("ASCENDING", "COLUMNS", "NOT_IN_LOG", "SHOW"),
    window: ("RANGES", "url_time"),
    words: ("DESCRIPTIONS", "NO_MEANING", "STATES", "label_text"),
}
"""Module -> what templates use of it."""
_ENVIRONMENT.globals |= {
    "count": count,
    "instant": utc,
    "rows_of": rows_of,
    "cell": cell,
    "TYPES": TYPES,
    **{one: vars(module)[one] for module, names in _SHOWN.items() for one in names},
}
