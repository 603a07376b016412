"""How long the job has not been at the end of the topic, and whether that is too long. Pure: the caller passes times.

Theory of operation
-------------------
Compaction keeps a tombstone for `delete.retention.ms` and then removes it: a reader that was at the end of the topic at
some time, and reads on within that time, sees every tombstone. A reader that comes later may miss some. Members and
groups that are gone would then stay in the rows for ever, so the job has to read the topic from the beginning.

A reader that began at the beginning counts as one that was at the end at that time: what it does not see was compacted
away before it read the records that this concerns.

So the time of the last end of the topic must not move forward across a gap that is too long. It stays where it was
until the job reads from the beginning, however often the job reaches the end of the topic or is restarted meanwhile.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.job_status import JobStatus

_CLOCK_SLACK = timedelta(minutes=5)  # a time that is later than now by more than this is from a wrong clock
# Between two ends of the topic in a running job: batches take seconds, whatever the topic's retention is.
_SHORTEST = timedelta(seconds=10)


def complete_at(status: JobStatus) -> datetime | None:
    """Return when the rows lacked nothing that compaction may have removed since; None if that is not known."""
    return max((at for at in (status.caught_up_at, status.read_from_beginning_at) if at), default=None)


def time_away(status: JobStatus, now: datetime) -> timedelta | None:
    """Return for how long the job has not been at the end of the topic; None if that is not known."""
    at = complete_at(status)
    return None if at is None or at > now + _CLOCK_SLACK else max(now - at, timedelta())


def is_too_long(away: timedelta | None, retention: timedelta) -> bool:
    """Return whether tombstones may have been missed; `retention` is the topic's `delete.retention.ms`."""
    return away is None or away > retention


def is_gap_too_long(status: JobStatus, at: datetime, retention: timedelta) -> bool:
    """Return the same for a running job that has read up to the end of the topic by `at`.

    The end of reading from the beginning is no gap, even if it took too long: reading again would take as long.
    """
    began, caught_up_at = status.read_from_beginning_at, status.caught_up_at
    if caught_up_at is None or (began is not None and began > caught_up_at):
        return False
    return at - caught_up_at > max(retention, _SHORTEST)
