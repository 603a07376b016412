"""Relation H for all histories, and for random ones."""

from __future__ import annotations

import pytest

from tests.histories.history import History
from tests.histories.judged import ALL, name_of
from tests.relations.engine import parts
from tests.relations.random_histories import random_history
from tests.relations.test_hidden import check_hidden, check_order

pytestmark = pytest.mark.slow
_RANDOM = [random_history(number) for number in range(100)]


@pytest.mark.parametrize("history", [part for one in (*ALL, *_RANDOM) for part in parts(one)], ids=name_of)
def test_what_is_hidden_makes_nothing_better_and_changes_no_other_group(history: History) -> None:
    check_hidden(history, (0.0, 0.5))
    check_order(history)
