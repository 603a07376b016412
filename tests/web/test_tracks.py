"""The tracks of a group over time say at each moment what the tables say of it."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from streaming_app.alerts.alert import Alert
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind import BINS
from streaming_app.queries.history import group_at, parse_tasks, task_spells
from streaming_app.text import duration
from streaming_app.web.tracks import (
    Scale,
    Shape,
    Track,
    behind_track,
    event_tracks,
    merged_verdicts,
    strip,
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


# --- Alerts, mutes, deployments ---------------------------------------------------------------------------------------


def alert(begin: float, end: float | None) -> Alert:
    opened = at(begin)
    return make_alert(severity="critical", since=opened, opened_at=opened, ended_at=None if end is None else at(end))


@given(MINUTES, MINUTES, st.floats(0, 60))
def test_a_mute_and_a_deployment_are_drawn_exactly_while_they_last(begin: float, end: float, minute: float) -> None:
    begin, end = sorted((begin, end))
    mute = Mute(pattern=".*", starts_at=at(begin), ends_at=at(end), reason="known", created_by="ops")
    deployment = {"kind": "deployment", "at": at(end), "old": at(begin).isoformat(), "new": "processes"}
    _, assignments, _ = event_tracks(SCALE, [deployment] if end <= 60 else [], 1)
    for spans in (verdict_track(SCALE, [], mutes=[mute]).shapes, assignments.shapes):
        near = min(abs(begin - minute), abs(end - minute)) < 0.1
        assert near or (spans is assignments.shapes and end > 60) or covers(spans, minute) == (begin <= minute <= end)


# --- Relation A: at one instant every track says what the tables say of it -------------------------------------------

LATER = st.lists(st.floats(-30, 59).map(lambda one: round(one, 1)), max_size=6, unique=True).map(sorted)
GAPS = st.lists(st.floats(-5, 65).map(lambda one: round(one, 1)), max_size=4, unique=True).map(sorted)
BAR = st.tuples(st.sampled_from([None, 0.0, 9.0, 700.0]), st.sampled_from([0.0, 0.4, 60.0]), st.booleans())


def text_at(shapes: Sequence[Shape], minute: float) -> str:
    x = 1_000 * minute / 60
    return next((one.text for one in reversed(shapes) if one.x <= x < one.x + one.width - 0.001), "")


@given(LATER, GAPS, st.lists(st.tuples(MINUTES, st.none() | MINUTES), max_size=4), st.floats(0, 59.99), st.data())
def test_at_each_moment_every_track_says_what_the_tables_say_or_that_it_is_not_known(
    minutes: list[float], edges: list[float], alerts: list[tuple[float, float | None]], minute: float, data: Any
) -> None:
    alerts = [(begin, end if end is None or end >= begin else None) for begin, end in alerts]
    moments = [*minutes, *edges, *(one for pair in alerts for one in pair if one is not None)]
    assume(all(abs(minute - one) > 0.1 for one in moments))
    assume(0.1 < minute * BINS / 60 % 1 < 0.9)
    gaps = [(at(begin), at(end)) for begin, end in zip(edges[::2], edges[1::2], strict=False)]
    scale = Scale(*TIMES, gaps)
    is_gap = any(begin < at(minute) < end for begin, end in gaps)

    judged, events = list[dict[str, Any]](), list[dict[str, Any]]()
    verdict_then, members_then, members = "", 10, 10
    for when in minutes:
        verdict, kind = data.draw(st.sampled_from([("Ok", "joined"), ("Down", "left"), ("Behind", "joined")]))
        judged.append({"at": at(when), "verdict": verdict, "severity": None, "since": at(when), "why": "w"})
        common = {"at": at(when), "client_host": None, "cause": None, "old": None, "new": None}
        events.append({**common, "kind": f"member_{kind}"})
        members += 1 if kind == "joined" else -1
        if when <= minute:
            verdict_then, members_then = verdict, members
    track = verdict_track(scale, merged_verdicts(judged), [alert(*pair) for pair in alerts])
    verdicts = [*of_kind(track, "health"), *of_kind(track, "gap")]
    assert text_at(verdicts, minute).split(" ")[0] == ("Not" if is_gap else verdict_then)
    assert text_at(strip(judged, scale), minute).split(" ")[0] == ("" if is_gap else verdict_then)
    is_open = any(begin <= minute and (end is None or minute <= end) for begin, end in alerts)
    assert covers(of_kind(track, "alert-"), minute) == (is_open and not is_gap)

    seen, *_ = event_tracks(scale, [one for one in events if one["at"] >= HOUR.begin], members)  # the log has them all
    assert int((text_at(of_kind(seen, "members"), minute) or "0").split(" ")[0]) == members_then

    measured, more, is_lower = data.draw(BAR)
    most = None if measured is None else measured + more
    place = int(minute * BINS / 60)
    series = {place: {"measured": measured, "most": most, "is_lower": is_lower}, (place + 7) % BINS: KNOWN}
    behind = behind_track(scale, series, TIMES)
    bars = [text_at(of_kind(behind, kind), minute) for kind in ("lag-bar", "at-most", "unknown")]
    if is_gap:
        assert bars[:2] == ["", ""]
        assert bars[2].startswith("Not known from")
        return
    exact = measured is None or more < 1
    assert bars[1] == ("" if exact else bars[0])
    assert bool(bars[2]) == is_lower
    if measured is not None:
        (bar,) = [one for one in of_kind(behind, "lag-bar") if covers([one], minute) and "at-most" not in one.kind]
        assert bar.height == max(1.0, round(56 * measured / max(measured + more, 5.0), 1))
        assert bar.y + bar.height == 56
    expected = "" if measured is None else f"{'at least ' if is_lower else ''}{duration(measured)} behind"
    assert bars[0] == (expected if exact or is_lower else f"{expected} when measured, at most {duration(most)} behind")


KNOWN = {"measured": 5.0, "most": 5.0, "is_lower": False}
