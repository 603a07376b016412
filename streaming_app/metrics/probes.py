"""Whether the job is alive and whether it is ready: what `/health` and `/ready` answer. Pure: who asks brings the time.

Alive is the question of a supervisor that would restart the job, ready that of who wants to rely on its tables. A job
whose brokers are away is alive, as a restart would not bring them back, and it is not ready.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.core.facts import JobFacts

_FAR_BEHIND = timedelta(minutes=1)  # that the end of the topic was not reached for so long
_STILL = timedelta(minutes=15)  # longer than the largest batch takes, upkeep of the tables included


class Answer(NamedTuple):
    """Yes or no, and why: one line."""

    good: bool
    reason: str


Probe = Callable[[JobFacts, datetime], Answer]


def alive(job: JobFacts, now: datetime) -> Answer:
    """Whether the stream works, or only waits for brokers."""
    if job.brokers_away_since:
        return Answer(good=True, reason=f"waiting: no broker has answered since {_spelled(job.brokers_away_since)}")
    if job.failing_since:
        return Answer(good=False, reason=f"the stream fails since {_spelled(job.failing_since)}: {job.failure}")
    newest = job.last_success_at or job.started_at
    if now - newest > _STILL:
        return Answer(good=False, reason=f"no batch has ended since {_spelled(newest)}")
    return Answer(good=True, reason="the stream runs")


def ready(job: JobFacts, now: datetime) -> Answer:
    """Whether the tables show what the brokers have, give or take a minute."""
    if job.brokers_away_since:
        return Answer(good=False, reason=f"no broker has answered since {_spelled(job.brokers_away_since)}")
    working = alive(job, now)
    if not working.good:
        return working
    if not job.caught_up:
        return Answer(good=False, reason=f"not caught up with the topic yet: {job.behind:,} offsets behind")
    if job.behind_since and now - job.behind_since > _FAR_BEHIND:
        return Answer(good=False, reason=f"behind since {_spelled(job.behind_since)}: {job.behind:,} offsets")
    return Answer(good=True, reason="caught up")


def _spelled(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
