"""A group over time as five tracks over one axis. Pure.

They are verdicts with alerts, time behind, members, assignments with deployments, and the topology.
A track is a list of shapes, which the template draws without arithmetic: x is in thousandths of the width of the
window, y in pixels from the top of the track.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Any, NamedTuple

from streaming_app.alerts.alert import Alert
from streaming_app.groups.events import DEPLOYMENT, PROTOCOL_CHANGED
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind import BINS
from streaming_app.tables.heartbeat_file import Gap
from streaming_app.text import count, duration, utc
from streaming_app.web.words import event_text, health_meaning

Row = Mapping[str, Any]
WIDTH = 1_000
_ALERT_ROWS = 3
_HEALTH_HEIGHT, _ROW_HEIGHT, _BEHIND_HEIGHT = 22, 11, 56
_MEMBERS_HEIGHT, _MEMBERS_BOTTOM = 36, 44
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STEPS = (1, 5, 10, 30, *(_MINUTE * one for one in (1, 5, 10, 30)), *(_HOUR * one for one in (1, 2, 4, 6, 12)),
          *(_DAY * one for one in (1, 2, 7, 30, 90)))  # fmt: skip
_TICKS = 6
_OF_TOPOLOGY = (
    "topology", "topology_epoch", "description_status", "unsolicited_push", "created", "deleted", "log_truncated",
    PROTOCOL_CHANGED,
)  # fmt: skip
_OF_ASSIGNMENTS = ("assignment_epoch", "config_changed", DEPLOYMENT)
_OF_MEMBERS = ("member_joined", "member_left")
DRAWN_KINDS = (*_OF_MEMBERS, *_OF_ASSIGNMENTS, *_OF_TOPOLOGY)
"""The kinds of events that are drawn."""
_NOTHING: Row = {"measured": None, "most": None, "is_lower": False}


class Shape(NamedTuple):
    """A rectangle, or a line if it has no width."""

    x: float
    width: float
    kind: str
    """Its CSS classes."""
    text: str
    y: float = 0
    height: float = 0


class Track(NamedTuple):
    """A part of the picture. It begins at `y`, in pixels."""

    key: str
    label: str
    height: int
    shapes: Sequence[Shape] = ()
    words: str = ""
    """What it says, if the texts of its shapes are too many to list."""
    y: int = 0


class Scale:
    """Positions of times in a window.

    In its `gaps` nothing was known of what the job judges and measures. What the log says is known of them, too.
    """

    def __init__(self, begin: datetime, end: datetime, gaps: Iterable[Gap] = ()) -> None:
        self.begin, self.end = begin, end
        self._gaps = [(max(begin, since), min(end, until)) for since, until in gaps if until > begin and since < end]

    def x(self, time: datetime) -> float:
        """Return the position of a time, or of the nearest edge of the window."""
        share = (time - self.begin) / (self.end - self.begin)
        return round(min(1.0, max(0.0, share)) * WIDTH, 2)

    def has(self, time: datetime | None) -> bool:
        """Return whether a time is in the window."""
        return time is not None and self.begin <= time <= self.end

    def span(self, begin: datetime, end: datetime, kind: str, text: str, *place: float) -> Iterator[Shape]:
        """Yield a shape from one time to another, wide enough to be seen, if it is in the window."""
        if end >= self.begin and begin <= self.end:
            x = self.x(begin)
            yield Shape(x, max(1.0, round(self.x(end) - x, 2)), kind, text, *place)

    def known(self, begin: datetime, end: datetime, kind: str, text: str, *place: float) -> Iterator[Shape]:
        """Yield a shape for each part of a time, or for a moment, in which it was known."""
        is_moment = begin == end
        for since, until in self._gaps:
            if begin < until and since <= end:
                if begin < since:
                    yield from self.span(begin, since, kind, text, *place)
                begin = until
        if begin < end or (is_moment and begin == end):
            yield from self.span(begin, end, kind, text, *place)

    def unknown(self, *place: float) -> Iterator[Shape]:
        """Yield a shape for each gap."""
        for since, until in self._gaps:
            text = f"Not known from {utc(since)} to {utc(until)}: the job did not read the log."
            yield from self.span(since, until, "unknown gap", text, *place)

    def lasting(self, values: Sequence[tuple[datetime, str, str]], *place: float) -> Iterator[Shape]:
        """Yield a shape for each value, from its time to the time of the next; the last ends with the window."""
        ends = [at for at, _, _ in values[1:]] + [self.end]
        for (begin, kind, text), end in zip(values, ends, strict=False):
            if begin < end:
                yield from self.known(begin, end, kind, text, *place)

    def marks(self, events: Iterable[Row], kind_of: Mapping[str, str], *place: float) -> Iterator[Shape]:
        """Yield a line for each event of these kinds."""
        for event in events:
            if event["kind"] in kind_of:
                yield Shape(self.x(event["at"]), 0.0, f"event {kind_of[event['kind']]}", event_text(event), *place)


def _high(value: float, most: float, height: float) -> float:
    """Return the height of a bar: the largest value has this height, and 0 is still a line."""
    return max(1.0, round(height * value / (most or 1), 1))


def stacked(tracks: Iterable[Track]) -> list[Track]:
    """Return the tracks that are not empty, one below the other."""
    found, y = list[Track](), 0
    for one in tracks:
        if one.shapes:
            found.append(one._replace(y=y))
            y += one.height
    return found


def verdict_track(
    scale: Scale, judged: Sequence[Row], alerts: Iterable[Alert] = (), mutes: Iterable[Mute] = ()
) -> Track:
    """Return the track of verdicts (from `merged_verdicts`), with the alerts and mutes of the group below."""
    values = [
        (one["at"], _health_kind(one["verdict"]), f"{one['verdict']} since {utc(one['since'])}: {one['why']}")
        for one in judged
    ]
    shapes = [*scale.lasting(values, 0, _HEALTH_HEIGHT), *scale.unknown(0, _HEALTH_HEIGHT)]
    rows = _rows(list(_alerts(alerts, scale)))
    rows += [muted] if (muted := list(_mutes(mutes, scale))) else []
    for number, row in enumerate(rows):
        y = _HEALTH_HEIGHT + 4 + number * _ROW_HEIGHT
        shapes += [one._replace(y=y, height=_ROW_HEIGHT - 2) for one in row]
    return Track("health", "Verdict", _HEALTH_HEIGHT + 6 + len(rows) * _ROW_HEIGHT, shapes)


def merged_verdicts(rows: Iterable[Row]) -> list[Row]:
    """Return verdicts, the oldest first. If only the reason changed, they are one, with the last reason."""
    found: list[Row] = []
    for row in rows:
        if found and (found[-1]["verdict"], found[-1]["severity"]) == (row["verdict"], row["severity"]):
            before = found.pop()
            found.append({**row, "at": before["at"], "since": min(before["since"], row["since"])})
        else:
            found.append(row)
    return found


def strip(judged: Sequence[Row], scale: Scale) -> list[Shape]:
    """Return the verdicts of a period, each from its time on; nothing for times without a known verdict."""
    changes = [next(same) for _, same in groupby(judged, key=lambda one: one["verdict"])]
    named = [
        (one["at"], _health_kind(one["verdict"]), f"{one['verdict']} from {utc(max(one['at'], scale.begin))}")
        for one in changes
    ]
    return list(scale.lasting(named, 0, 10))


def _health_kind(verdict: str) -> str:
    return f"span health s-{health_meaning(verdict).tone}"


def _alerts(alerts: Iterable[Alert], scale: Scale) -> Iterator[Shape]:
    for one in alerts:
        begin = one.opened_at or one.since
        how = f"resolved {utc(one.ended_at)}" if one.ended_at else "pending" if not one.opened_at else "open"
        text = f"{one.severity} {one.rule}, since {utc(begin)}, {how}: {one.summary}"
        kind = one.severity if one.opened_at else "pending"
        yield from scale.known(begin, one.ended_at or scale.end, f"span alert-{kind}", text)


def _rows(shapes: Sequence[Shape]) -> list[list[Shape]]:
    """Return shapes in rows without overlaps. Shapes that do not fit are in the last row."""
    rows: list[list[Shape]] = []
    for shape in sorted(shapes, key=lambda one: one.x):
        free = next((row for row in rows if row[-1].x + row[-1].width <= shape.x), None)
        if free is None and len(rows) < _ALERT_ROWS:
            rows.append([shape])
        else:
            (rows[-1] if free is None else free).append(shape)
    return rows


def _mutes(mutes: Iterable[Mute], scale: Scale) -> Iterator[Shape]:
    for one in mutes:
        if one.starts_at < one.ends_at:  # a mute of 0 s only ends another one
            why = f": {one.reason}" if one.reason else ""
            text = f"alerts muted until {utc(one.ends_at)} by {one.created_by}{why}"
            yield from scale.span(one.starts_at, min(one.ends_at, scale.end), "span mute", text)


def behind_track(scale: Scale, series: Mapping[int, Row], times: Gap) -> Track:
    """Return the track of how far behind the group was; `series`, from `behind_series`, belongs to `times`.

    A bar is what was measured, and above it what it was at most between two measurements. Where it is hatched, there
    was more of it that is not known.
    """
    highs = {place: one["most"] for place, one in series.items() if one["most"] is not None}
    if not highs:
        return Track("behind", "", 0)
    highest = max(highs, key=highs.__getitem__)
    most, height, part = highs[highest], _BEHIND_HEIGHT, (times[1] - times[0]) / BINS
    shapes = list[Shape]()
    for values, run in groupby(range(BINS), key=lambda place: _behind(series.get(place, _NOTHING))):
        places = [*run]
        begin, end = times[0] + places[0] * part, times[0] + (places[-1] + 1) * part
        measured, at_most, is_lower = values
        for kind, value in (("lag-bar at-most", at_most), ("lag-bar", measured)):
            if value is not None:  # else there is a gap
                high = _high(value, most, height)
                shapes += scale.known(begin, end, kind, behind_text(*values), height - high, high)
        if is_lower:
            shapes += scale.known(begin, end, "unknown", "Of some partitions, or of all, it is not known.", 0, height)
    words = f"At most {duration(most)} behind, about {utc(times[0] + highest * part)}"
    words += "; where it is hatched, that is a lower bound." if any(one["is_lower"] for one in series.values()) else "."
    return Track("behind", f"Behind ≤ {duration(most)}", height + 4, [*shapes, *scale.unknown(0, height)], words)


def _behind(one: Row) -> tuple[float | None, float | None, bool]:
    """Return what was measured in a part of the time, what it was at most if that is more, and if it lacks a part."""
    measured, most = one["measured"], one["most"]
    is_exact = measured is not None and most - measured < 1
    return measured, None if is_exact else most, one["is_lower"]


def behind_text(measured: float | None, at_most: float | None, is_lower: bool) -> str:  # noqa: FBT001 - of a row
    """Return in words how far behind a group was, from what was measured, and what it was at most if that is more."""
    known = "" if measured is None else f"{'at least ' if is_lower else ''}{duration(measured)} behind"
    if at_most is None or (known and is_lower):
        return known
    limit = f"at most {duration(at_most)} behind" + (", where it is known" if is_lower else "")
    return f"{known} when measured, {limit}" if known else limit


def event_tracks(
    scale: Scale, events: Sequence[Row], members: int, known_from: datetime | None = None
) -> tuple[Track, Track, Track]:
    """Return the tracks of members, assignments and topology.

    `events` are the events of the window, the oldest first; `members` is the number of members at its end. Nothing is
    known before `known_from`, if that is given.
    """
    steps = list(_members(scale, events, members, known_from))
    most = max((number for *_, number in steps), default=0)
    shapes = list[Shape]()
    for begin, end, number in reversed(steps):
        if number:
            high = _high(number, most, _MEMBERS_HEIGHT)
            shapes += scale.span(begin, end, "members", count(number, "member"), _MEMBERS_BOTTOM - high, high)
    shapes += scale.marks(events, {"member_joined": "e-joined"}, 0, 12)
    shapes += scale.marks(events, {"member_left": "e-left"}, 34, 12)
    assigned = [shape for event in events for shape in _assignment(scale, event)]
    marks = dict.fromkeys(_OF_TOPOLOGY, "e-topology") | {"unsolicited_push": "e-push"}
    return (
        Track("members", f"Members ≤ {most:,}", 48, shapes),
        Track("assignments", "Assignments", 22, sorted(assigned, key=lambda one: not one.width)),
        Track("topology", "Topology", 22, list(scale.marks(events, marks, 3, 16))),
    )


def _members(
    scale: Scale, events: Sequence[Row], number: int, known_from: datetime | None
) -> Iterator[tuple[datetime, datetime, int]]:
    end = scale.end
    for event in reversed([one for one in events if one["kind"] in _OF_MEMBERS]):
        if event["at"] < end:
            yield event["at"], end, number
        number = max(0, number - 1 if event["kind"] == "member_joined" else number + 1)
        end = event["at"]
    begin = known_from or scale.begin
    if end > begin:
        yield begin, end, number


def _assignment(scale: Scale, event: Row) -> Iterator[Shape]:
    if event["kind"] == DEPLOYMENT:
        begin = datetime.fromisoformat(event["old"]) if event["old"] else event["at"]
        took = duration((event["at"] - begin).total_seconds())
        text = f"deployment of {event['new']}, from {utc(begin)}, {took}"
        yield from scale.span(begin, event["at"], "span deployment", text, 4, 14)
    elif event["kind"] in _OF_ASSIGNMENTS:
        yield from scale.marks([event], {event["kind"]: "e-assignment"}, 3, 16)


def ticks(scale: Scale) -> Iterator[tuple[float, str]]:
    """Yield x and text of the times on the axis."""
    seconds = (scale.end - scale.begin).total_seconds()
    step = next((one for one in _STEPS if seconds / one <= _TICKS), _STEPS[-1])
    time = datetime.fromtimestamp(-(-scale.begin.timestamp() // step) * step, timezone.utc)
    form = "%H:%M:%S" if step < _MINUTE else "%H:%M" if step < _DAY else "%b %d"
    while time <= scale.end and seconds:
        is_midnight = step < _DAY and (time.hour, time.minute) == (0, 0)
        yield scale.x(time), f"{time:%b %d}" if is_midnight else f"{time:{form}}"
        time += timedelta(seconds=max(step, seconds / 50))
