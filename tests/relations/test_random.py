"""The relations on random histories: a few by a fixed seed; `RANDOM_HISTORIES` (first:last) plays others."""

import os
from collections.abc import Callable
from functools import partial

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


@pytest.mark.parametrize("relation", [check_renamed, check_hidden, check_compacted, partial(check_restarts, most=2)])
@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_relation_holds_for_a_random_history(relation: Callable[[History], None], history: History) -> None:
    relation(history)
