"""All histories, at all paces."""

from __future__ import annotations

import pytest

from streaming_app.alerts.catalog import HEALTH_RULES
from tests.histories.history import History
from tests.histories.judged import (
    ALL,
    INCIDENTS,
    ORDINARY,
    check_incident,
    check_ordinary,
    check_paces,
    check_start_in_the_middle,
    name_of,
)
from tests.relations.test_clocks import HISTORIES as WITH_RIGHT_CLOCKS
from tests.relations.test_clocks import check_clocks
from tests.relations.transactions import check_transactions, writes_plain_records

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("history", ORDINARY, ids=name_of)
def test_an_ordinary_operation_raises_no_alert(history: History) -> None:
    check_ordinary(history)


@pytest.mark.parametrize("history", INCIDENTS, ids=name_of)
def test_an_incident_raises_the_expected_alert_after_it_began_and_no_other(history: History) -> None:
    check_incident(history)


@pytest.mark.parametrize("history", [one for one in INCIDENTS if one.rules & {*HEALTH_RULES}], ids=name_of)
def test_a_job_that_starts_in_the_middle_of_an_outage_says_since_when_it_is(history: History) -> None:
    check_start_in_the_middle(history)


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
