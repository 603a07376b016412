"""The timeline of a group: its states, its number of members and its assignments over time. Pure.

Positions are in thousandths of the width, so that the template draws them without arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.page.words import duration, instant

Row = Mapping[str, Any]
WIDTH = 1000
RANGES: Mapping[str, timedelta | None] = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "all": None,
}
_TICKS = 6
_STEPS = (60, 300, 600, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 7_776_000)
_MARKS = {
    "assignment_epoch": "assignment",
    "topology": "topology",
    "topology_epoch": "topology",
    "unsolicited_push": "push",
    "created": "topology",
    "deleted": "topology",
}
CAUSES = {
    "member_joined": "a member joined",
    "member_left": "a member left",
    "member_replaced": "a member was replaced",
    "topics_changed": "the topics changed",
    "config_changed": "the configuration changed",
    "topology_changed": "the topology changed",
    "unknown": "the log does not say why",
}


@dataclass(frozen=True)
class Span:
    """A value that lasted from one time to another."""

    x: float
    width: float
    value: str
    text: str


@dataclass(frozen=True)
class Step:
    """A number of members during a part of the time; `height` is in thousandths of the largest."""

    x: float
    width: float
    height: float
    members: int


@dataclass(frozen=True)
class Mark:
    """Something that happened at a moment."""

    x: float
    kind: str
    """`assignment`, `topology` or `push`."""
    text: str


@dataclass(frozen=True)
class Tick:
    """A time on the axis."""

    x: float
    text: str


@dataclass(frozen=True)
class Timeline:
    """What is drawn, from `begin` to `end`."""

    begin: datetime
    end: datetime
    selected: str
    states: Sequence[Span]
    descriptions: Sequence[Span]
    members: Sequence[Step]
    most_members: int
    marks: Sequence[Mark]
    ticks: Sequence[Tick]


def default_range(group: Row, now: datetime) -> str:
    """Return the shortest range in which the newest record of the group is."""
    newest = group["updated_at"] or now
    return next((name for name, length in RANGES.items() if length and now - newest < length * 0.9), "all")


def timeline(group: Row, events: Sequence[Row], selected: str, now: datetime) -> Timeline:
    """Return the timeline of a range of `RANGES` up to now; events are ordered by offset, oldest first."""
    known = [event for event in events if event["at"] is not None]
    times = [event["at"] for event in known]
    length = RANGES.get(selected)
    first = min([*times, group["first_seen_at"] or now, now])
    begin = now - length if length else first - (now - first) * 0.02
    end = now if now > begin else begin + timedelta(minutes=1)
    scale = _Scale(begin, end)
    members = list(_members(group, known, scale))
    return Timeline(
        begin=begin,
        end=end,
        selected=selected if selected in RANGES else "all",
        states=list(_spans(known, "state", group["state"], group["state_since"], first, scale)),
        descriptions=list(
            _spans(known, "description_status", group["description_status"], group["description_since"], first, scale)
        ),
        members=_steps(members),
        most_members=max((step.members for step in members), default=0),
        marks=[
            Mark(scale.x(event["at"]), _MARKS[event["kind"]], event_text(event))
            for event in known
            if event["kind"] in _MARKS and begin <= event["at"] <= end
        ],
        ticks=list(_ticks(scale)),
    )


def event_text(event: Row) -> str:
    """Return one event in words, without its time."""
    kind, old, new = event["kind"], event["old"], event["new"]
    name = kind.replace("_", " ")
    if kind == "created":
        text = "created"
    elif kind == "deleted":
        text = "deleted"
    elif kind == "unsolicited_push":
        text = "description sent that the broker had not asked for"
    elif kind in {"member_joined", "member_left"}:
        text = "member joined" if kind == "member_joined" else "member left"
    elif kind == "not_ready_reason":
        text = f"reason: {new}" if new else "reason no longer holds"
    else:
        text = f"{name}: {old} → {new}" if old is not None else f"{name}: {new}"
    causes = causes_text(event["cause"])
    return f"{text} ({causes})" if causes else text


def causes_text(causes: str | None) -> str:
    """Return the causes of a column `cause` in words; empty for none."""
    return ", ".join(CAUSES.get(one, one) for one in causes.split(",")) if causes else ""


@dataclass(frozen=True)
class _Scale:
    begin: datetime
    end: datetime

    def x(self, time: datetime) -> float:
        share = (time - self.begin) / (self.end - self.begin)
        return round(min(1.0, max(0.0, share)) * WIDTH, 2)


def _spans(  # noqa: PLR0913, PLR0917 - what a lane is made of
    events: Iterable[Row], kind: str, current: str | None, since: datetime | None, first: datetime, scale: _Scale
) -> Iterable[Span]:
    """Yield the values one after the other. What lies before the oldest event is the value that it replaced."""
    changes = [event for event in events if event["kind"] == kind]
    begin = first
    value = changes[0]["old"] if changes else None
    for event in changes:
        yield from _span(scale, begin, event["at"], value)
        begin, value = event["at"], event["new"]
    last = current if current is not None else value
    yield from _span(scale, max(begin, since) if since and not changes else begin, scale.end, last)


def _span(scale: _Scale, begin: datetime, end: datetime, value: str | None) -> Iterable[Span]:
    if value is None or end <= begin or end < scale.begin or begin > scale.end:
        return
    x = scale.x(begin)
    text = f"{value}, {duration((end - begin).total_seconds())}, from {instant(begin)}"
    yield Span(x, max(1.0, round(scale.x(end) - x, 2)), value, text)


def _members(group: Row, events: Sequence[Row], scale: _Scale) -> Iterable[Step]:
    """Yield the number of members, counted back from the current number."""
    changes = [event for event in events if event["kind"] in {"member_joined", "member_left"}]
    number, end = group["member_count"] or 0, scale.end
    for event in reversed(changes):
        if event["at"] > end:
            continue
        if end > scale.begin and event["at"] < end:
            x = scale.x(event["at"])
            yield Step(x, round(scale.x(end) - x, 2), 0.0, number)
        number = max(0, number - 1 if event["kind"] == "member_joined" else number + 1)
        end = event["at"]
    if end > scale.begin:
        yield Step(0.0, scale.x(end), 0.0, number)


def _steps(steps: Sequence[Step]) -> list[Step]:
    most = max((step.members for step in steps), default=0)
    return [
        Step(step.x, step.width, round(WIDTH * step.members / most, 1), step.members)
        for step in reversed(steps)
        if most and step.members and step.width > 0
    ]


def _ticks(scale: _Scale) -> Iterable[Tick]:
    seconds = (scale.end - scale.begin).total_seconds()
    step = next((one for one in _STEPS if seconds / one <= _TICKS), _STEPS[-1])
    time = datetime.fromtimestamp(-(-scale.begin.timestamp() // step) * step, timezone.utc)
    form = "%H:%M" if step < 86_400 else "%b %d"  # noqa: PLR2004 - a day
    while time <= scale.end and seconds:
        is_midnight = step < 86_400 and (time.hour, time.minute) == (0, 0)  # noqa: PLR2004
        yield Tick(scale.x(time), f"{time:%b %d}" if is_midnight else f"{time:{form}}")
        time += timedelta(seconds=max(step, seconds / 50))
