"""The labelled histories: no ordinary operation raises an alert, and every incident does."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from random import Random
from typing import Any

import pytest

from streaming_app.alerts.evaluate import RULES
from tests.histories.bed import Outcome, run
from tests.histories.history import DAY, HOUR, MINUTE, History
from tests.histories.incidents import INCIDENTS
from tests.histories.ordinary import ORDINARY

pytestmark = pytest.mark.slow
_COMPARED = ("Rolling restart of 6 instances", "The only instance is up for 20 s in every 320 s", "A member is stuck")


class _Outcomes(dict[str, Outcome]):
    """Runs each history when its outcome is first asked for: all of them take minutes, and one test need not."""

    def __missing__(self, name: str) -> Outcome:
        self[name] = run(_HISTORIES[name])
        return self[name]


_HISTORIES = {history.name: history for history in (*ORDINARY, *INCIDENTS)}
OUTCOMES = _Outcomes()


def named(history: History) -> str:
    return history.name


def test_there_are_enough_histories_and_each_has_a_name_of_its_own() -> None:
    assert (len(ORDINARY) >= 120, len(INCIDENTS) >= 100) == (True, True)
    assert len({history.name for history in (*ORDINARY, *INCIDENTS)}) == len(ORDINARY) + len(INCIDENTS)
    assert {rule for history in INCIDENTS for rule in history.rules} <= set(RULES)


@pytest.mark.parametrize("history", ORDINARY, ids=named)
def test_an_ordinary_operation_raises_no_alert(history: History) -> None:
    assert [(one.rule, one.group_id, one.at, one.summary) for one in OUTCOMES[history.name].fired] == []


@pytest.mark.parametrize("history", INCIDENTS, ids=named)
def test_an_incident_raises_the_expected_alert_after_it_began_and_no_other(history: History) -> None:
    fired = OUTCOMES[history.name].fired
    assert fired
    assert {one.rule for one in fired} <= history.rules
    assert min(one.at for one in fired) >= history.begins


def test_a_group_whose_records_are_rare_does_not_fill_the_history_of_verdicts() -> None:
    sparse = next(history for history in ORDINARY if history.name == "The topic gets a record every quarter of an hour")
    changes = [(one.verdict.verdict, one.verdict.why) for one in OUTCOMES[sparse.name].changes]
    assert len(changes) <= 5  # and not one or two for each record


def test_many_groups_with_one_cause_are_one_alert() -> None:
    histories = [history for history in INCIDENTS if "thirty applications" in history.name]
    assert histories
    for history in histories:
        (fired,) = OUTCOMES[history.name].fired
        assert (fired.rule, fired.group_id) == ("StreamsGroupsDescriptionsMissing", None)


def test_an_alert_says_how_often_how_long_and_why() -> None:
    missing = next(history for history in INCIDENTS if history.name.startswith("A source topic is missing: the client"))
    (down,) = run(replace(missing, seconds=missing.begins + HOUR)).fired
    assert down.severity == "critical"
    for words in ("it does not stay up", "was started ", "in between it was Empty ", "MISSING_SOURCE_TOPICS"):
        assert words in down.summary


def test_no_alert_has_a_hole_in_its_text() -> None:
    summaries = [one.summary for history in INCIDENTS for one in OUTCOMES[history.name].fired]
    assert [one for one in summaries if any(hole in one for hole in (", ;", "; ;", "  ", "()"))] == []


def test_an_alert_about_a_stuck_member_names_it_its_process_and_host_and_the_tasks() -> None:
    stuck = next(history for history in INCIDENTS if "poll interval of an hour" in history.name)
    (fired,) = OUTCOMES[stuck.name].fired
    assert "i0-thread-0 (10.63.242.189, process i0-1) has not revoked task 0_11 since" in fired.summary


def test_the_alert_of_a_crash_loop_is_resolved_once_the_application_has_stayed_up() -> None:
    crashing = next(history for history in INCIDENTS if "up for 20 s in every 320 s" in history.name)
    outcome = run(replace(crashing, seconds=crashing.seconds + 2 * HOUR))
    (fired,) = outcome.fired
    last_start = crashing.operations[-1].at
    assert fired.resolved_at is not None
    assert 10 * MINUTE <= fired.resolved_at - last_start <= 25 * MINUTE
    (incident,) = outcome.incidents
    assert (incident.ended_by, incident.timeline[-1].verdict) == ("evidence", "Ok")


@pytest.mark.parametrize("name", _COMPARED)
def test_leaving_out_evaluations_while_nothing_happens_changes_nothing(name: str) -> None:
    history = next(one for one in (*ORDINARY, *INCIDENTS) if one.name.startswith(name))
    history = replace(history, seconds=history.seconds + 4 * 3600.0)
    some, every = run(history), run(history, every_step=True)
    assert some.evaluations < every.evaluations
    assert (some.fired, some.notifications) == (every.fired, every.notifications)
    assert some.incidents == every.incidents


_PACES: tuple[dict[str, Any], ...] = ({"every_step": True}, {"only_changes": True}, {"restart_every": 2_400.0})
_LONG = 3 * DAY  # every five seconds of a longer one would take minutes
# What is not stored, so that a run that begins learns it again: whether a lag falls, by how much clocks are wrong, and
# that a group had begun before the offsets of one that had already ended.
_LEARNT_AGAIN = (
    "Offsets are reset to the beginning by mistake",
    "The only instance crashes, and the clock of its broker is an hour",
    "Rolling restart of 6 static members while the group moves between brokers whose clocks",
    "Two copies of two hours die with their host",
)
_SAMPLE = 12


def _at_any_pace() -> list[History]:
    """Return other histories every day, or all."""
    histories = [*INCIDENTS, *ORDINARY]
    if os.environ.get("HISTORIES") == "all":
        return histories
    short = [history for history in histories if history.seconds <= DAY / 2]
    return Random(date.today().toordinal()).sample(short, _SAMPLE)  # noqa: DTZ011, S311 - any day


@pytest.mark.parametrize("history", _at_any_pace(), ids=named)
def test_the_same_facts_open_and_end_the_same_incidents_at_any_pace_and_with_restarts(history: History) -> None:
    def brief(outcome: Outcome) -> list[tuple[object, ...]]:
        return sorted(
            (one.opened_at, one.cause, one.scope, str(one.ended_at), one.ended_by, one.severity, one.verdict)
            for one in outcome.incidents
        )

    expected = brief(OUTCOMES[history.name])
    for pace in _PACES:
        if "every_step" in pace and history.seconds > _LONG:
            continue
        if "restart_every" in pace and history.name.startswith(_LEARNT_AGAIN):
            continue
        assert brief(run(history, **pace)) == expected, pace
