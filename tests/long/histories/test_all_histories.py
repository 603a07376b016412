"""All histories, at all paces."""

from __future__ import annotations

from collections import Counter

import pytest

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.alerts.problem import RESOLVED
from tests.histories.history import History
from tests.histories.judged import (
    ALL,
    HISTORIES,
    INCIDENTS,
    ORDINARY,
    OUTCOMES,
    PAGE,
    check_incident,
    check_ordinary,
    check_paces,
    check_start_in_the_middle,
    name_of,
    pages,
    start_in_the_middle,
    told_at,
)
from tests.relations.test_clocks import HISTORIES as WITH_RIGHT_CLOCKS
from tests.relations.test_clocks import check_clocks
from tests.relations.test_hidden import check_hidden
from tests.relations.transactions import check_transactions, writes_plain_records

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("history", ALL, ids=name_of)
def test_what_is_hidden_makes_nothing_better_and_changes_no_other_group(history: History) -> None:
    check_hidden(history)


@pytest.mark.parametrize("history", ORDINARY, ids=name_of)
def test_an_ordinary_operation_raises_no_alert(history: History) -> None:
    check_ordinary(history)


@pytest.mark.parametrize("history", INCIDENTS, ids=name_of)
def test_an_incident_raises_the_expected_alert_after_it_began_and_no_other(history: History) -> None:
    check_incident(history)


@pytest.mark.parametrize("history", [one for one in INCIDENTS if one.rules & {*HEALTH_RULES}], ids=name_of)
def test_a_job_that_starts_in_the_middle_of_an_outage_says_since_when_it_is(history: History) -> None:
    check_start_in_the_middle(history)


LATE = {
    "An instance restores for half an hour, is killed for its memory, and begins again",  # it may restore
    "A nightly job starts, and its threads hang before the first record",  # records waited since the night before
    "The alert of an application that was lost is ignored for a while, and the application does not come back",
    # Each spell is short.
    "An autoscaler from zero stops its pod after 40 s, of which it needs 30 to start, every four minutes",
    "A changelog is deleted and created again and again, so that the group is NotReady for three of four minutes",
    # One offset may be a transaction marker until the next record comes.
    "A tool that saves costs stops an application for good, to which a record comes every eight minutes",
}
"""Somebody is told of them later. They are since their last commit, or since records came, all the same."""


def test_somebody_is_told_soon_and_seldom() -> None:
    played = [(history, OUTCOMES[name]) for name, history in HISTORIES.items() if name not in LATE]
    whole = sorted(seconds for history, outcome in played for seconds in pages(history, outcome))
    cut = sorted(
        seconds
        for history, _ in played
        if history.rules & {*HEALTH_RULES}
        for start, late in [start_in_the_middle(history)]
        for seconds in pages(history, late, start)
    )
    problems = [(one, outcome) for _, outcome in played for one in outcome.problems if one.opened_at]
    begins = Counter(len(told_at(one, outcome)) for one, outcome in problems)
    ends = Counter(len(told_at(one, outcome, RESOLVED)) for one, outcome in problems)
    assert max(whole[-1], cut[-1]) <= PAGE
    assert begins.keys() <= {1, 2}
    assert ends.keys() <= {0, 1}


@pytest.mark.parametrize("history", ALL, ids=name_of)
def test_the_same_facts_open_and_end_the_same_problems_at_any_pace(history: History) -> None:
    check_paces(history)


@pytest.mark.parametrize("history", [one for one in ALL if writes_plain_records(one)], ids=name_of)
def test_transactions_bring_no_problem_but_of_one_that_is_open_for_too_long_and_take_none_away(
    history: History,
) -> None:
    check_transactions(history)


@pytest.mark.parametrize("history", WITH_RIGHT_CLOCKS, ids=name_of)
def test_clocks_of_brokers_that_are_wrong_by_ten_minutes_change_no_problem_and_nothing_pending(
    history: History,
) -> None:
    check_clocks(history)
