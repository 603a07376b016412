"""More tracks of a group: tasks as a heat map, alerts, mutes, deployments, restores; and where each track is. Pure.

Positions are as in `timeline`. Of a thousand tasks those in trouble are the first rows of the heat map: those that
nobody has, then those that are furthest behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from streaming_app.alerts.problem import Problem
from streaming_app.groups.deployments import DEPLOYMENT
from streaming_app.groups.task_copies import RESTORING, TaskCopy, format_task
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind_series import Behind, BehindSeries
from streaming_app.queries.history import Owned
from streaming_app.text import duration, host_of, utc, utc_clock
from streaming_app.web.timeline import Scale, Span
from streaming_app.web.window import Window

Row = Mapping[str, Any]
SHOWN_TASKS, ALL_TASKS = 8, 400
SHOWN_RESTORES = 4
_ALERT_ROWS = 3
LEVELS = (10.0, 60.0, 600.0, 3_600.0)
"""Seconds behind from which a cell of the heat map is darker."""
NOT_KNOWN, UNOWNED = "unknown", "unowned"


@dataclass(frozen=True)
class Heat:
    """A part of a row of the heat map."""

    x: float
    width: float
    kind: str
    """`lag0` to `lag4`, `unknown` or `unowned`."""
    text: str


@dataclass(frozen=True)
class HeatRow:
    """A task over time."""

    task_id: str
    cells: Sequence[Heat]
    at_end: float | None
    """Seconds behind at the end; None if that is not known."""
    most: float | None
    unowned_seconds: float
    is_unowned: bool
    """At the end nobody has it."""
    member_id: str | None
    """Who had it last."""


@dataclass(frozen=True)
class HeatMap:
    """The tasks of a group over time, those in trouble first."""

    rows: Sequence[HeatRow]
    more: int
    """Tasks that are not shown."""


@dataclass(frozen=True)
class Restore:
    """A task whose state is being restored now."""

    span: Span
    done: float
    """The width of what is restored already."""
    text: str


@dataclass(frozen=True)
class Tracks:
    """What is drawn besides a `Timeline`."""

    heat: HeatMap
    alerts: Sequence[Sequence[Span]]
    """In rows, so that none hides another; the value is the severity."""
    mutes: Sequence[Span]
    deployments: Sequence[Span]
    restores: Sequence[Restore]
    more_restores: int


def tracks(  # noqa: PLR0913 - what the tables hold
    window: Window,
    *,
    series: BehindSeries | None,
    owned: Mapping[str, Owned],
    alerts: Iterable[Problem] = (),
    mutes: Iterable[Mute] = (),
    events: Iterable[Row] = (),
    copies: Iterable[TaskCopy] = (),
    series_window: tuple[datetime, datetime] | None = None,
) -> Tracks:
    """Return the tracks of a group in a window.

    `series` is from `series_window` on, `owned` as `owned_tasks` returns it, `alerts` and `mutes` are those
    of the group, `copies` are the copies of its tasks now.
    """
    scale = Scale(window.begin, window.end)
    restoring = [one for one in copies if one.role == RESTORING and window.selected]
    restoring.sort(key=lambda one: (-(one.lag or 0), one.task))
    return Tracks(
        heat=heat_map(window, series, owned, series_window or (window.begin, window.end)),
        alerts=_rows(list(_alerts(alerts, scale))),
        mutes=list(_mutes(mutes, scale)),
        deployments=list(_deployments(events, scale)),
        restores=[_restore(one, owned, window, scale) for one in restoring[:SHOWN_RESTORES]],
        more_restores=max(0, len(restoring) - SHOWN_RESTORES),
    )


# --- Tasks ------------------------------------------------------------------------------------------------------------


def heat_map(
    window: Window, series: BehindSeries | None, owned: Mapping[str, Owned], times: tuple[datetime, datetime]
) -> HeatMap:
    """Return the tasks over time; `series` is that of `times`."""
    known = series.tasks if series else {}
    without = {task_id: one for task_id, one in owned.items() if one.unowned}
    rows = [
        _heat_row(task_id, window, known.get(task_id, {}), series.bins if series else 1, owned.get(task_id), times)
        for task_id in {**known, **without}
    ]
    rows.sort(key=lambda row: (not row.is_unowned, -(row.at_end or 0.0), -row.unowned_seconds, -(row.most or 0.0)))
    shown = rows[: ALL_TASKS if window.all_tasks else SHOWN_TASKS]
    return HeatMap(shown, len(rows) - len(shown) + (series.more_tasks if series else 0))


def _heat_row(  # noqa: PLR0913, PLR0917 - what is known of a task
    task_id: str,
    window: Window,
    bins: Mapping[int, Behind],
    number: int,
    owned: Owned | None,
    times: tuple[datetime, datetime],
) -> HeatRow:
    scale = Scale(window.begin, window.end)
    cells = list(_cells(task_id, bins, number, times, scale))
    gone = list(_gone(owned, window)) if owned else []
    cells += [
        Heat(span.x, span.width, UNOWNED, span.text)
        for begin, end in gone
        for span in scale.span(begin, end, UNOWNED, f"{task_id}: nobody has it, {_during(begin, end)}")
    ]
    last = bins.get(number - 1)
    return HeatRow(
        task_id=task_id,
        cells=cells,
        at_end=last.at_end if last else None,
        most=max((one.most for one in bins.values() if one.most is not None), default=None),
        unowned_seconds=sum((end - begin).total_seconds() for begin, end in gone),
        is_unowned=bool(owned and owned.unowned and owned.unowned[-1][1] is None),
        member_id=owned.member_id if owned else None,
    )


def _gone(owned: Owned, window: Window) -> Iterator[tuple[datetime, datetime]]:
    for begin, end in owned.unowned:
        first, last = max(begin, window.begin), min(end or window.end, window.end)
        if first < last:
            yield first, last


def _cells(
    task_id: str, bins: Mapping[int, Behind], number: int, times: tuple[datetime, datetime], scale: Scale
) -> Iterator[Heat]:
    begin, length = times[0], (times[1] - times[0]) / number
    for kind, those in groupby(range(number), key=lambda place: _kind(bins.get(place))):
        places = list(those)
        if kind is None:
            continue
        first, last = begin + places[0] * length, min(begin + (places[-1] + 1) * length, scale.end)
        most = max((bins[place].most or 0.0 for place in places), default=0.0)
        what = "how far behind is not known" if kind == NOT_KNOWN else f"at most {duration(most)} behind"
        for span in scale.span(first, last, kind, f"{task_id}: {what}, {_during(first, last)}"):
            yield Heat(span.x, span.width, kind, span.text)


def _kind(one: Behind | None) -> str | None:
    if one is None:
        return None
    if one.most is None:
        return NOT_KNOWN
    return f"lag{sum(one.most >= level for level in LEVELS)}"


def _during(begin: datetime, end: datetime) -> str:
    until = utc_clock(end) if begin.date() == end.date() else utc(end)
    return f"{utc(begin)} to {until}"


# --- Alerts, mutes, deployments ---------------------------------------------------------------------------------------


def _alerts(alerts: Iterable[Problem], scale: Scale) -> Iterator[Span]:
    for one in alerts:
        begin = one.opened_at or one.since
        how = f"resolved {utc(one.ended_at)}" if one.ended_at else "pending" if not one.opened_at else "fires"
        text = f"{one.severity} {one.rule}, since {utc(begin)}, {how}: {one.summary}"
        yield from scale.span(begin, one.ended_at or scale.end, one.severity if one.opened_at else "pending", text)


def _rows(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans in rows in which none begins before the one before ends; what does not fit is in the last."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one.x):
        free = next((row for row in rows if row[-1].x + row[-1].width <= span.x), None)
        if free is None and len(rows) < _ALERT_ROWS:
            rows.append([span])
        else:
            (rows[-1] if free is None else free).append(span)
    return rows


def _mutes(mutes: Iterable[Mute], scale: Scale) -> Iterator[Span]:
    for one in mutes:
        if one.starts_at < one.ends_at:  # not one that ends another
            why = f": {one.reason}" if one.reason else ""
            text = f"alerts muted until {utc(one.ends_at)} by {one.created_by}{why}"
            yield from scale.span(one.starts_at, min(one.ends_at, scale.end), "mute", text)


def _deployments(events: Iterable[Row], scale: Scale) -> Iterator[Span]:
    for event in events:
        if event["kind"] == DEPLOYMENT and event["at"]:
            begin = datetime.fromisoformat(event["old"]) if event["old"] else event["at"]
            took = duration((event["at"] - begin).total_seconds())
            text = f"deployment of {event['new']}, from {utc(begin)}, {took}"
            yield from scale.span(begin, event["at"], DEPLOYMENT, text)


# --- Restores ---------------------------------------------------------------------------------------------------------


def _restore(copy: TaskCopy, owned: Mapping[str, Owned], window: Window, scale: Scale) -> Restore:
    task_id = format_task(copy.task)
    since = owned[task_id].owners.get(copy.member_id) if task_id in owned else None
    begin = max(since or copy.reported_at or window.end - timedelta(seconds=1), window.begin)
    share = None
    if copy.task_offset is not None and copy.task_end_offset:
        share = min(1.0, max(0.0, copy.task_offset / copy.task_end_offset))
    where = host_of(copy.client_host) or copy.member_id
    text = f"{task_id} restores its state on {where}"
    text += f": {share:.0%} of {copy.task_end_offset:,} offsets" if share is not None else ", how far is not known"
    if copy.reported_at:
        text += f", as of {utc(copy.reported_at)}"
    span = next(iter(scale.span(begin, window.end, RESTORING, text)))
    return Restore(span, round(span.width * (share or 0.0), 2), text)


# --- Places -----------------------------------------------------------------------------------------------------------

HEAT_HEIGHT, _ALERT_HEIGHT, _RESTORE_HEIGHT = 15, 11, 15


@dataclass(frozen=True)
class Place:
    """Where a track is, in pixels from the top."""

    key: str
    label: str
    y: int
    height: int


def places(found: Tracks, labels: Mapping[str, str | None]) -> list[Place]:
    """Return where the tracks are that have anything to show, trouble first; those whose label is None have not."""
    rows = len(found.alerts) + bool(found.mutes)
    heights = {
        "health": 28,
        "alerts": rows and _ALERT_HEIGHT * rows + 5,
        "behind": 60,
        "rates": 52,
        "tasks": found.heat.rows and HEAT_HEIGHT * len(found.heat.rows) + 6,
        "restores": found.restores and _RESTORE_HEIGHT * len(found.restores) + 4,
        "members": 48,
        "assignments": 22,
        "changes": 22,
        "state": 22,
        "lag": 60,
        "description": 22,
    }
    result, y = list[Place](), 0
    for key, height in heights.items():
        if height and (label := labels.get(key)) is not None:
            result.append(Place(key, label, y, int(height)))
            y += int(height)
    return result
