"""Recurring times, in the syntax of Alertmanager's `time_intervals`: nights, the last days of a month. Pure.

https://prometheus.io/docs/alerting/latest/configuration/#time_interval-0 has the syntax. A time is in an interval if it
matches every given field, by the local time of the interval's location. So when clocks are set back, a minute occurs
twice in the interval; a minute that clocks skip never does. No Python library supports this syntax.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from itertools import chain
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Range = tuple[int, int]
"""The first and the last of something; of minutes of a day, the first one and the first after them."""

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_MINUTES = 24 * 60
_LOOKED_AHEAD = 400  # days: an interval that does not change in so long changes at its years
_CLOCK = re.compile(r"(\d{2}):(\d{2})")
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if number}
KINDS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "weekdays": (
        "a weekday such as monday:friday",
        {name: number for number, name in enumerate(_WEEKDAYS)},
    ),
    "days_of_month": ("a day such as 1:5 or -3:-1", {str(day): day for day in range(-31, 32) if day}),
    "months": ("a month such as june:august", _MONTHS | {str(number): number for number in _MONTHS.values()}),
    "years": ("a year such as 2026:2028", {str(year): year for year in range(1, 10_000)}),
}
"""By the name of its field: the form of a range, and the number of each name."""


@dataclass(frozen=True)
class TimeInterval:
    """One interval; an empty field matches every time."""

    times: Sequence[Range] = ()
    """Minutes of the day."""
    weekdays: Sequence[Range] = ()
    """From 0, Sunday."""
    days_of_month: Sequence[Range] = ()
    """From 1, or, from the end of the month, from -1."""
    months: Sequence[Range] = ()
    years: Sequence[Range] = ()
    location: ZoneInfo | timezone = timezone.utc

    def contains(self, at: datetime) -> bool:
        """Tell whether a time is in it."""
        local = at.astimezone(self.location)
        if self.times and not any(first <= 60 * local.hour + local.minute < end for first, end in self.times):
            return False
        return self._contains_day(local.date())

    def _contains_day(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        fields = ((self.weekdays, weekday), (self.months, day.month), (self.years, day.year))
        if not all(not ranges or any(first <= value <= last for first, last in ranges) for ranges, value in fields):
            return False
        length = calendar.monthrange(day.year, day.month)[1]
        return not self.days_of_month or any(
            _from_first(first, length) <= day.day <= _from_first(last, length) for first, last in self.days_of_month
        )


@lru_cache(maxsize=1024)
def _bounds(location: ZoneInfo | timezone, day: date, minutes: tuple[int, ...]) -> tuple[datetime, ...]:
    """Return when an interval with bounds at these minutes may begin or end on a local day, which is asked again."""
    begin, end = (datetime(one.year, one.month, one.day, tzinfo=location) for one in (day, day + _DAY))
    if begin.utcoffset() != end.utcoffset():  # the clocks are changed: any minute may be one
        first = begin.astimezone(timezone.utc)
        length = end.astimezone(timezone.utc) - first
        return tuple(first + number * _MINUTE for number in range(length // _MINUTE + 1))
    return tuple(
        begin.replace(hour=minute // 60, minute=minute % 60).astimezone(timezone.utc)
        for minute in {0, *minutes}
        if minute < _MINUTES
    )


def _from_first(day: int, length: int) -> int:
    return day if day > 0 else length + day + 1


def contain(intervals: Iterable[TimeInterval], at: datetime) -> bool:
    """Tell whether a time is in one of these."""
    return any(one.contains(at) for one in intervals)


def next_change(intervals: Sequence[TimeInterval], at: datetime) -> datetime | None:
    """Return when a time after this one is in one of these, if this one is not, or in none; None: not soon."""
    before, today = contain(intervals, at), at.astimezone(timezone.utc).date()
    for day in (today + number * _DAY for number in range(_LOOKED_AHEAD)):
        found = {
            bound
            for one in intervals
            for offset in (-1, 0, 1)  # local days, of which three cover a day of UTC
            for bound in _bounds(one.location, day + offset * _DAY, tuple(chain(*one.times)))
        }
        for bound in sorted(found):
            if bound > at and bound.date() == day and contain(intervals, bound) != before:
                return bound
    return None


def parse_times(start: str, end: str) -> Range:
    """Return a range of minutes of a day, of texts such as `17:30`, up to `24:00`. Raises ValueError."""
    minutes = []
    for text in (start, end):
        found = _CLOCK.fullmatch(text)
        if not found or int(found[2]) > 59 or (minute := 60 * int(found[1]) + int(found[2])) > _MINUTES:  # noqa: PLR2004 - of an hour
            raise ValueError(f'times must be from "00:00" to "24:00", not "{text}"')
        minutes.append(minute)
    first, last = minutes
    if first >= last:
        raise ValueError(f'start_time "{start}" must be before end_time "{end}": past midnight takes two ranges')
    return first, last


def parse_range(kind: str, text: str) -> Range:
    """Return a range such as `monday:friday` or `3` of a kind, which is a field with its name. Raises ValueError."""
    form, numbers = KINDS[kind]
    names = [name.strip() for name in text.lower().split(":", 1)]
    if not all(name in numbers for name in names):
        raise ValueError(f'{kind} must be {form}, not "{text}"')
    first, last = numbers[names[0]], numbers[names[-1]]
    if first < 0 < last:
        raise ValueError(f'{kind} must also end from the end of the month if they begin there, not "{text}"')
    if first > last and (first < 0) == (last < 0):
        raise ValueError(f'{kind} must begin before they end, not "{text}": over the end takes two')
    return first, last


def parse_location(name: str) -> ZoneInfo:
    """Return a time zone of the IANA's data base, such as `Europe/Berlin`. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f'location must be a name of the time zone database, such as Europe/Berlin, not "{name}"'
        ) from None
