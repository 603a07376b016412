"""Relation T on a fifth of all histories; `tests/long` has the others."""

from collections.abc import Sequence

import pytest

from tests.histories.bed import each
from tests.histories.history import HOUR, History, ordinary, working
from tests.histories.judged import name_of
from tests.relations.engine import a_fifth, play
from tests.relations.transactions import LONG, SHORT, Transactions, check_transactions, writes_plain_records

pytestmark = pytest.mark.slow
_BEGAN = 2 * HOUR


@pytest.mark.parametrize("history", [one for one in a_fifth("T") if writes_plain_records(one)], ids=name_of)
def test_transactions_bring_no_alert_but_of_one_that_is_open_for_too_long_and_take_none_away(
    history: History,
) -> None:
    check_transactions(history)


@pytest.mark.parametrize("restarts", [(), each(60.0, 6 * HOUR)], ids=["one run", "killed each minute"])
def test_a_transaction_that_nobody_ends_is_one_critical_alert_after_its_limit_and_patience(
    restarts: Sequence[float],
) -> None:
    held = Transactions(holds=((_BEGAN, _BEGAN + LONG),))
    outcome = play(ordinary("", working(2)), transform=held, restarts=restarts)
    (found,) = outcome.fired
    assert (found.rule, found.severity) == ("StreamsGroupStalled", "critical")
    assert _BEGAN + 20 * 60 <= found.opened_at <= _BEGAN + 22 * 60
    assert found.ended_at is not None
    assert found.ended_at - (_BEGAN + LONG) <= 120
    assert outcome.alerts[0].cause == "open_transaction"
    assert "12 partitions held by an open transaction since 2026-03-02 02:00:" in found.why


def test_transactions_of_ten_minutes_do_not_fill_the_history_of_verdicts() -> None:
    holds = tuple((_BEGAN + number * (SHORT + 30), _BEGAN + number * (SHORT + 30) + SHORT) for number in range(18))
    changes = play(ordinary("", working(2)), transform=Transactions(holds=holds)).changes
    assert [(one.verdict.verdict, one.verdict.why) for one in changes][-1] == (
        "Ok",
        "Offsets advance up to open transactions.",
    )
    assert len(changes) <= 4
