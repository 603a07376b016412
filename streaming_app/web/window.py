"""The window of a group's history: a range up to now, or a part of the past, and the chosen instant in it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.text import parse_instant, utc_iso

Row = Mapping[str, Any]
RANGES: Mapping[str, timedelta | None] = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "all": None,
}
_SHORTEST = timedelta(seconds=10)
_AROUND = timedelta(minutes=30)  # on each side of an instant outside of every range
_NAMES = ("at", "from", "to")
_YEARS = 1970, 2999
_PROBLEM = "A time must be like 2026-03-14 03:12:00Z, in UTC, or like 10m for ten minutes ago."


@dataclass(frozen=True)
class Window:
    """A period, and an instant in it."""

    begin: datetime
    end: datetime
    selected: str = ""
    """The range up to now; empty for a part of the past."""
    at: datetime | None = None
    problem: str | None = None
    """Why a time in the URL is invalid."""

    @property
    def until(self) -> datetime | None:
        """The end of the second of the instant: the page shows times to the second, and all events of that second."""
        return self.at and self.at.replace(microsecond=999_999)

    @property
    def parameters(self) -> dict[str, str]:
        """Its parameters in a URL, without the instant."""
        if self.selected:
            return {"range": self.selected}
        return {"from": url_time(self.begin), "to": url_time(self.end)}


def parse_window(parameters: Mapping[str, str], group: Row, now: datetime) -> Window:
    """Return the window of a URL: `range`, or `from` and `to`; with `at`, a window that contains this instant."""
    times, problem = _times(parameters, now)
    at = times["at"].replace(microsecond=0) if "at" in times else None  # the page shows times to the second
    if "from" in times and "to" in times:
        begin, end = sorted((times["from"], times["to"]))
        return Window(begin, max(end, begin + _SHORTEST), at=at, problem=problem)
    selected = parameters.get("range", "")
    if selected not in RANGES:
        selected = default_range(group, now)
    begin = _begin(selected, group, now)
    if at and not begin <= at <= now:
        if parameters.get("range") in RANGES or at > now:
            return Window(at - _AROUND, at + _AROUND, at=at, problem=problem)
        selected = next((name for name, length in RANGES.items() if length and now - at < length), "all")
        begin = min(_begin(selected, group, now), at)
    return Window(begin, now if now > begin else begin + timedelta(minutes=1), selected, at, problem=problem)


def _times(parameters: Mapping[str, str], now: datetime) -> tuple[dict[str, datetime], str | None]:
    times: dict[str, datetime] = {}
    problem = None
    for name in _NAMES:
        text = parameters.get(name, "").strip()
        time = _parse(text, now) if text else None
        if time:
            times[name] = time
        elif text:
            problem = _PROBLEM
    return times, problem


def _parse(text: str, now: datetime) -> datetime | None:
    """Return the time in UTC; None if it is invalid, or too early or late for any record."""
    try:
        time = parse_instant(text, now).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
    return time if _YEARS[0] <= time.year <= _YEARS[1] else None


def default_range(group: Row, now: datetime) -> str:
    """Return the shortest range that contains the newest record of the group; `all` if the group is younger."""
    newest, first = group["updated_at"] or now, group.get("first_seen_at")
    is_in = (name for name, length in RANGES.items() if length and now - newest < length * 0.9)
    found = next(is_in, "all")
    length = RANGES[found]
    return "all" if length and first and now - first < length else found


def url_time(time: datetime) -> str:
    """Return a time for a URL, to the second."""
    return utc_iso(time, "seconds")


def _begin(selected: str, group: Row, now: datetime) -> datetime:
    length = RANGES[selected]
    if length:
        return now - length
    epochs = group.get("topology_epochs") or ()
    times = [group.get("first_seen_at"), group.get("members_since"), group.get("updated_at"), now]
    times += [one["first_seen_at"] for one in epochs]
    first: datetime = min(at for at in times if at)  # of a group whose creation the log does not have, what is left
    return first - (now - first) * 0.02
