"""The sections `time_intervals`, `running_hours` and `mute_times` of the configuration: times for groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from streaming_app.section import Pattern, Section
from streaming_app.time_intervals import (
    TimeInterval,
    parse_days_of_month,
    parse_location,
    parse_months,
    parse_times,
    parse_weekdays,
    parse_years,
)

_CACHED_GROUPS = 1 << 16
_Name = Annotated[str, Field(min_length=1, max_length=200)]


def as_list(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a list of one text or number, so that a single one needs no list."""
    return [given] if isinstance(given, str | int) else given


class TimesSettings(Section):
    """A part of a day."""

    start_time: str
    end_time: str

    @model_validator(mode="after")
    def _are_times(self) -> Self:
        parse_times(self.start_time, self.end_time)
        return self


def _text(parse: Callable[[str], object]) -> Any:  # noqa: ANN401 - a type
    """Return the type of a text of this form; a number needs no quotes."""

    def check(text: str) -> str:
        parse(text)
        return text

    return Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(check)]


def _texts(parse: Callable[[str], object]) -> Any:  # noqa: ANN401 - a type
    return Annotated[tuple[_text(parse), ...], BeforeValidator(as_list)]  # type: ignore[misc] # mypy takes it for a value


class IntervalSettings(Section):
    """One interval, in Alertmanager's syntax."""

    times: tuple[TimesSettings, ...] = ()
    weekdays: _texts(parse_weekdays) = ()  # type: ignore[valid-type]
    days_of_month: _texts(parse_days_of_month) = ()  # type: ignore[valid-type]
    months: _texts(parse_months) = ()  # type: ignore[valid-type]
    years: _texts(parse_years) = ()  # type: ignore[valid-type]
    location: _text(parse_location) = "UTC"  # type: ignore[valid-type]
    """A name of the time zone database, such as Europe/Berlin."""

    def interval(self) -> TimeInterval:
        """Return the interval."""
        return TimeInterval(
            tuple(parse_times(one.start_time, one.end_time) for one in self.times),
            tuple(map(parse_weekdays, self.weekdays)),
            tuple(map(parse_days_of_month, self.days_of_month)),
            tuple(map(parse_months, self.months)),
            tuple(map(parse_years, self.years)),
            parse_location(self.location),
        )


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
    intervals = {named.name: tuple(one.interval() for one in named.time_intervals) for named in known}
    entries = [
        (one.groups, tuple(chain.from_iterable(intervals[name] for name in one.time_intervals))) for one in settings
    ]

    @lru_cache(_CACHED_GROUPS)
    def times_of(group_id: str) -> tuple[TimeInterval, ...]:
        return next((intervals for groups, intervals in entries if groups.matches(group_id)), ())

    return times_of
