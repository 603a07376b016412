"""The relations on random histories: a few by a fixed seed; `RANDOM_HISTORIES` (first:last) plays others."""

from __future__ import annotations

import os

import pytest

from tests.histories.history import History
from tests.histories.judged import OUTCOMES, name_of
from tests.histories.world import World
from tests.relations.engine import a_tenth, play, told, verdicts
from tests.relations.random_histories import random_history
from tests.relations.renamed import names_of, renamed
from tests.relations.restarts import check_restarts
from tests.relations.test_c_compacted_logs import check as check_compacted
from tests.relations.test_hidden import check_hidden

pytestmark = pytest.mark.slow
_FIRST, _LAST = map(int, os.environ.get("RANDOM_HISTORIES", "0:4").split(":"))
HISTORIES = [random_history(number) for number in range(_FIRST, _LAST)]


def check_renamed(history: History) -> None:
    names = names_of(World.of(history))
    whole, other = play(history), play(history, transform=lambda world: renamed(world, names))
    back = {new: old for old, new in names.items()}

    def with_old_names(text: str) -> str:
        for new, old in back.items():
            text = text.replace(new, old)
        return text

    found = [
        one._replace(group_id=back.get(one.group_id or "", one.group_id), why=with_old_names(one.why))
        for one in told(other)
    ]
    assert sorted(found, key=str) == sorted(told(whole), key=str)
    assert {back[group_id]: spells for group_id, spells in verdicts(other).items()} == verdicts(whole)


@pytest.mark.parametrize("history", [*HISTORIES, *a_tenth("N")], ids=name_of)
def test_other_names_and_another_order_of_groups_change_nothing(history: History) -> None:
    check_renamed(history)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_random_history_of_which_parts_are_hidden_gets_no_better(history: History) -> None:
    check_hidden(history)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_random_history_in_a_compacted_log_tells_the_same(history: History) -> None:
    OUTCOMES[history.name] = play(history)
    check_compacted(history)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_random_history_with_a_job_that_is_killed_or_away_tells_the_same(history: History) -> None:
    OUTCOMES[history.name] = play(history)
    check_restarts(history)
