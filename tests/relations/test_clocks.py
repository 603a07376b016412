"""The brokers' clocks are ten minutes ahead of the job's, or behind: alerts, times and what is pending stay."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import pytest

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.health.verdict import PENDING
from tests.histories.bed import STEP
from tests.histories.history import History, do
from tests.histories.judged import INCIDENTS, OUTCOMES, name_of
from tests.histories.outcome import Outcome, seconds
from tests.relations.engine import differences, excepted, play, random_of, told

pytestmark = pytest.mark.slow

CLOCKS = (-600.3, 600.3)
"""Seconds: not a round number, as many records of histories are ten minutes apart, to the microsecond."""
HAS_OWN_CLOCKS = "fail_over"
EXCEPTIONS = {
    "A nightly job does not run one night": "it ends as its running hours do, by the wrong clock five seconds sooner",
}
"""Part of a name of histories -> why wrong clocks change what they tell."""
HISTORIES = [
    one
    for one in INCIDENTS
    if one.rules & {*HEALTH_RULES} and all(each.action != HAS_OWN_CLOCKS for each in one.operations)
]
_TOLERANCE = 2 * STEP
"""Seconds: a record of a wrong clock counts as of when the job read it."""
_PASS = 30.0 + _TOLERANCE
"""Seconds: a commit by a clock that is behind seems to be older than the members; the commit before the next pass ends
the alert."""


def check_clocks(history: History) -> None:
    """Assert that wrong clocks of all brokers change no alert, nor when a pending verdict is due."""
    if excepted(history, EXCEPTIONS):
        return
    whole = OUTCOMES.of(history)
    for clock in CLOCKS:
        other = play(replace(history, operations=(*do(0, HAS_OWN_CLOCKS, clock=clock), *history.operations)))
        found = differences(told(whole), told(other))
        wrong = [*found.missed, *found.false]
        pairs = found.changed(("severity", "since", "opened_at"), _TOLERANCE) + found.changed(("ended_at",), _PASS)
        wrong += [one for pair in pairs for one in pair]
        assert wrong == [], clock
        first, second = ([*pending(outcome)] for outcome in (whole, other))
        assert [what for what, _ in first] == [what for what, _ in second], clock
        assert all(abs(at - due) <= _TOLERANCE for (_, at), (_, due) in zip(first, second, strict=True)), clock


def pending(outcome: Outcome) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield which verdict on which group was pending, and when it was due."""
    for group_id, verdict, _ in outcome.changes:
        if PENDING in verdict.evidence:
            due = datetime.fromisoformat(verdict.evidence["pending_at"])
            yield (group_id, verdict.evidence[PENDING]), seconds(due)


@pytest.mark.parametrize("history", random_of("clocks").sample(HISTORIES, len(HISTORIES) // 5), ids=name_of)
def test_clocks_of_brokers_that_are_wrong_by_ten_minutes_change_no_alert_and_nothing_pending(
    history: History,
) -> None:
    check_clocks(history)
