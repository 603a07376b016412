"""The sections `time_intervals`, `running_hours` and `mute_times` of the configuration: times for groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from streaming_app.health.time_intervals import KINDS, TimeInterval, parse_location, parse_range, parse_times
from streaming_app.section import Pattern, Section

_CACHED_GROUPS = 1 << 16


def as_list(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a list of one text or number, so that a single one needs no list."""
    return [given] if isinstance(given, str | int) else given


_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Ranges = Annotated[tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...], BeforeValidator(as_list)]
"""Texts such as `monday:friday`; a number needs no quotes."""


class TimesSettings(Section):
    """A part of a day."""

    start_time: str
    end_time: str


class IntervalSettings(Section):
    """One interval, in Alertmanager's syntax."""

    times: tuple[TimesSettings, ...] = ()
    weekdays: _Ranges = ()
    days_of_month: _Ranges = ()
    months: _Ranges = ()
    years: _Ranges = ()
    location: str = "UTC"
    """A name of the time zone database, such as Europe/Berlin."""

    def interval(self) -> TimeInterval:
        """Return the interval. Raises ValueError."""
        times = tuple(parse_times(one.start_time, one.end_time) for one in self.times)
        weekdays, days, months, years = (
            tuple(parse_range(kind, text) for text in getattr(self, kind)) for kind in KINDS
        )
        return TimeInterval(times, weekdays, days, months, years, parse_location(self.location))

    @model_validator(mode="after")
    def _is_interval(self) -> Self:
        self.interval()
        return self


class NamedIntervals(Section):
    """An entry of `time_intervals`: a time is in it if it is in one of its intervals."""

    name: _Name
    time_intervals: tuple[IntervalSettings, ...]


class GroupTimesSettings(Section):
    """An entry of `running_hours` or `mute_times`: times for the groups whose whole id matches."""

    groups: Pattern
    time_intervals: Annotated[tuple[_Name, ...], BeforeValidator(as_list), Field(min_length=1)]


def make_times_of(
    settings: Sequence[GroupTimesSettings], known: Sequence[NamedIntervals]
) -> Callable[[str], tuple[TimeInterval, ...]]:
    """Return the function that returns the times for a group: by the first entry that matches, if any does."""
    intervals = {named.name: [one.interval() for one in named.time_intervals] for named in known}
    entries = [(one.groups, tuple(chain(*(intervals[name] for name in one.time_intervals)))) for one in settings]

    @lru_cache(_CACHED_GROUPS)
    def times_of(group_id: str) -> tuple[TimeInterval, ...]:
        return next((intervals for groups, intervals in entries if groups.matches(group_id)), ())

    return times_of
