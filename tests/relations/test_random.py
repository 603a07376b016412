"""The relations on random histories: a few by a fixed seed; `RANDOM_HISTORIES` (first:last) plays others."""

import os

import pytest

from tests.histories.history import History
from tests.histories.judged import name_of
from tests.relations.random_histories import random_history
from tests.relations.restarts import check_restarts
from tests.relations.test_c_compacted_logs import check as check_compacted
from tests.relations.test_hidden import check_hidden
from tests.relations.test_renamed import check_renamed

pytestmark = pytest.mark.slow
_FIRST, _LAST = map(int, os.environ.get("RANDOM_HISTORIES", "0:4").split(":"))
HISTORIES = [random_history(number) for number in range(_FIRST, _LAST)]


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_other_names_and_another_order_of_groups_change_nothing(history: History) -> None:
    check_renamed(history)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_random_history_of_which_parts_are_hidden_gets_no_better(history: History) -> None:
    check_hidden(history)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_random_history_in_a_compacted_log_tells_the_same(history: History) -> None:
    check_compacted(history)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_random_history_with_a_job_that_is_killed_or_away_tells_the_same(history: History) -> None:
    check_restarts(history, 2)
