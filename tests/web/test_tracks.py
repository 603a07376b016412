"""The tracks of a group over time say at each moment what the tables say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming_app.alerts.problem import Problem
from streaming_app.groups.task_copies import RESTORING, TaskCopy
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind import BINS
from streaming_app.queries.history import group_at, parse_tasks, task_spells
from streaming_app.text import duration, utc
from streaming_app.web.tracks import (
    Scale,
    Shape,
    Track,
    behind_track,
    event_tracks,
    merged_verdicts,
    restore_track,
    verdict_track,
)
from streaming_app.web.window import Window
from tests.alerts.examples import make_alert
from tests.support.sample_groups import NOW

HOUR = Window(NOW - timedelta(hours=1), NOW, "1h")
TIMES = HOUR.begin, HOUR.end
SCALE = Scale(*TIMES)


def at(minutes: float) -> datetime:
    """Return a time so many minutes after the begin of the window."""
    return HOUR.begin + timedelta(minutes=minutes)


def covers(shapes: Iterable[Shape], minutes: float) -> bool:
    x = 1_000 * minutes / 60
    return any(one.x - 0.01 <= x <= one.x + one.width + 0.01 for one in shapes)


def of_kind(track: Track, kind: str) -> list[Shape]:
    return [one for one in track.shapes if kind in one.kind]


MINUTES = st.floats(-20, 80).map(lambda one: round(one, 2))


# --- Who had which task -----------------------------------------------------------------------------------------------


@st.composite
def assignment_events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw who got which tasks when, one event a minute."""
    events = []
    for minute in range(draw(st.integers(1, 12))):
        member = draw(st.sampled_from(["a", "b", "c"]))
        kind = draw(st.sampled_from(["assignment", "assignment", "assignment", "member_left", "deleted"]))
        tasks = draw(st.sets(st.sampled_from(["0_0", "0_1", "1_0"])))
        new = f"active {','.join(sorted(tasks))}; standby 1_1" if kind == "assignment" and tasks else None
        common = {"old": None, "cause": None, "client_host": None, "instance_id": None}
        who = None if kind == "deleted" else member
        events.append({"at": at(5 * minute), "kind": kind, "member_id": who, "new": new, **common})
    return events


@given(assignment_events(), st.floats(0, 59.9))
def test_a_task_is_unowned_exactly_while_nobody_has_it(events: list[dict[str, Any]], minute: float) -> None:
    spells = [one for one in task_spells(events) if one["role"] == "active"]
    then, now = group_at(events, at(minute)), at(minute)
    tasks = [task for one in then["members"].values() for task in parse_tasks(one["tasks"])]
    has = {(part, n) for role, part, n in tasks if role == "active"}
    for task_id in {one["task"] for one in spells}:
        sub, _, number = task_id.partition("_")
        first = min(e["at"] for e in events if task_id in (e["new"] or ""))
        own = [one for one in spells if one["task"] == task_id]
        is_gone = first <= now and not any(
            one["since"] <= now and (not one["until"] or now < one["until"]) for one in own
        )
        assert is_gone == (first <= now and (sub, int(number)) not in has)
        assert is_gone == (task_id in then["unowned"])


def test_a_task_of_an_earlier_topology_is_not_one_that_nobody_had() -> None:
    common = {"old": None, "cause": None, "client_host": None, "instance_id": None}
    begin, new = {**common, "at": at(1), "member_id": "a"}, {**common, "at": at(3), "member_id": None}
    events = [
        {**begin, "kind": "assignment", "new": "active 0_0,0_1"},
        {**new, "kind": "topology_epoch", "old": "1", "new": "2"},
        {**begin, "at": at(4), "kind": "assignment", "new": "active 0_0,1_0"},
        {**begin, "at": at(5), "kind": "assignment", "new": "active 0_0"},
    ]
    assert group_at(events, at(6))["unowned"] == ["1_0"]


# --- Alerts, mutes, deployments, restores -----------------------------------------------------------------------------


def alert(begin: float, end: float | None) -> Problem:
    opened = at(begin)
    return make_alert(severity="critical", since=opened, opened_at=opened, ended_at=None if end is None else at(end))


@given(st.lists(st.tuples(MINUTES, st.none() | MINUTES), max_size=6), st.floats(0, 60))
def test_an_alert_is_drawn_exactly_while_it_is_open(times: list[tuple[float, float | None]], minute: float) -> None:
    times = [(begin, end if end is None or end >= begin else None) for begin, end in times]
    found = verdict_track(SCALE, [], [alert(begin, end) for begin, end in times])
    is_open = any(begin <= minute and (end is None or minute <= end) for begin, end in times)
    near = any(abs(edge - minute) < 0.1 for pair in times for edge in pair if edge is not None)
    assert near or covers(found.shapes, minute) == is_open
    assert len(found.shapes) == sum(begin <= 60 and (end is None or end >= 0) for begin, end in times)


