"""Liveness and readiness of the job, as `/health` and `/ready` return them. Pure: the caller passes the time.

Liveness is for a supervisor that would restart the job, readiness for readers of the tables. A job that no broker
answers, or whose topic does not exist yet, is live, because a restart would not help, but not ready. A batch may take
any time, as long as Spark makes progress with it: it would only be repeated after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.job_status import JobStatus
from streaming_app.text import count

_MAX_BEHIND = timedelta(minutes=1)  # since the job was last at the end of the topic
_MAX_STANDSTILL = timedelta(minutes=15)  # without a batch that ends, or any progress of Spark with one


class ProbeResult(NamedTuple):
    """Success or failure of a probe, with the reason in one line."""

    ok: bool
    reason: str


Probe = Callable[[JobStatus, datetime], ProbeResult]


def check_liveness(job: JobStatus, now: datetime) -> ProbeResult:
    """Return whether the stream makes progress, or only waits for brokers or the topic."""
    if waiting := _waits_for(job):
        return ProbeResult(ok=True, reason=f"waiting: {waiting}")
    if job.failing_since:
        return ProbeResult(ok=False, reason=f"the stream fails since {_format(job.failing_since)}: {job.failure}")
    last_progress = max(at for at in (job.last_success_at, job.progress_at, job.started_at) if at)
    if now - last_progress > _MAX_STANDSTILL:
        return ProbeResult(ok=False, reason=f"the stream has made no progress since {_format(last_progress)}")
    return ProbeResult(ok=True, reason="the stream is running")


def check_readiness(job: JobStatus, now: datetime) -> ProbeResult:
    """Return whether the tables are at most about a minute behind the brokers."""
    if waiting := _waits_for(job):
        return ProbeResult(ok=False, reason=waiting)
    liveness = check_liveness(job, now)
    if not liveness.ok:
        return liveness
    behind = f"{count(job.behind, 'offset')} behind"
    if not job.caught_up:
        return ProbeResult(ok=False, reason=f"not caught up with the topic yet: {behind}")
    if job.behind_since and now - job.behind_since > _MAX_BEHIND:
        return ProbeResult(ok=False, reason=f"{behind} since {_format(job.behind_since)}")
    return ProbeResult(ok=True, reason="caught up")


def _waits_for(job: JobStatus) -> str | None:
    """Return what the job waits for, and since when; None if it does not wait."""
    if job.brokers_away_since:
        return f"no broker has answered since {_format(job.brokers_away_since)}"
    if job.topic_missing_since:
        return f"there has been no such topic since {_format(job.topic_missing_since)}"
    return None


def _format(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
