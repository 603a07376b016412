"""Relation N for all histories, and for random ones."""

from __future__ import annotations

import pytest

from tests.histories.history import History
from tests.histories.judged import ALL, name_of
from tests.histories.world import World
from tests.relations.random_histories import random_history
from tests.relations.renamed import log_of
from tests.relations.test_renamed import check_renamed, check_rows

pytestmark = pytest.mark.slow
_RANDOM = [random_history(number) for number in range(100)]


@pytest.mark.parametrize("history", [*ALL, *_RANDOM], ids=name_of)
def test_names_order_batches_and_workers_change_nothing(history: History) -> None:
    check_renamed(history)
    check_rows(history.name, log_of(World.of(history)), seeds=3)
