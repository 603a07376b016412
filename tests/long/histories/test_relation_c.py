"""Relation C for all histories."""

from __future__ import annotations

import pytest

from tests.histories.history import History
from tests.histories.judged import ALL, name_of
from tests.relations.test_c_compacted_logs import check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("history", ALL, ids=name_of)
def test_a_compacted_log_brings_the_same_verdicts_and_problems_as_the_whole_one(history: History) -> None:
    check(history)
