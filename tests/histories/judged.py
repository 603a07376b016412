"""What the histories bring, compared with what they are to bring; each is played once, when it is first asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.histories.bed import Outcome, run
from tests.histories.clients import START
from tests.histories.history import DAY, History
from tests.histories.incidents import INCIDENTS
from tests.histories.ordinary import ORDINARY

HISTORIES = {history.name: history for history in (*ORDINARY, *INCIDENTS)}
assert len(HISTORIES) == len(ORDINARY) + len(INCIDENTS), "two histories have one name"

_PACES: tuple[dict[str, Any], ...] = ({"every_step": True}, {"only_changes": True}, {"restart_every": 2_400.0})
_LONG = 3 * DAY  # every five seconds of a longer one would take minutes
# What is not stored, so that a run that begins learns it again: whether a lag falls, by how much clocks are wrong, and
# that a group had begun before the offsets of one that had already ended.
_LEARNT_AGAIN = (
    "Offsets are reset to the beginning by mistake",
    "The only instance crashes, and the clock of its broker is an hour",
    "Rolling restart of 6 static members while the group moves between brokers whose clocks",
    "Two deployments of the only instance by way of brokers whose clocks",
    "Two copies of two hours die with their host",
    "Two copies of an application have run side by side for more than a day, and both die",
)


class _Outcomes(dict[str, Outcome]):
    def __missing__(self, name: str) -> Outcome:
        self[name] = run(HISTORIES[name])
        return self[name]


OUTCOMES = _Outcomes()


def name_of(history: History) -> str:
    return history.name


def check_ordinary(history: History) -> None:
    assert [(one.rule, one.group_id, one.at, one.summary) for one in OUTCOMES[history.name].fired] == []


def check_incident(history: History) -> None:
    """Assert that an incident raised the expected alert after it began, and no other; and that its text has no hole."""
    fired = OUTCOMES[history.name].fired
    assert fired
    assert {one.rule for one in fired} <= history.rules
    assert min(one.at for one in fired) >= history.begins
    assert [one.summary for one in fired if any(hole in one.summary for hole in (", ;", "; ;", "  ", "()"))] == []


def check_paces(history: History) -> None:
    """Assert that the same facts open and end the same problems at any pace, and with restarts."""
    expected = _problems(OUTCOMES[history.name])
    for pace in _PACES:
        if "every_step" in pace and history.seconds > _LONG:
            continue
        if "restart_every" in pace and history.name.startswith(_LEARNT_AGAIN):
            continue
        assert _problems(run(history, **pace)) == expected, pace


_LATER = 1_500.0  # after an outage begins
_PAGE = 360.0  # seconds to the first page
_COMMIT_INTERVAL = 60.0
LONG_AFTER = START + timedelta(days=400)


def check_start_in_the_middle(history: History) -> None:
    """Assert that a job which starts 25 minutes after an outage began pages soon, and says since when it really is."""
    start = history.begins + _LATER
    whole, late = OUTCOMES[history.name], run(replace(history, watched_from=start))
    known = {one.group_id: one for one in late.problems}
    for one in whole.problems:
        if one.opened_at is None or not _at(one.opened_at) < start < _at(one.ended_at or LONG_AFTER):
            continue
        again = known[one.group_id]
        assert abs((again.since - one.since).total_seconds()) <= _COMMIT_INTERVAL, (again.since, one.since)
        sent = [_at(each.sent_at) for each in again.deliveries if each.sent_at]
        assert sent[0] <= start + _PAGE, sent


def _at(time: datetime) -> float:
    return (time - START).total_seconds()


def _problems(outcome: Outcome) -> list[tuple[object, ...]]:
    return sorted(
        (one.opened_at, one.since, str(one.cause), str(one.ended_at), str(one.ended_by), one.severity, one.rule)
        for one in outcome.problems
    )
