"""The timeline of a group: its verdicts, states, number of members, assignments and lag over time. Pure.

Positions are in thousandths of the width, so that the template draws them without arithmetic. A partition has a sample
of its lag whenever that has changed, so its lag at any time is that of its last sample. What it was before its first
sample of the range is not known, and not drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.groups.state_rules import DEAD, EMPTY, STABLE
from streaming_app.health.verdict import Verdict
from streaming_app.text import duration, host_of, utc
from streaming_app.web.window import Window

Row = Mapping[str, Any]
WIDTH = 1000
_TICKS = 6
_STEPS = (
    1,
    5,
    10,
    30,
    60,
    300,
    600,
    1_800,
    3_600,
    7_200,
    14_400,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    2_592_000,
    7_776_000,
)
_MARKS = {
    "assignment_epoch": "assignment",
    "member_joined": "joined",
    "member_left": "left",
    "topology": "topology",
    "topology_epoch": "topology",
    "deployment": "topology",
    "config_changed": "topology",
    "log_truncated": "topology",
    "unsolicited_push": "push",
    "created": "topology",
    "deleted": "topology",
}
DRAWN_KINDS = ("state", "description_status", *_MARKS)
"""The kinds of events that it shows."""
SETTLED = frozenset({STABLE, EMPTY, DEAD})
"""States that last; they are drawn lighter than the others."""
CAUSES = {
    "member_joined": "a member joined",
    "member_left": "a member left or timed out",
    "member_replaced": "a member was replaced",
    "rack": "a member has another rack",
    "tags": "a member has other client tags",
    "process": "a member has another process",
    "topics_changed": "the topics changed",
    "config_changed": "the configuration changed",
    "topology_changed": "the topology changed",
    "no_task_moved": "no active or standby task moved",
    "unknown": "the log does not say why",
}


CAUSE_KINDS = {
    "members": "members",
    "topology": "topology or topics",
    "config": "configuration",
    "unknown": "not known",
}
"""What an assignment is drawn as, by its first known cause."""
_KIND_OF_CAUSE = {
    "topics_changed": "topology",
    "topology_changed": "topology",
    "config_changed": "config",
    "no_task_moved": "unknown",
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
    """`assignment`, `joined`, `left`, `topology` or `push`."""
    text: str
    cause: str = ""
    """Of an assignment: a key of `CAUSE_KINDS`."""


@dataclass(frozen=True)
class Tick:
    """A time on the axis."""

    x: float
    text: str


@dataclass(frozen=True)
class Judged:
    """A verdict on the group, from `at` on."""

    at: datetime
    verdict: str
    severity: str | None
    since: datetime
    why: str

    @property
    def text(self) -> str:
        """The verdict in words."""
        return f"{self.verdict} since {utc(self.since)}: {self.why}"


@dataclass(frozen=True)
class Timeline:
    """What is drawn, from the begin of the window to its end."""

    window: Window
    health: Sequence[Span]
    """The verdicts; nothing for a time of which none is known."""
    states: Sequence[Span]
    descriptions: Sequence[Span]
    members: Sequence[Step]
    most_members: int
    marks: Sequence[Mark]
    ticks: Sequence[Tick]
    at: float | None
    """Where the instant is; None if there is none, or not in the window."""
    known_from: datetime | None
    """Since when all events were read; None: since the begin of the window."""


@dataclass(frozen=True)
class Events:
    """The events of a window, the oldest first, and what is known about the time before and after it."""

    drawn: Sequence[Row]
    is_cut: bool = False
    """There are more, which are older."""
    before: Mapping[str, str | None] = field(default_factory=dict)
    """`state` and `description_status` when the window begins; without those of which no event is that old."""
    joined_after: int = 0
    """Members that have joined since the end of the window, less those that have left."""


def timeline(group: Row, events: Events, window: Window, judged: Sequence[Judged] = ()) -> Timeline:
    """Return the timeline of a group in a window; `judged` are the verdicts, the oldest first."""
    known = sorted(
        (event for event in events.drawn if event["at"] and window.begin <= event["at"] <= window.end),
        key=lambda event: event["at"],
    )
    known_from = known[0]["at"] if events.is_cut and known else None
    scale = Scale(window.begin, window.end)
    values = _Values(group, known, {} if events.is_cut else events.before, known_from, window, scale)
    members = list(_members(group, known, known_from, events.joined_after, scale))
    return Timeline(
        window=window,
        health=list(_health(judged, scale)),
        states=list(values.spans("state", group["state"], group["state_since"])),
        descriptions=list(values.spans("description_status", group["description_status"], group["description_since"])),
        members=_steps(members),
        most_members=max((step.members for step in members), default=0),
        marks=[
            Mark(scale.x(event["at"]), _MARKS[event["kind"]], event_text(event), _cause_kind(event))
            for event in known
            if event["kind"] in _MARKS
        ],
        ticks=ticks(window.begin, window.end),
        at=scale.x(window.at) if window.at and window.begin <= window.at <= window.end else None,
        known_from=known_from,
    )


def judgements(rows: Iterable[Row], current: Verdict | None) -> list[Judged]:
    """Return what rows of `group_health_history` say, the oldest first; without any, the verdict as it is now.

    A verdict that only got another reason is one: with the time of the first, and the newest reason.
    """
    found: list[Judged] = []
    for row in rows:
        one = Judged(row["at"], row["verdict"], row["severity"], row["since"], row["why"])
        if found and (found[-1].verdict, found[-1].severity) == (one.verdict, one.severity):
            one = replace(one, at=found[-1].at, since=min(found[-1].since, one.since))
            found.pop()
        found.append(one)
    if not found and current:
        found = [Judged(current.at, current.verdict, current.severity, current.since, current.why)]
    return found


def strip(verdicts: Sequence[tuple[datetime, str]], begin: datetime, end: datetime) -> list[Span]:
    """Return the verdicts of a time, each from its time on, as spans; nothing for a time of which none is known."""
    scale = Scale(begin, end)
    changes = [one for place, one in enumerate(verdicts) if not place or one[1] != verdicts[place - 1][1]]
    named = [(at, verdict, f"{verdict} from {utc(max(at, begin))}") for at, verdict in changes]
    return list(_lasting(named, scale))


def _health(judged: Sequence[Judged], scale: Scale) -> Iterable[Span]:
    return _lasting([(one.at, one.verdict, one.text) for one in judged], scale)


def _lasting(values: Sequence[tuple[datetime, str, str]], scale: Scale) -> Iterable[Span]:
    """Yield values with their texts, each from its time until that of the next one, the last one up to the end."""
    ends = [at for at, _, _ in values[1:]] + [scale.end]
    for (begin, value, text), end in zip(values, ends, strict=False):
        if begin < end:
            yield from scale.span(begin, end, value, text)


def _cause_kind(event: Row) -> str:
    if event["kind"] != "assignment_epoch":
        return ""
    causes = (event["cause"] or "unknown").split(",")
    kinds = [
        _KIND_OF_CAUSE.get(one, "unknown" if one not in CAUSES or one == "unknown" else "members") for one in causes
    ]
    return next((one for one in kinds if one != "unknown"), "unknown")


def event_text(event: Row) -> str:
    """Return one event in words, without its time."""
    kind, old, new = event["kind"], event["old"], event["new"]
    name = "member left or timed out" if kind == "member_left" else kind.replace("_", " ")
    if kind in {"created", "deleted"}:
        text = name
    elif kind == "unsolicited_push":
        text = "description sent that the broker had not asked for"
    elif kind in {"member_joined", "member_left"}:
        host = host_of(event.get("client_host"))
        text = f"{name} ({host})" if host else name
    elif kind == "deployment":
        text = f"deployment of {new}"
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
class Scale:
    """Where times are in a window."""

    begin: datetime
    end: datetime

    def x(self, time: datetime) -> float:
        """Return the position of a time, or of the end of the window that is nearest."""
        share = (time - self.begin) / (self.end - self.begin)
        return round(min(1.0, max(0.0, share)) * WIDTH, 2)

    def span(self, begin: datetime, end: datetime, value: str, text: str) -> Iterable[Span]:
        """Yield what lasted from one time to another, wide enough to be seen, unless it is not in the window."""
        if end >= self.begin and begin <= self.end:
            x = self.x(begin)
            yield Span(x, max(1.0, round(self.x(end) - x, 2)), value, text)


@dataclass(frozen=True)
class _Values:
    group: Row
    events: Sequence[Row]
    before: Mapping[str, str | None]
    known_from: datetime | None
    window: Window
    scale: Scale

    def spans(self, kind: str, current: str | None, since: datetime | None) -> Iterable[Span]:
        """Yield the values one after the other. Before the oldest event is the value that it replaced."""
        changes = [event for event in self.events if event["kind"] == kind]
        begin = self._first(kind)
        if changes:
            value = self.before.get(kind, changes[0]["old"])
        elif kind in self.before:
            value = self.before[kind]
        else:  # it was so before the oldest event that is kept
            value = current if since is None or since <= self.scale.end else None
            begin = max(begin, since) if since else begin
        for event in changes:
            yield from _span(self.scale, begin, event["at"], value)
            begin, value = event["at"], event["new"]
        last = current if self.window.selected and current is not None else value
        yield from _span(self.scale, begin, self.scale.end, last)

    def _first(self, kind: str) -> datetime:
        if self.known_from:
            return self.known_from
        first_seen = self.group["first_seen_at"]
        return self.scale.begin if kind in self.before or not first_seen else max(self.scale.begin, first_seen)


def _span(scale: Scale, begin: datetime, end: datetime, value: str | None) -> Iterable[Span]:
    if value is not None and begin < end:
        text = f"{value}, {duration((end - begin).total_seconds())}, from {utc(begin)}"
        yield from scale.span(begin, end, value, text)


def _members(
    group: Row, events: Sequence[Row], known_from: datetime | None, joined_after: int, scale: Scale
) -> Iterable[Step]:
    """Yield the number of members, counted back from the current number."""
    changes = [event for event in events if event["kind"] in {"member_joined", "member_left"}]
    number, end = max(0, (group["member_count"] or 0) - joined_after), scale.end
    for event in reversed(changes):
        if event["at"] < end:
            x = scale.x(event["at"])
            yield Step(x, round(scale.x(end) - x, 2), 0.0, number)
        number = max(0, number - 1 if event["kind"] == "member_joined" else number + 1)
        end = event["at"]
    begin = known_from or scale.begin
    if end > begin:
        x = scale.x(begin)
        yield Step(x, round(scale.x(end) - x, 2), 0.0, number)


def _steps(steps: Sequence[Step]) -> list[Step]:
    most = max((step.members for step in steps), default=0)
    return [
        Step(step.x, step.width, round(WIDTH * step.members / most, 1), step.members)
        for step in reversed(steps)
        if most and step.members and step.width > 0
    ]


def ticks(begin: datetime, end: datetime) -> list[Tick]:
    """Return the times on the axis."""
    return list(_ticks(Scale(begin, end)))


def _ticks(scale: Scale) -> Iterable[Tick]:
    seconds = (scale.end - scale.begin).total_seconds()
    step = next((one for one in _STEPS if seconds / one <= _TICKS), _STEPS[-1])
    time = datetime.fromtimestamp(-(-scale.begin.timestamp() // step) * step, timezone.utc)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%b %d"  # noqa: PLR2004 - a minute, a day
    while time <= scale.end and seconds:
        is_midnight = step < 86_400 and (time.hour, time.minute) == (0, 0)  # noqa: PLR2004
        yield Tick(scale.x(time), f"{time:%b %d}" if is_midnight else f"{time:{form}}")
        time += timedelta(seconds=max(step, seconds / 50))
