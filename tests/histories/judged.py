"""What the histories bring, compared with what they are to bring; each is played once, when it is first asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from streaming_app.alerts.problem import CRITICAL, FIRING, RESOLVED, Problem
from streaming_app.health.verdict import BAD, DOWN, LOSING, STALLED, UNSTABLE
from tests.histories.bed import STEP, Outcome, run
from tests.histories.clients import START
from tests.histories.everyday_incidents import EVERYDAY_INCIDENTS
from tests.histories.everyday_ordinary import EVERYDAY_ORDINARY
from tests.histories.history import DAY, History
from tests.histories.misjudged import MISJUDGED
from tests.histories.reported_incidents import REPORTED_INCIDENTS
from tests.histories.reported_ordinary import REPORTED_ORDINARY

ALL = (*EVERYDAY_ORDINARY, *EVERYDAY_INCIDENTS, *REPORTED_ORDINARY, *REPORTED_INCIDENTS, *MISJUDGED)
HISTORIES = {history.name: history for history in ALL}
assert len(HISTORIES) == len(ALL), "two histories have one name"
ORDINARY, INCIDENTS = [one for one in ALL if not one.rules], [one for one in ALL if one.rules]
CHOSEN = [one for one in ALL if one.is_chosen]

_PACES: tuple[dict[str, Any], ...] = ({"every_step": True}, {"only_changes": True})
_LONG = 3 * DAY  # every five seconds of a longer one would take minutes


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
    """Assert that an incident raised the expected alert after it began, and no other; and that its text has no hole.

    Somebody was told of it soon, and not more often than it changed.
    """
    outcome = OUTCOMES[history.name]
    fired = outcome.fired
    assert fired
    assert {one.rule for one in fired} <= history.rules
    assert min(one.at for one in fired) >= history.begins
    assert [one.summary for one in fired if any(hole in one.summary for hole in (", ;", "; ;", "  ", "()"))] == []
    assert history.name in LATE or max(_pages(history, outcome), default=0.0) <= PAGE
    for one in outcome.problems:
        changes = sum(line.verdict in BAD for line in one.timeline)
        assert len(told_at(one, outcome)) <= changes, one
        assert len(told_at(one, outcome, RESOLVED)) <= 1, one


def check_paces(history: History) -> None:
    """Assert that the same facts open and end the same problems at any pace; `relations.restarts` has restarts."""
    expected = _problems(OUTCOMES[history.name])
    for pace in _PACES:
        if "every_step" in pace and history.seconds > _LONG:
            continue
        assert _problems(run(history, **pace)) == expected, pace


LATER = 1_500.0
"""Seconds after an outage began, at which a job starts in its middle."""
PAGE = 360.0
"""Seconds to the first page of an outage with work that waits: patience, and two passes."""
LATE = {
    "An instance restores for half an hour, is killed for its memory, and begins again",  # it may restore
    "A nightly job starts, and its threads hang before the first record",  # records waited since the night before
    "The alert of an application that was lost is ignored for a while, and the application does not come back",
    # Each spell is short.
    "An autoscaler from zero stops its pod after 40 s, of which it needs 30 to start, every four minutes",
    "A changelog is deleted and created again and again, so that the group is NotReady for three of four minutes",
    # One offset may be a transaction marker until the next record comes.
    "A tool that saves costs stops an application for good, to which a record comes every eight minutes",
}
"""Somebody is told of them later. They are since their last commit, or since records came, all the same."""
_COMMIT_INTERVAL = 60.0
LONG_AFTER = START + timedelta(days=400)
_AT_LEAST = ("since at least", "before the group read them, seen at")
_SINCE_ANOTHER_TIME = {
    "An application dies, and the clock of its broker is two hours ahead": "the job reads it as of its start",
    "All instances are stopped by mistake, as the coordinator moves to a broker with a clock three minutes behind": (
        "the same, by the clock of the broker"
    ),
    "The only instance crashes, and the clock of its broker is an hour behind": "the same",
    "An instance restores for half an hour, is killed for its memory, and begins again": "it began again at the start",
    "The only instance is removed, and joins every twenty minutes for ten seconds without processing anything": (
        "it had members for ten seconds"
    ),
}
"""What a job that starts in the middle says, where it does not know that it was so before."""
_GONE = "An application dies and is deleted with Kafka's tools by somebody who tries to help"  # before the job starts


def middle(history: History) -> float:
    """Return the time 25 minutes after the first problem began, or the middle of a short one."""
    first = min((one for one in OUTCOMES[history.name].problems if one.opened_at), key=lambda one: one.since)
    start = max(history.watched_from, _at(first.since)) + LATER
    end = min(_at(first.ended_at or LONG_AFTER), history.seconds)
    if end <= start + PAGE:
        start = (_at(first.opened_at or first.since) + end) / 2
    for one in history.operations:
        if one.action == "job_down" and one.at <= start < one.at + one.arguments["seconds"]:
            start = one.at + one.arguments["seconds"]
    return start - start % STEP


def check_start_in_the_middle(history: History) -> None:
    """Assert that a job which starts in the middle of an outage pages soon, and says since when it really is."""
    whole, start = OUTCOMES[history.name], middle(history)
    late = run(replace(history, watched_from=start))
    for one in whole.problems if history.name != _GONE else ():
        if not _is_open(one, start, start + PAGE):
            continue
        again = next(other for other in late.problems if other.group_id == one.group_id and other.opened_at)
        first = again.timeline[0]
        if first.verdict in {DOWN, STALLED, LOSING}:
            assert told_at(again, late)[0] - start <= PAGE, again
        is_loop = first.verdict == UNSTABLE or "does not stay up" in first.why  # since the first end that counts
        if not is_loop and history.name not in _SINCE_ANOTHER_TIME and not any(it in first.why for it in _AT_LEAST):
            assert abs((again.since - one.since).total_seconds()) <= _COMMIT_INTERVAL, (again.since, one.since, first)


def _is_open(one: Problem, begin: float, end: float) -> bool:
    """Tell whether a problem is open, and its group is not well, in all of a time."""
    if one.opened_at is None or not _at(one.opened_at) < begin or _at(one.ended_at or LONG_AFTER) <= end:
        return False
    lines = [line for line in one.timeline if _at(line.at) <= end]
    return all(line.verdict in BAD for line in lines[-1:] + [line for line in lines if _at(line.at) > begin])


def told_at(one: Problem, outcome: Outcome, event: str = FIRING) -> list[float]:
    """Return when somebody was told of a problem, or that it is over."""
    return [at for at, what, ids in outcome.notifications if what == event and one.alert_id in ids]


def _pages(history: History, outcome: Outcome) -> list[float]:
    """Return how many seconds passed until somebody was told of each outage while work waited.

    They count from when it began, or the job.
    """
    found = []
    for one in outcome.problems:
        first = one.timeline[0] if one.opened_at else None
        waits = {"offsets", "waiting_partitions", "partition_count"} & one.evidence.keys()
        if first and first.severity == CRITICAL and first.verdict in {DOWN, STALLED} and waits:
            found.append(told_at(one, outcome)[0] - max(_at(one.since), history.watched_from))
    return found


def _at(time: datetime) -> float:
    return (time - START).total_seconds()


def _problems(outcome: Outcome) -> list[tuple[object, ...]]:
    return sorted(
        (one.opened_at, one.since, str(one.cause), str(one.ended_at), str(one.ended_by), one.severity, one.rule)
        for one in outcome.problems
    )
