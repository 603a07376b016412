"""Times that recur, in Alertmanager's syntax, with clocks that are put forward and back."""

from datetime import datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.health.time_intervals import (
    Range,
    TimeInterval,
    contain,
    next_change,
    parse_location,
    parse_range,
    parse_times,
)

BERLIN, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe")  # an hour, half an hour
MINUTE = timedelta(minutes=1)
CHANGES = {  # of the clocks, in UTC
    "none": datetime(2026, 11, 24, 1, tzinfo=timezone.utc),
    "forward": datetime(2026, 3, 29, 1, tzinfo=timezone.utc),
    "back": datetime(2026, 10, 25, 1, tzinfo=timezone.utc),
    "Lord Howe forward": datetime(2026, 10, 3, 15, 30, tzinfo=timezone.utc),
    "Lord Howe back": datetime(2026, 4, 4, 15, tzinfo=timezone.utc),
    "end of a leap month": datetime(2028, 2, 29, 23, tzinfo=timezone.utc),
}


def at(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(timezone.utc)


OFFICE = TimeInterval(times=[(540, 1020)], weekdays=[(1, 5)], location=BERLIN)


@pytest.mark.parametrize(
    ("interval", "text", "expected"),
    [
        (OFFICE, "2026-11-24 09:00", True),  # a Tuesday
        (OFFICE, "2026-11-24 08:59", False),
        (OFFICE, "2026-11-24 17:00", False),  # the end is not in it
        (OFFICE, "2026-11-22 12:00", False),  # a Sunday
        (TimeInterval(days_of_month=[(-3, -1)], location=BERLIN), "2026-02-26 12:00", True),
        (TimeInterval(days_of_month=[(-3, -1)], location=BERLIN), "2026-02-25 12:00", False),
        (TimeInterval(days_of_month=[(30, -1)], location=BERLIN), "2026-02-28 12:00", False),
        (TimeInterval(months=[(12, 12)], years=[(2026, 2027)], location=BERLIN), "2026-12-24 12:00", True),
        (TimeInterval(months=[(12, 12)], years=[(2026, 2027)], location=BERLIN), "2028-12-24 12:00", False),
    ],
)
def test_a_time_is_in_an_interval_if_every_field_matches(interval: TimeInterval, text: str, expected: bool) -> None:
    assert interval.contains(at(text)) is expected


def test_clocks_put_forward_leave_a_time_out_and_put_back_show_it_twice() -> None:
    night = TimeInterval(times=[(150, 180)], location=BERLIN)  # 02:30 to 03:00
    for change, minutes in (("none", 30), ("forward", 0), ("back", 60)):
        begin = CHANGES[change] - timedelta(hours=6)
        assert sum(night.contains(begin + number * MINUTE) for number in range(12 * 60)) == minutes


_RANGES = st.tuples(st.integers(0, 1439), st.integers(1, 1440)).filter(lambda pair: pair[0] < pair[1])
_MINUTES = 2 * 1440  # are looked at one by one
_INTERVAL = st.builds(
    TimeInterval,
    times=st.lists(_RANGES | st.sampled_from([(120, 180), (150, 181), (0, 1440), (60, 120)]), max_size=2).map(tuple),
    weekdays=st.lists(st.sampled_from([(0, 0), (1, 5), (6, 6)]), max_size=2).map(tuple),
    days_of_month=st.lists(st.sampled_from([(1, 1), (-1, -1), (20, -2)]), max_size=1).map(tuple),
    location=st.sampled_from([BERLIN, LORD_HOWE, timezone.utc]),
)


@given(
    intervals=st.lists(_INTERVAL, min_size=1, max_size=3),
    change=st.sampled_from(sorted(CHANGES)),
    minutes=st.integers(-2_000, 2_000),
    seconds=st.integers(0, 59),
)
def test_the_next_change_is_the_first_minute_that_differs(
    intervals: list[TimeInterval], change: str, minutes: int, seconds: int
) -> None:
    begin = CHANGES[change] + minutes * MINUTE + timedelta(seconds=seconds)
    found, now = next_change(intervals, begin), contain(intervals, begin)
    first = begin.replace(second=0) + MINUTE
    times = (first + number * MINUTE for number in range(_MINUTES))
    expected = next((time for time in times if contain(intervals, time) != now), None)
    if expected is None:
        assert found is None or found > first + (_MINUTES - 1) * MINUTE
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("weekdays", "monday:friday", (1, 5)),
        ("days_of_month", "1:5", (1, 5)),
        ("days_of_month", "-3:-1", (-3, -1)),
        ("days_of_month", "20:-2", (20, -2)),
        ("months", "june:August", (6, 8)),
        ("years", "2026:2028", (2026, 2028)),
    ],
)
def test_ranges_are_parsed_as_alertmanager_does(kind: str, text: str, expected: Range) -> None:
    assert parse_range(kind, text) == expected
    assert parse_times("22:30", "24:00") == (1350, 1440)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (partial(parse_range, "weekdays"), "friday:sunday"),
        (partial(parse_range, "weekdays"), "monday:"),
        (partial(parse_range, "days_of_month"), "0"),
        (partial(parse_range, "days_of_month"), "-3:5"),
        (partial(parse_range, "days_of_month"), "5:3"),
        (partial(parse_range, "days_of_month"), "-1:-3"),
        (partial(parse_range, "days_of_month"), "32"),
        (partial(parse_range, "months"), "august:june"),
        (partial(parse_range, "years"), "x"),
        (parse_location, "Europe/Belin"),
        (parse_location, "../etc/passwd"),
        (lambda text: parse_times(*text.split()), "22:00 06:00"),
        (lambda text: parse_times(*text.split()), "09:00 24:01"),
    ],
)
def test_what_alertmanager_refuses_is_refused(parse: object, text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse(text)  # type: ignore[operator]
