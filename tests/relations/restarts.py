"""Relation S in its small form: the job is killed and started again at any time, or is away for minutes or hours.

A restart changes nothing. After an absence the problems are those of a job that was not away: the ones that are open
then, since the same time; what ended meanwhile is told as ended, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.histories.bed import STEP, Outcome
from tests.histories.history import History
from tests.histories.judged import LEARNT_AGAIN, OUTCOMES, PAGE
from tests.relations.engine import Told, differences, play, random_of, seconds, told

TELLS_ANOTHER_BEGIN: Sequence[tuple[str, str]] = (
    (
        "Green overlaps blue",
        "the job was away when green passed the offsets of blue: that it began before is not proven",
    ),
)
"""Part of a name of histories -> why an absence changes their problems."""
_LATER = ("since at least", "does not stay up", "members left after less than", "seen at")
"""What a text says that may begin later than what it tells of."""
_TOLERANCE = 60.0
"""Seconds: two passes over the lag."""


def check_restarts(history: History) -> None:
    """Assert that a job that is killed again and again tells the same problems, of the same times."""
    if history.name.startswith(LEARNT_AGAIN):
        return
    every = random_of("S", history.name).choice((60.0, 300.0, 1_500.0))
    outcome = play(history, restart_every=every)
    assert told(outcome) == told(OUTCOMES[history.name]), every
    check_one_since(outcome)


def check_absence(history: History) -> None:
    """Assert that a job that was away for a while tells what it would have told without that, as far as it is so."""
    random = random_of("absence", history.name)
    length = random.choice((300.0, 1_800.0, 7_200.0))
    began = (
        random.uniform(history.watched_from, max(history.watched_from, history.seconds - length - PAGE)) // STEP * STEP
    )
    back = began + length
    outcome = play(
        history, transform=lambda world: replace(world, job_downtimes=sorted([*world.job_downtimes, (began, back)]))
    )
    if history.name.startswith(LEARNT_AGAIN) or any(history.name.startswith(part) for part, _ in TELLS_ANOTHER_BEGIN):
        return
    found = differences(told(OUTCOMES[history.name]), told(outcome))
    of_then = [one for one in (*found.missed, *found.false) if _is_open(one, back, back + PAGE) or one.opened_at > back]
    assert of_then == [], (began, back)
    texts = {(one.group_id, one.opened_at and seconds(one.opened_at)): one.timeline[0].why for one in outcome.problems}
    moved = [
        (one, other)
        for one, other in found.changed(("since",), _TOLERANCE)
        if _is_open(one, back, back + PAGE)
        if other.since < one.since or not any(it in texts[other.group_id, other.opened_at] for it in _LATER)
    ]
    assert moved == [], (began, back)
    check_one_since(outcome)


def check_one_since(outcome: Outcome) -> None:
    """Assert that the verdict of each group with an open problem holds since the time that the problem says."""
    verdicts = {change.group_id: change.verdict for change in outcome.changes}
    for one in outcome.problems:
        if (
            one.opened_at
            and one.ended_at is None
            and one.group_id
            and one.timeline[-1].verdict == one.timeline[0].verdict
        ):
            assert verdicts[one.group_id].since == one.since, one


def _is_open(one: Told, begin: float, end: float) -> bool:
    return one.opened_at <= end and (one.ended_at is None or one.ended_at > begin)
