"""What the histories bring, compared with what they are to bring; each is played once, when it is first asked for."""

from typing import Any

from streaming_app.alerts.alert import CRITICAL, FIRING, RESOLVED, Alert
from streaming_app.health.verdict import DOWN, STALLED
from tests.histories.bed import run
from tests.histories.classic import OF_CLASSIC
from tests.histories.history import DAY, History
from tests.histories.incidents import OUTAGES
from tests.histories.misjudged import MISJUDGED
from tests.histories.ordinary_operations import ORDINARY_OPERATIONS
from tests.histories.outcome import Outcome, seconds

ALL = (*ORDINARY_OPERATIONS, *OUTAGES, *MISJUDGED)
HISTORIES = {history.name: history for history in ALL}
assert len(HISTORIES) == len(ALL), "two histories have one name"
ORDINARY, INCIDENTS = [one for one in ALL if not one.rules], [one for one in ALL if one.rules]
CHOSEN = [one for one in ALL if one.is_chosen]

_PACES: tuple[dict[str, Any], ...] = ({"every_step": True}, {"only_changes": True})
_LONG = 3 * DAY  # every five seconds of a longer one would take minutes


class _Outcomes(dict[str, Outcome]):
    def __missing__(self, name: str) -> Outcome:
        return self.of(HISTORIES[name])

    def of(self, history: History) -> Outcome:
        """Return the outcome of any history; `OUTCOMES[name]` is that of a written one."""
        if history.name not in self:
            self[history.name] = run(history)
        return self[history.name]


OUTCOMES = _Outcomes()


def name_of(history: History) -> str:
    return history.name


def check_ordinary(history: History) -> None:
    assert [(one.rule, one.group_id, one.opened_at, one.why) for one in OUTCOMES.of(history).fired] == []


def check_incident(history: History) -> None:
    """Assert that an incident raised the expected alert after it began, and no other; and that its text has no hole.

    Somebody was told of it soon, and not more often than it changed.
    """
    outcome = OUTCOMES.of(history)
    fired = outcome.fired
    assert fired
    assert {one.rule for one in fired} <= history.rules
    assert min(one.opened_at for one in fired) >= history.begins
    assert [one.why for one in fired if any(hole in one.why for hole in (", ;", "; ;", "  ", "()"))] == []
    assert history.name.removesuffix(OF_CLASSIC) in LATE or max(_pages(history, outcome), default=0.0) <= PAGE
    for one in outcome.alerts:
        assert len(told_at(one, outcome)) <= len(one.timeline), one
        assert len(told_at(one, outcome, RESOLVED)) <= 1, one


def check_paces(history: History) -> None:
    """Assert that the same facts open and end the same alerts at any pace; `relations.restarts` has restarts."""
    expected = _alerts(OUTCOMES.of(history))
    for pace in _PACES:
        if "every_step" in pace and history.seconds > _LONG:
            continue
        assert _alerts(run(history, **pace)) == expected, pace


PAGE = 360.0
"""Seconds to the first page of an outage with work that waits: patience, and two passes."""
LATE = {
    "The alert of an application that was lost is ignored for a while, and the application does not come back",
    # Each spell is short.
    "A changelog is deleted and created again and again, so that the group is NotReady for three of four minutes",
    # One offset may be a transaction marker until the next record comes.
    "A tool that saves costs stops an application for good, to which a record comes every eight minutes",
}
"""Somebody is told of them later. They are since their last commit, or since records came, all the same."""


def told_at(one: Alert, outcome: Outcome, event: str = FIRING) -> list[float]:
    """Return when somebody was told of an alert, or that it is over."""
    return [at for at, what, ids in outcome.notifications if what == event and one.alert_id in ids]


def _pages(history: History, outcome: Outcome) -> list[float]:
    """Return how many seconds passed until somebody was told of each outage while work waited.

    They count from when it began, or the job.
    """
    found = []
    for one in outcome.alerts:
        first = one.timeline[0] if one.opened_at else None
        waits = {"offsets", "waiting_partitions", "partition_count"} & one.evidence.keys()
        if first and first.severity == CRITICAL and first.verdict in {DOWN, STALLED} and waits:
            found.append(told_at(one, outcome)[0] - max(seconds(one.since), history.watched_from))
    return found


def _alerts(outcome: Outcome) -> list[tuple[object, ...]]:
    return sorted(
        (one.opened_at, one.since, str(one.cause), str(one.ended_at), str(one.ended_by), one.severity, one.rule)
        for one in outcome.alerts
    )
