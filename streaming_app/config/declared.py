"""The sections that declare values for groups by a pattern: `labels`, `running_hours` and `mute_times`.

`running_hours` and `mute_times` name intervals of the section `time_intervals`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from streaming_app.health.time_intervals import KINDS, TimeInterval, parse_location, parse_range, parse_times
from streaming_app.section import Pattern, Section

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OURS = frozenset(
    {
        *("alertname", "cause", "cluster", "group", "group_id", "muted", "rule", "severity", "verdict"),
        *("ended_by", "fired", "page", "resolved", "runbook", "since", "summary"),
    }
)
"""The labels of alerts and metrics, and the fields of a message."""
_CACHED_GROUPS = 1 << 16


class LabelsSettings(Section):
    """An entry of `labels`: labels for the groups whose whole id matches the pattern."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, Annotated[str, Field(min_length=1, max_length=200)]] = Field(init=False)
    groups: Pattern

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of this entry."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _are_labels(self) -> Self:
        if not self.labels:
            raise ValueError("has no label: add one, such as team: payments")
        for name in self.labels:
            if not _NAME.fullmatch(name) or name in _OURS:
                ours = (
                    ": streams-groups sets it itself, as a label or a field of a message"
                    if name in _OURS
                    else ": use letters, digits and _"
                )
                raise ValueError(f'"{name}" cannot be the name of a label{ours}')
        return self


def as_list(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a single text or number as a list, so that it needs no list in the file."""
    return [given] if isinstance(given, str | int) else given


_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Ranges = Annotated[tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...], BeforeValidator(as_list)]
"""Texts such as `monday:friday`; a number needs no quotes."""


class TimesSettings(Section):
    """A part of a day: from `start_time` to before `end_time`."""

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
    """A name in the time zone database, such as Europe/Berlin."""

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
    """An entry of `time_intervals`. It contains a time if one of its intervals contains it."""

    name: _Name
    time_intervals: tuple[IntervalSettings, ...]


class GroupTimesSettings(Section):
    """An entry of `running_hours` or `mute_times`: times for the groups whose whole id matches the pattern."""

    groups: Pattern
    time_intervals: Annotated[tuple[_Name, ...], BeforeValidator(as_list), Field(min_length=1)]


def make_labels(entries: Sequence[LabelsSettings]) -> Callable[[str], Mapping[str, str]]:
    """Return a function: group id -> the labels of all matching entries. For each name the last entry wins."""

    @lru_cache(_CACHED_GROUPS)
    def labels_of(group_id: str) -> Mapping[str, str]:
        matching = (one.labels for one in entries if one.groups.matches(group_id))
        return {name: value for labels in matching for name, value in labels.items()}

    return labels_of


def make_times_of(
    settings: Sequence[GroupTimesSettings], known: Sequence[NamedIntervals]
) -> Callable[[str], tuple[TimeInterval, ...]]:
    """Return a function: group id -> the times of the first matching entry, or none."""
    intervals = {named.name: [one.interval() for one in named.time_intervals] for named in known}
    entries = [(one.groups, tuple(chain(*(intervals[name] for name in one.time_intervals)))) for one in settings]

    @lru_cache(_CACHED_GROUPS)
    def times_of(group_id: str) -> tuple[TimeInterval, ...]:
        return next((times for groups, times in entries if groups.matches(group_id)), ())

    return times_of
