"""The tracks of a group over time say at each moment what the tables say of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming_app.alerts.problem import Problem
from streaming_app.groups.task_copies import RESTORING, TaskCopy
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind_series import Behind, BehindSeries
from streaming_app.queries.history import Owned, group_at, owned_tasks, parse_tasks
from streaming_app.web.timeline import Events, Span, judgements, timeline
from streaming_app.web.tracks import ALL_TASKS, SHOWN_TASKS, Tracks, heat_map, tracks
from streaming_app.web.window import Window
from tests.alerts.examples import make_alert
from tests.support.sample_groups import NOW, group

HOUR = Window(NOW - timedelta(hours=1), NOW, "1h")
TIMES = HOUR.begin, HOUR.end


def at(minutes: float) -> datetime:
    """Return a time so many minutes after the begin of the window."""
    return HOUR.begin + timedelta(minutes=minutes)


def made(**columns: Any) -> Tracks:
    return tracks(HOUR, **{"series": None, "owned": {}, **columns})


def covers(spans: Sequence[Span], minutes: float) -> bool:
    x = 1_000 * minutes / 60
    return any(one.x - 0.01 <= x <= one.x + one.width + 0.01 for one in spans)


MINUTES = st.floats(-20, 80).map(lambda one: round(one, 2))


# --- Tasks ------------------------------------------------------------------------------------------------------------


def series(tasks: dict[str, dict[int, Behind]], bins: int = 60, more: int = 0) -> BehindSeries:
    return BehindSeries(bins, {}, tasks, more)


def behind(seconds: float | None) -> Behind:
    return Behind(seconds, 0.0, seconds, is_lower_bound=seconds is None)


@given(
    st.dictionaries(st.integers(0, 59), st.sampled_from([None, 0.0, 9.0, 11.0, 700.0, 4_000.0])), st.floats(0, 59.99)
)
def test_a_row_of_the_heat_map_says_at_each_moment_what_its_series_does(
    values: dict[int, float | None], minute: float
) -> None:
    found = heat_map(HOUR, series({"0_0": {number: behind(one) for number, one in values.items()}}), {}, TIMES)
    cells = [one for row in found.rows for one in row.cells if one.x <= 1_000 * minute / 60 < one.x + one.width - 0.01]
    number = int(minute)
    if number not in values:
        assert cells == []
    elif 0.02 < minute - number < 0.98:  # not at the edge of two
        level = {None: "unknown", 0.0: "lag0", 9.0: "lag0", 11.0: "lag1", 700.0: "lag3", 4_000.0: "lag4"}
        assert [one.kind for one in cells] == [level[values[number]]]


def test_of_a_thousand_tasks_the_three_in_trouble_are_the_first() -> None:
    """One has no owner, two are far behind."""
    known = {f"0_{number}": {59: behind(1.0)} for number in range(40)} | {"1_7": {59: behind(900.0)}}
    known["1_8"] = {59: behind(300.0)}
    owned = {"2_5": Owned("m", at(0), [(at(30), None)]), "0_3": Owned("m", at(10), [(at(5), at(10))])}
    found = heat_map(HOUR, series(known, more=957), owned, TIMES)
    assert [row.task_id for row in found.rows[:4]] == ["2_5", "1_7", "1_8", "0_3"]
    assert (found.rows[0].is_unowned, found.rows[0].unowned_seconds) == (True, 1_800)
    assert "nobody has it" in found.rows[0].cells[0].text
    assert (len(found.rows), found.more) == (SHOWN_TASKS, 957 + 43 - SHOWN_TASKS)
    many = heat_map(Window(*TIMES, "1h", all_tasks=True), series(known, more=957), owned, TIMES)
    assert (len(many.rows), many.more) == (43, 957)
    assert ALL_TASKS > 43


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
def test_a_task_is_drawn_as_unowned_exactly_while_nobody_has_it(events: list[dict[str, Any]], minute: float) -> None:
    owned = owned_tasks(events)
    then = group_at(events, at(minute))
    has = {(part, n) for one in then.members.values() for role, part, n in parse_tasks(one.tasks) if role == "active"}
    for task_id, one in owned.items():
        sub, _, number = task_id.partition("_")
        first = min(e["at"] for e in events if task_id in (e["new"] or ""))
        is_gone = any(begin <= at(minute) and (end is None or at(minute) < end) for begin, end in one.unowned)
        assert is_gone == (first <= at(minute) and (sub, int(number)) not in has)
        assert is_gone == (task_id in then.unowned)


def test_a_task_of_an_earlier_topology_is_not_one_that_nobody_had() -> None:
    common = {"old": None, "cause": None, "client_host": None, "instance_id": None}
    begin, new = {**common, "at": at(1), "member_id": "a"}, {**common, "at": at(3), "member_id": None}
    events = [
        {**begin, "kind": "assignment", "new": "active 0_0,0_1"},
        {**new, "kind": "topology_epoch", "old": "1", "new": "2"},
        {**begin, "at": at(4), "kind": "assignment", "new": "active 0_0,1_0"},
        {**begin, "at": at(5), "kind": "assignment", "new": "active 0_0"},
    ]
    assert group_at(events, at(6)).unowned == ["1_0"]


# --- Alerts, mutes, deployments, restores -----------------------------------------------------------------------------


def alert(begin: float, end: float | None) -> Problem:
    opened = at(begin)
    return make_alert(severity="critical", since=opened, opened_at=opened, ended_at=None if end is None else at(end))


@given(st.lists(st.tuples(MINUTES, st.none() | MINUTES), max_size=6), st.floats(0, 60))
def test_an_alert_is_drawn_exactly_while_it_is_open(times: list[tuple[float, float | None]], minute: float) -> None:
    times = [(begin, end if end is None or end >= begin else None) for begin, end in times]
    found = made(alerts=[alert(begin, end) for begin, end in times])
    is_open = any(begin <= minute and (end is None or minute <= end) for begin, end in times)
    near = any(abs(edge - minute) < 0.1 for pair in times for edge in pair if edge is not None)
    assert near or covers([span for row in found.alerts for span in row], minute) == is_open
    assert sum(map(len, found.alerts)) == sum(begin <= 60 and (end is None or end >= 0) for begin, end in times)


@given(MINUTES, MINUTES, st.floats(0, 60))
def test_a_mute_and_a_deployment_are_drawn_exactly_while_they_last(begin: float, end: float, minute: float) -> None:
    begin, end = sorted((begin, end))
    mute = Mute(pattern=".*", starts_at=at(begin), ends_at=at(end), reason="known", created_by="ops")
    deployment = {"kind": "deployment", "at": at(end), "old": at(begin).isoformat(), "new": "processes"}
    found = made(mutes=[mute], events=[deployment])
    for spans in (found.mutes, found.deployments):
        near = min(abs(begin - minute), abs(end - minute)) < 0.1
        assert near or covers(spans, minute) == (begin <= minute <= end)


def test_a_restore_lasts_since_the_member_got_the_task_and_says_how_far_it_is() -> None:
    offsets: dict[str, Any] = {"task_offset": 250, "task_end_offset": 1_000, "lag": 750, "reported_at": at(50)}
    copy = TaskCopy("g", "m1", None, "/10.0.0.1", RESTORING, "1", 0, **offsets)
    owned = {"1_0": Owned("other", at(40), owners={"m1": at(30), "other": at(40)})}
    found = made(owned=owned, copies=[copy, copy._replace(role="standby")])
    (one,) = found.restores
    assert (one.span.x, one.span.width, one.done) == (500, 500, 125)
    assert one.text.startswith("1_0 restores its state on 10.0.0.1: 25% of 1,000 offsets")
    assert made(owned={"1_0": Owned("m1", at(30))}, copies=[copy]).restores[0].span.x == pytest.approx(833.33)
    past = Window(*TIMES)
    assert tracks(past, series=None, owned={}, copies=[copy]).restores == []  # only the present is known
    assert made(copies=[copy] * 9).more_restores == 5


# --- Of the records: verdicts, states, members ------------------------------------------------------------------------

LATER = st.lists(st.floats(-30, 59).map(lambda one: round(one, 1)), max_size=8, unique=True).map(sorted)


def value_at(spans: Sequence[Span], minute: float) -> str | None:
    x = 1_000 * minute / 60
    return next((one.value for one in reversed(spans) if one.x <= x < one.x + one.width - 0.001), None)


@given(LATER, st.floats(0, 59.99), st.data())
def test_verdicts_states_and_members_are_at_each_moment_those_of_the_rows(
    minutes: list[float], minute: float, data: st.DataObject
) -> None:
    assume(all(abs(minute - one) > 0.1 for one in minutes))
    judged, events = list[dict[str, Any]](), list[dict[str, Any]]()
    verdict_then, members_then = "", 10
    state, members = "Empty", 10
    for number, when in enumerate(minutes):
        verdict = data.draw(st.sampled_from(["Ok", "Down", "Behind"]))
        row = {"at": at(when), "verdict": verdict, "severity": None, "since": at(when), "why": "w"}
        judged.append(row)
        common = {"at": at(when), "member_id": str(number), "client_host": None, "cause": None}
        new, kind = data.draw(st.tuples(st.sampled_from(["Stable", "Empty"]), st.sampled_from(["joined", "left"])))
        events.append({**common, "kind": "state", "old": state, "new": new})
        events.append({**common, "kind": f"member_{kind}", "old": None, "new": None})
        state, members = new, members + (1 if kind == "joined" else -1)
        if when <= minute:
            verdict_then, members_then = verdict, members
    inside = [one for one in events if one["at"] >= HOUR.begin]
    before = [one["new"] for one in events if one["kind"] == "state" and one["at"] < HOUR.begin]
    row = group("g", state, NOW, 0, state_since=at(minutes[-1]) if minutes else at(-90), members=[{}] * members)
    line = timeline(row, Events(inside, before={"state": before[-1]} if before else {}), HOUR, judgements(judged, None))
    assert value_at(line.health, minute) == (verdict_then or None)
    states = [one["new"] for one in events if one["kind"] == "state" and one["at"] <= at(minute)]
    assert value_at(line.states, minute) == (states[-1] if states else "Empty")
    x = 1_000 * minute / 60
    shown = next((step.members for step in line.members if step.x <= x < step.x + step.width), 0)
    assert shown == members_then
