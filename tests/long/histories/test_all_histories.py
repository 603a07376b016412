"""All histories, and random ones, through all relations; `tests/relations` has a fifth of them."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.histories.classic import with_classic_protocol
from tests.histories.history import History
from tests.histories.judged import ALL, INCIDENTS, ORDINARY, check_incident, check_ordinary, check_paces
from tests.histories.world import World
from tests.relations import test_classic as classic
from tests.relations.engine import excepted, parts
from tests.relations.random_histories import random_history
from tests.relations.renamed import log_of
from tests.relations.restarts import check_restarts
from tests.relations.test_c_compacted_logs import check as check_compacted
from tests.relations.test_clocks import HISTORIES as WITH_RIGHT_CLOCKS
from tests.relations.test_clocks import check_clocks
from tests.relations.test_hidden import check_hidden, check_order
from tests.relations.test_renamed import NOT_IN_RECORDS, check_renamed, check_rows
from tests.relations.transactions import check_transactions, writes_plain_records

pytestmark = pytest.mark.slow
_AND_RANDOM = [*ALL, *map(random_history, range(100))]
_CLASSIC = with_classic_protocol(ALL)


def _check_hidden(history: History) -> None:
    check_hidden(history, (0.0, 0.5))
    check_order(history)


def _check_renamed(history: History) -> None:
    check_renamed(history)
    if not excepted(history, NOT_IN_RECORDS):
        check_rows(history.name, log_of(World.of(history)), seeds=3)


CHECKS: Mapping[str, tuple[Callable[[History], None], Sequence[History]]] = {
    "an ordinary operation raises no alert": (check_ordinary, ORDINARY),
    "an incident raises the expected alert, soon and seldom": (check_incident, INCIDENTS),
    "at any pace": (check_paces, ALL),
    "compacted": (check_compacted, _AND_RANDOM),
    "restarts": (check_restarts, _AND_RANDOM),
    "hidden": (_check_hidden, [part for one in _AND_RANDOM for part in parts(one)]),
    "renamed": (_check_renamed, _AND_RANDOM),
    "transactions": (check_transactions, [one for one in ALL if writes_plain_records(one)]),
    "wrong clocks": (check_clocks, WITH_RIGHT_CLOCKS),
    "told": (classic.check, _CLASSIC),
    "at any pace (classic)": (check_paces, _CLASSIC),
    "compacted (classic)": (classic.check_compacted, _CLASSIC),
    "restarts (classic)": (check_restarts, _CLASSIC),
    "hidden (classic)": (_check_hidden, [part for one in _CLASSIC for part in parts(one)]),
    "renamed (classic)": (classic.check_names, _CLASSIC),
    "transactions (classic)": (check_transactions, [one for one in _CLASSIC if writes_plain_records(one)]),
}


@pytest.mark.parametrize(
    ("check", "history"),
    [
        pytest.param(check, history, id=f"{name}: {history.name}")
        for name, (check, histories) in CHECKS.items()
        for history in histories
    ],
)
def test_a_relation_holds_for_a_history(check: Callable[[History], None], history: History) -> None:
    check(history)
