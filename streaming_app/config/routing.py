"""The sections `routes`, `time_intervals`, `silences` and `running_hours` of the configuration.

They say who owns which groups, where their alerts go, when these are not sent, and when a group is meant to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from streaming_app.alerts.evaluate import RULES
from streaming_app.alerts.routes import Route, Routes
from streaming_app.config.key_path import closest_name
from streaming_app.notify.silences import RecurringSilence
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

_FEW = 20
_CACHED_GROUPS = 1 << 16
_Name = Annotated[str, Field(min_length=1, max_length=200)]


def as_list(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a list of one text, so that a single one needs no list."""
    return [given] if isinstance(given, str) else given


def _check_rule(name: str) -> str:
    if name not in RULES:
        check_names([name], RULES, "rule")
    return name


class RouteSettings(Section):
    """An entry of `routes`."""

    groups: Pattern | None = None
    """Groups whose whole id matches; None: every alert, also those about the job and the cluster."""
    severity: Annotated[tuple[Literal["critical", "warning", "info"], ...], BeforeValidator(as_list)] = ()
    """Only alerts of these severities; default of any."""
    team: _Name | None = None
    """Who owns these groups."""
    sinks: Annotated[tuple[_Name, ...], BeforeValidator(as_list)] | None = None
    """Where these alerts go, by the names of the sinks; default to every one, none for an empty list."""
    continue_: bool = Field(default=False, alias="continue")
    """Whether the routes after it are tried, too."""

    def route(self) -> Route:
        """Return the route."""
        return Route(self.groups, frozenset(self.severity), self.team, self.sinks, self.continue_)


class TimesSettings(Section):
    """A part of a day."""

    start_time: str
    end_time: str

    @model_validator(mode="after")
    def _are_times(self) -> Self:
        parse_times(self.start_time, self.end_time)
        return self


def _texts(parse: Callable[[str], object]) -> Any:  # noqa: ANN401 - a type
    """Return the type of a list of texts of this form; a single one needs no list, and a number no quotes."""

    def check(text: str) -> str:
        parse(text)
        return text

    def to_list(given: Any) -> Any:  # noqa: ANN401 - any YAML value
        items = given if isinstance(given, list | tuple) else [given]
        return [str(one) if type(one) is int else one for one in items]

    return Annotated[tuple[Annotated[str, AfterValidator(check)], ...], BeforeValidator(to_list)]


class IntervalSettings(Section):
    """One interval, in Alertmanager's syntax."""

    times: tuple[TimesSettings, ...] = ()
    weekdays: _texts(parse_weekdays) = ()  # type: ignore[valid-type]
    days_of_month: _texts(parse_days_of_month) = ()  # type: ignore[valid-type]
    months: _texts(parse_months) = ()  # type: ignore[valid-type]
    years: _texts(parse_years) = ()  # type: ignore[valid-type]
    location: str = "UTC"
    """A name of the time zone database, such as Europe/Berlin."""

    @field_validator("location")
    @classmethod
    def _exists(cls, location: str) -> str:
        parse_location(location)
        return location

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


class SilenceSettings(Section):
    """An entry of `silences`: alerts that are not sent at times that recur."""

    groups: Pattern
    rule: Annotated[str, AfterValidator(_check_rule)] | None = None
    """Only this rule; one about the job or the cluster is silenced only by its name."""
    mute_time_intervals: Annotated[tuple[_Name, ...], BeforeValidator(as_list)] = ()
    active_time_intervals: Annotated[tuple[_Name, ...], BeforeValidator(as_list)] = ()
    """They are sent at these times only."""
    comment: str | None = None


class RunningHoursSettings(Section):
    """An entry of `running_hours`: when groups are meant to run."""

    groups: Pattern
    time_intervals: Annotated[tuple[_Name, ...], BeforeValidator(as_list), Field(min_length=1)]


def _intervals(names: Sequence[str], known: Sequence[NamedIntervals]) -> tuple[TimeInterval, ...]:
    return tuple(one.interval() for named in known if named.name in names for one in named.time_intervals)


def make_silences(settings: Sequence[SilenceSettings], known: Sequence[NamedIntervals]) -> tuple[RecurringSilence, ...]:
    """Return the silences that recur."""
    return tuple(
        RecurringSilence(
            f"silences[{number}]",
            one.groups,
            one.rule,
            _intervals(one.mute_time_intervals, known),
            _intervals(one.active_time_intervals, known),
            one.comment or "",
        )
        for number, one in enumerate(settings)
    )


def make_running_hours(
    settings: Sequence[RunningHoursSettings], known: Sequence[NamedIntervals]
) -> Callable[[str], tuple[TimeInterval, ...]]:
    """Return the function that returns when a group is meant to run: by the first entry that matches, if any does."""
    entries = [(one.groups, _intervals(one.time_intervals, known)) for one in settings]

    @lru_cache(_CACHED_GROUPS)
    def running_hours_of(group_id: str) -> tuple[TimeInterval, ...]:
        return next((intervals for groups, intervals in entries if groups.matches(group_id)), ())

    return running_hours_of


def make_routes(settings: Sequence[RouteSettings]) -> Routes:
    """Return the routes of these settings."""
    return Routes([one.route() for one in settings])


def is_complete(settings: Sequence[RouteSettings]) -> bool:
    """Tell whether every alert matches a route: one that none matches goes to every sink."""
    return any(one.groups is None and not one.severity for one in settings)


def check_names(wanted: Collection[str], known: Collection[str], kind: str) -> None:
    """Raise ValueError, with a line that names the first, unless all `wanted` names are known ones of this kind."""
    for name in wanted:
        if name not in known:
            close = closest_name(name, known)
            all_known = ", ".join(known) if len(known) <= _FEW else f"one of {len(known)}"
            meant = f"; did you mean {close}?" if close else f": there is {all_known or 'none'}"
            raise ValueError(f'"{name}" is not the name of a {kind}{meant}')
