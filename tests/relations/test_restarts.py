"""Relation S on a fifth of all histories and a few random ones; `tests/long` has the others."""

import pytest

from tests.histories.history import History
from tests.histories.judged import name_of
from tests.relations.engine import a_fifth
from tests.relations.restarts import check_restarts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("history", a_fifth("S"), ids=name_of)
def test_a_job_that_is_killed_or_away_tells_what_is_so_and_since_when(history: History) -> None:
    check_restarts(history, 2)
