"""Queries of a whole warehouse: its clusters, and whether their tables are up to date."""

from datetime import datetime, timedelta
from pathlib import Path

from streaming_app.errors import WarehouseError
from streaming_app.job_status import why_late
from streaming_app.tables.heartbeat_file import HeartbeatRecord, clusters_with_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.text import utc


def find_clusters(reader: WarehouseReader, warehouse: Location | Path) -> list[str]:
    """Return the names of the clusters, sorted. Raises WarehouseError."""
    return sorted(_with_groups(reader) | clusters_with_heartbeat(warehouse))


def _with_groups(reader: WarehouseReader) -> set[str]:
    return {row["cluster"] for row in reader.rows("SELECT DISTINCT cluster FROM groups")}


def check_cluster(reader: WarehouseReader, warehouse: Location | Path, cluster: str) -> None:
    """Raise WarehouseError with the existing clusters if the warehouse has other clusters but not this one."""
    if cluster in (known := _with_groups(reader)):
        return
    known |= clusters_with_heartbeat(warehouse)
    if known and cluster not in known:
        names = ", ".join(map(repr, sorted(known)))
        raise WarehouseError(f"No cluster {cluster!r} in {warehouse}, which has {names}: name one with --cluster")


def find_staleness(heartbeat: HeartbeatRecord | None, cluster: str, now: datetime, max_age: timedelta) -> str | None:
    """Return a line that says why the tables of a cluster are not up to date; None if they are.

    They are if the job was at the end of the topic within `max_age`, and either runs or was stopped cleanly.
    """
    if heartbeat is None:
        return f"No job has written cluster {cluster!r} here yet."
    caught_up_at = heartbeat.facts.caught_up_at
    as_of = f"the tables are as of {utc(caught_up_at)}." if caught_up_at else "the tables are not complete yet."
    if not heartbeat.stopped and not heartbeat.is_alive(now):
        return f"The job of cluster {cluster!r} has died: {as_of}"
    if heartbeat.ended_by:
        return f"The job of cluster {cluster!r} has ended by an error ({heartbeat.ended_by.rstrip('.')}): {as_of}"
    if caught_up_at is not None and now - caught_up_at <= max_age:
        return None
    if heartbeat.stopped:
        return f"The job of cluster {cluster!r} is not running: {as_of}"
    return f"The job of cluster {cluster!r} is late ({why_late(heartbeat.facts)}): {as_of}"
