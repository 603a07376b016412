"""Whether the tables are up to date, for commands whose exit code says so. Pure: the caller passes the time."""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.job_status import why_late
from streaming_app.tables.heartbeat_file import HeartbeatRecord
from streaming_app.text import utc


def find_staleness(heartbeat: HeartbeatRecord | None, cluster: str, now: datetime, max_age: timedelta) -> str | None:
    """Return a line that says why the tables of a cluster are not up to date; None if they are.

    They are if the job was at the end of the topic within `max_age`, and either runs or has stopped in an orderly way.
    """
    if heartbeat is None:
        return f"No job has written cluster {cluster!r} here yet."
    caught_up_at = heartbeat.facts.caught_up_at
    as_of = f"the tables are as of {utc(caught_up_at)}." if caught_up_at else "the tables are not complete yet."
    if not heartbeat.stopped and not heartbeat.is_alive(now):
        return f"The job of cluster {cluster!r} has died: {as_of}"
    if caught_up_at is not None and now - caught_up_at <= max_age:
        return None
    if heartbeat.stopped:
        return f"The job of cluster {cluster!r} is not running: {as_of}"
    return f"The job of cluster {cluster!r} is late ({why_late(heartbeat.facts)}): {as_of}"
