"""Renders the templates. Every value is escaped; names, times and numbers go through the filters of this module."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from streaming_app.page import overview, timeline, words
from streaming_app.page.group_page import SHOWN_EVENTS, SHOWN_LAG, SHOWN_MEMBERS
from streaming_app.queries.groups import format_tasks

_NAME = Markup('<bdi class="name">{}</bdi>')
_TIME = Markup('<time datetime="{}" data-time>{}</time>')
_AGE = Markup('<time datetime="{}" data-age title="{}">{}</time>')
_NOTHING = Markup('<span class="none">{}</span>').format(words.NOTHING)


class Renderer:
    """The templates."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("streaming_app.page"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "name": name,
            "number": words.number,
            "duration": words.duration,
            "time": time,
            "plain": short_text,
            "state_meaning": words.state_meaning,
            "description_meaning": words.description_meaning,
            "event_text": timeline.event_text,
            "tasks": format_tasks,
        }
        self._environment.globals |= {
            "group_query": words.group_query,
            "count": words.count,
            "instant": words.instant,
            "STATES": words.STATES,
            "DESCRIPTIONS": words.DESCRIPTIONS,
            "SHOW": overview.SHOW,
            "RANGES": timeline.RANGES,
            "SHOWN_EVENTS": SHOWN_EVENTS,
            "SHOWN_MEMBERS": SHOWN_MEMBERS,
            "SHOWN_LAG": SHOWN_LAG,
        }

    def render(self, template: str, now: datetime, **values: Any) -> str:  # noqa: ANN401 - what templates take
        """Return the page as HTML. `now` is what ages are counted to."""

        def age(moment: datetime | None) -> Markup:
            if moment is None:
                return _NOTHING
            text = words.duration((now - moment).total_seconds())
            return _AGE.format(words.iso(moment), words.instant(moment), text)

        return self._environment.get_template(template).render(age=age, now=now, **values)


def name(text: str | None, limit: int = 96) -> Markup:
    """Return a name from Kafka: on one line, with nothing invisible in it, and a text direction of its own."""
    return _NOTHING if text is None else _NAME.format(words.short_name(text, limit))


def short_text(text: str | None, limit: int = 400) -> str:
    """Return a sentence that may contain names from Kafka."""
    return "" if text is None else words.short_name(text, limit)


def time(moment: datetime | None) -> Markup:
    """Return a time in UTC; the browser adds the local time as a title."""
    return _NOTHING if moment is None else _TIME.format(words.iso(moment), words.instant(moment))
