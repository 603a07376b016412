"""All histories, at all paces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.histories.bed import run
from tests.histories.history import HOUR, History
from tests.histories.incidents import INCIDENTS
from tests.histories.judged import HISTORIES, check_incident, check_ordinary, check_paces, name_of
from tests.histories.ordinary import ORDINARY

pytestmark = pytest.mark.slow
_COMPARED = (
    "Rolling restart of 6 instances",
    "The only instance is up for 20 s in every 320 s",
    "A member is stuck in revocation, with a poll interval of an hour",
)


@pytest.mark.parametrize("history", ORDINARY, ids=name_of)
def test_an_ordinary_operation_raises_no_alert(history: History) -> None:
    check_ordinary(history)


@pytest.mark.parametrize("history", INCIDENTS, ids=name_of)
def test_an_incident_raises_the_expected_alert_after_it_began_and_no_other(history: History) -> None:
    check_incident(history)


@pytest.mark.parametrize("history", [*INCIDENTS, *ORDINARY], ids=name_of)
def test_the_same_facts_open_and_end_the_same_problems_at_any_pace_and_with_restarts(history: History) -> None:
    check_paces(history)


@pytest.mark.parametrize("name", _COMPARED)
def test_leaving_out_evaluations_while_nothing_happens_changes_nothing(name: str) -> None:
    history = replace(HISTORIES[name], seconds=HISTORIES[name].seconds + 4 * HOUR)
    some, every = run(history), run(history, every_step=True)
    assert some.evaluations < every.evaluations
    assert (some.fired, some.notifications) == (every.fired, every.notifications)
    assert some.problems == every.problems
