"""Recurring times such as nights or the last days of a month, in the syntax of Alertmanager's `time_intervals`. Pure.

The syntax: https://prometheus.io/docs/alerting/latest/configuration/#time_interval-0. A time is in an interval if it
matches every given field, in the local time of the interval's location. So when clocks are set back, an interval has
some minutes twice; when they are set forward, it does not have the skipped minutes. No Python library supports this
syntax.
"""

import calendar
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from itertools import chain, pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Range = tuple[int, int]
"""First and last value, both included. For minutes of a day, the second value is not included."""

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_MINUTES = 24 * 60
_LOOKED_AHEAD = 400  # days: an interval without a change for so long can change only by its `years`
_CLOCK = {f"{minute // 60:02}:{minute % 60:02}": minute for minute in range(_MINUTES + 1)}
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if number}
KINDS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "weekdays": ("a weekday such as monday:friday", {name: number for number, name in enumerate(_WEEKDAYS)}),
    "days_of_month": ("a day such as 1:5 or -3:-1", {str(day): day for day in range(-31, 32) if day}),
    "months": ("a month such as june:august", _MONTHS | {str(number): number for number in _MONTHS.values()}),
    "years": ("a year such as 2026:2028", {str(year): year for year in range(1, 10_000)}),
}
"""Name of a field -> a description of its ranges, and name of a value -> its number."""


@dataclass(frozen=True)
class TimeInterval:
    """One interval. An empty field matches every time."""

    times: Sequence[Range] = ()
    """Minutes of the day."""
    weekdays: Sequence[Range] = ()
    """0 is Sunday."""
    days_of_month: Sequence[Range] = ()
    """1 is the first day of the month, -1 the last one."""
    months: Sequence[Range] = ()
    years: Sequence[Range] = ()
    location: ZoneInfo | timezone = timezone.utc

    def contains(self, at: datetime) -> bool:
        """Return whether a time is in the interval."""
        local = at.astimezone(self.location)
        minute, length = 60 * local.hour + local.minute, calendar.monthrange(local.year, local.month)[1]
        days = [[day if day > 0 else length + day + 1 for day in ends] for ends in self.days_of_month]
        of_week = local.isoweekday() % 7
        fields = ((self.weekdays, of_week), (days, local.day), (self.months, local.month), (self.years, local.year))
        is_time = not self.times or any(first <= minute < end for first, end in self.times)
        return is_time and all(
            not ranges or any(first <= value <= last for first, last in ranges) for ranges, value in fields
        )


@lru_cache(maxsize=1024)
def _bounds(location: ZoneInfo | timezone, day: date, minutes: tuple[int, ...]) -> tuple[datetime, ...]:
    """Return the times on a local day when an interval with bounds at these minutes may begin or end."""
    begin, end = (datetime(one.year, one.month, one.day, tzinfo=location) for one in (day, day + _DAY))
    if begin.utcoffset() != end.utcoffset():  # clocks are changed on this day, and may skip a bound, or have it twice
        first = begin.astimezone(timezone.utc)
        length = end.astimezone(timezone.utc) - first
        every = [first + number * _MINUTE for number in range(-1, length // _MINUTE + 1)]
        return tuple(
            local.astimezone(timezone.utc)
            for before, local in pairwise(one.astimezone(location) for one in every)
            if 60 * local.hour + local.minute in {0, *minutes} or before.utcoffset() != local.utcoffset()
        )
    return tuple(
        begin.replace(hour=minute // 60, minute=minute % 60).astimezone(timezone.utc)
        for minute in {0, *minutes}
        if minute < _MINUTES
    )


def contain(intervals: Iterable[TimeInterval], at: datetime) -> bool:
    """Return whether a time is in one of the intervals."""
    return any(one.contains(at) for one in intervals)


def next_change(intervals: Sequence[TimeInterval], at: datetime) -> datetime | None:
    """Return the next time after `at` when `contain` changes its value; None if there is none in 400 days."""
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
    """Return a range of minutes of a day, from texts such as `17:30`, up to `24:00`. Raises ValueError."""
    for text in (start, end):
        if text not in _CLOCK:
            raise ValueError(f'times must be from "00:00" to "24:00", not "{text}"')
    first, last = _CLOCK[start], _CLOCK[end]
    if first >= last:
        raise ValueError(f'start_time "{start}" must be before end_time "{end}"; a time over midnight needs two ranges')
    return first, last


def parse_range(kind: str, text: str) -> Range:
    """Return a range such as `monday:friday` or `3` for a field, which is a key of `KINDS`. Raises ValueError."""
    form, numbers = KINDS[kind]
    names = [name.strip() for name in text.lower().split(":", 1)]
    if not all(name in numbers for name in names):
        raise ValueError(f'{kind} must be {form}, not "{text}"')
    first, last = numbers[names[0]], numbers[names[-1]]
    if first < 0 < last:
        raise ValueError(f'{kind} must end with a negative day if they begin with one, not "{text}"')
    if first > last and (first < 0) == (last < 0):
        raise ValueError(f'{kind} must begin before they end, not "{text}"; a range over the end needs two ranges')
    return first, last


def parse_location(name: str) -> ZoneInfo:
    """Return a time zone of the IANA time zone database, such as `Europe/Berlin`. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f'location must be a name of the time zone database, such as Europe/Berlin, not "{name}"'
        ) from None
