"""Times that recur, in the syntax of Alertmanager's `time_intervals`: nights, the last days of a month. Pure.

https://prometheus.io/docs/alerting/latest/configuration/#time_interval-0 has the syntax. A time is in an interval if it
matches every field that is given, by the clocks at its location; a minute that they show twice is in it twice, one that
they leave out never. No library has this syntax for Python.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Range = tuple[int, int]
"""The first and the last of something; of minutes of a day, the first one and the first after them."""

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_SHIFT = timedelta(hours=2)  # more than clocks are ever changed by
_MINUTES = 24 * 60
_LOOKED_AHEAD = 400  # days: an interval that does not change in so long changes at its years
_CLOCK = re.compile(r"(\d{2}):(\d{2})")
WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTHS = tuple(name.lower() for name in calendar.month_name)  # from 1 on
_LONGEST_MONTH = 31
_YEARS = range(1, 10_000)


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

    def bounds(self, day: date) -> Iterator[datetime]:
        """Yield the times of a local day at which it may begin or end, in any order."""
        yield from _bounds(self.location, day, tuple(minute for one in self.times for minute in one))


@lru_cache(maxsize=1024)
def _bounds(location: ZoneInfo | timezone, day: date, minutes: tuple[int, ...]) -> tuple[datetime, ...]:
    """Return the bounds of a day: who asks when something changes soon asks again, and of the same days."""
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
    known, before, end = at, contain(intervals, at), at + _LOOKED_AHEAD * _DAY
    while known < end:
        # A day of one location begins before that of another one ends: only what all of these days cover is in order.
        until = min(end, known + _DAY - _SHIFT)
        days = (
            (one, known.astimezone(one.location).date() + offset * _DAY) for one in intervals for offset in (-1, 0, 1)
        )
        for bound in sorted({bound for one, day in days for bound in one.bounds(day) if known < bound <= until}):
            if contain(intervals, bound) != before:
                return bound
        known = until
    return None


def parse_clock(text: str) -> int:
    """Return the minute of the day of a text such as `17:30`, up to `24:00`. Raises ValueError."""
    found = _CLOCK.fullmatch(text)
    minute = 60 * int(found[1]) + int(found[2]) if found else -1
    if not found or int(found[2]) > 59 or minute > _MINUTES:  # noqa: PLR2004 - of an hour
        raise ValueError(f'must be a time from "00:00" to "24:00", not "{text}"')
    return minute


def parse_times(start: str, end: str) -> Range:
    """Return a range of minutes of a day. Raises ValueError."""
    first, last = parse_clock(start), parse_clock(end)
    if first >= last:
        raise ValueError(f'start_time "{start}" must be before end_time "{end}": past midnight takes two ranges')
    return first, last


def parse_weekdays(text: str) -> Range:
    """Return a range of weekdays, such as `monday:friday`. Raises ValueError."""
    return _range(text, {name: number for number, name in enumerate(WEEKDAYS)}, "a weekday such as monday:friday")


def parse_days_of_month(text: str) -> Range:
    """Return a range of days, such as `1:5` or `-3:-1`. Raises ValueError."""
    names = {str(day): day for day in range(-_LONGEST_MONTH, _LONGEST_MONTH + 1) if day}
    first, last = _range(text, names, "a day such as 1:5 or -3:-1", ordered=False)
    if (first < 0 < last) or (first > last and (first < 0) == (last < 0)):
        raise ValueError(f'must begin before it ends, and from the end of the month also end there, not "{text}"')
    return first, last


def parse_months(text: str) -> Range:
    """Return a range of months, such as `1:3` or `june:august`. Raises ValueError."""
    names = {name: number for number, name in enumerate(MONTHS) if name}
    return _range(text, names | {str(number): number for number in names.values()}, "a month such as june:august")


def parse_years(text: str) -> Range:
    """Return a range of years, such as `2026:2028`. Raises ValueError."""
    return _range(text, {str(year): year for year in _YEARS}, "a year such as 2026:2028")


def parse_location(name: str) -> ZoneInfo:
    """Return a time zone of the IANA's data base, such as `Europe/Berlin`. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'must be a name of the time zone database, such as Europe/Berlin, not "{name}"') from None


def _range(text: str, values: dict[str, int], form: str, *, ordered: bool = True) -> Range:
    first, _, last = text.lower().partition(":")
    names = [first.strip(), (last or first).strip()]
    if not all(name in values for name in names):
        raise ValueError(f'must be {form}, not "{text}"')
    begin, end = (values[name] for name in names)
    if ordered and begin > end:
        raise ValueError(f'must begin before it ends, not "{text}": over the end takes two')
    return begin, end