@given(MINUTES, MINUTES, st.floats(0, 60))
def test_a_mute_and_a_deployment_are_drawn_exactly_while_they_last(begin: float, end: float, minute: float) -> None:
    begin, end = sorted((begin, end))
    mute = Mute(pattern=".*", starts_at=at(begin), ends_at=at(end), reason="known", created_by="ops")
    deployment = {"kind": "deployment", "at": at(end), "old": at(begin).isoformat(), "new": "processes"}
    _, assignments, _ = event_tracks(SCALE, [deployment] if end <= 60 else [], 1)
    for spans in (verdict_track(SCALE, [], mutes=[mute]).shapes, assignments.shapes):
        near = min(abs(begin - minute), abs(end - minute)) < 0.1
        assert near or (spans is assignments.shapes and end > 60) or covers(spans, minute) == (begin <= minute <= end)


def test_a_restore_lasts_since_the_member_got_the_task_and_says_how_far_it_is() -> None:
    offsets: dict[str, Any] = {"task_offset": 250, "task_end_offset": 1_000, "lag": 750}
    offsets |= {"reported_at": at(50), "rate": 2.5, "ready_at": at(70)}
    copy = TaskCopy("g", "m1", None, "/10.0.0.1", RESTORING, "1", 0, **offsets)
    since = {("1_0", "m1"): at(30), ("1_0", "other"): at(40)}
    found = restore_track(SCALE, HOUR, [copy, copy._replace(role="standby")], since)
    (whole,), (done,) = of_kind(found, "restore")[:1], of_kind(found, "restored")
    assert (whole.x, whole.width, done.width) == (500, 500, 125)
    assert whole.text.startswith("1_0 restores its state on 10.0.0.1: 25% of 1,000 offsets")
    assert whole.text.endswith(f", 2 a second, done at about {utc(at(70))}")
    late = restore_track(SCALE, HOUR, [copy], {("1_0", "other"): at(30)})
    assert late.shapes[0].x == pytest.approx(833.33)
    assert restore_track(SCALE, Window(*TIMES), [copy], {}).shapes == []  # only the present is known
    assert restore_track(SCALE, HOUR, [copy] * 9, {}).label == "Restores (first 4 of 9)"


# --- Of the records: verdicts, states, members ------------------------------------------------------------------------

LATER = st.lists(st.floats(-30, 59).map(lambda one: round(one, 1)), max_size=8, unique=True).map(sorted)


def text_at(shapes: Sequence[Shape], minute: float) -> str | None:
    x = 1_000 * minute / 60
    return next((one.text for one in reversed(shapes) if one.x <= x < one.x + one.width - 0.001), None)


@given(LATER, st.floats(0, 59.99), st.data())
def test_verdicts_and_members_are_at_each_moment_those_of_the_rows(
    minutes: list[float], minute: float, data: st.DataObject
) -> None:
    assume(all(abs(minute - one) > 0.1 for one in minutes))
    judged, events = list[dict[str, Any]](), list[dict[str, Any]]()
    verdict_then, members_then, members = "", 10, 10
    for when in minutes:
        verdict, kind = data.draw(
            st.tuples(st.sampled_from(["Ok", "Down", "Behind"]), st.sampled_from(["joined", "left"]))
        )
        judged.append({"at": at(when), "verdict": verdict, "severity": None, "since": at(when), "why": "w"})
        event = {"at": at(when), "client_host": None, "cause": None, "old": None, "new": None}
        events.append({**event, "kind": f"member_{kind}"})
        members += 1 if kind == "joined" else -1
        if when <= minute:
            verdict_then, members_then = verdict, members
    shown = text_at(verdict_track(SCALE, merged_verdicts(judged)).shapes, minute)
    assert (shown or "").split(" ")[0] == verdict_then
    track, *_ = event_tracks(SCALE, [one for one in events if one["at"] >= HOUR.begin], members)
    assert int((text_at(of_kind(track, "members"), minute) or "0").split(" ")[0]) == members_then


@given(st.dictionaries(st.integers(0, BINS - 1), st.sampled_from([None, 0.0, 9.0, 700.0]), min_size=1))
def test_the_bars_are_how_far_behind_the_group_was_in_each_part(values: dict[int, float | None]) -> None:
    series = {n: {"most": one, "is_lower": one is None} for n, one in values.items()}
    track = behind_track(SCALE, series, TIMES)
    known = {number: one for number, one in values.items() if one is not None}
    bars, hatched = of_kind(track, "lag-bar"), of_kind(track, "unknown")
    if not known:
        assert not track.shapes
        return
    most = max(known.values())
    assert f" {duration(most)}" in track.label
    drawn = {}
    for bar in bars:
        places = range(round(bar.x * BINS / 1000), round((bar.x + bar.width) * BINS / 1000))
        drawn |= dict.fromkeys(places, bar.height)
        assert bar.y + bar.height == 56
    assert drawn == {number: max(1.0, round(56 * one / (most or 1.0), 1)) for number, one in known.items()}
    assert sum(one.width for one in hatched) == pytest.approx(1_000 * (len(values) - len(known)) / BINS, abs=3)
