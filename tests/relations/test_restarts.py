"""Relation S, in its small form, on a tenth of all histories; `tests/long` has the others."""

from __future__ import annotations

import pytest

from tests.histories.history import History
from tests.histories.judged import name_of
from tests.relations.engine import a_tenth
from tests.relations.restarts import check_absence, check_restarts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("history", a_tenth("S"), ids=name_of)
def test_a_job_that_is_killed_again_and_again_tells_the_same_problems_of_the_same_times(history: History) -> None:
    check_restarts(history)


@pytest.mark.parametrize("history", a_tenth("absence"), ids=name_of)
def test_a_job_that_was_away_tells_what_is_so_when_it_is_back_and_since_when(history: History) -> None:
    check_absence(history)
