"""The heartbeat file: whether the job runs, and its state. The job writes it at intervals; commands read it.

It does not say which job owns the cluster: see `job.owner`.
"""

import os
import socket
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streaming_app.errors import WarehouseError
from streaming_app.job_status import JobStatus
from streaming_app.tables.location import Location, warehouse_errors

_MISSED_HEARTBEATS = 3  # on a busy machine; after more, the job counts as not running
_SLACK_SECONDS = 5
_SUFFIX = ".running.json"
_SHORTEST_GAP, _KEPT_FOR, _MOST_GAPS = timedelta(minutes=1), timedelta(days=31), 200
Gap = tuple[datetime, datetime]
"""A time in which the job did not run, or did not reach the end of the topic: nothing was known then."""


class HeartbeatRecord(BaseModel):
    """The state of the job at the time `at`. The job writes the next record after `every_seconds`."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    every_seconds: float
    facts: JobStatus
    stopped: bool = False
    """The job was stopped cleanly, or has ended by an error."""
    ended_by: str | None = None
    """The error that ended the job, in one line; None: none did."""
    notifications_waiting: int = 0
    descriptions_since: datetime | None = None
    """Since when the job knows that the cluster stores topology descriptions."""
    descriptions_removed_at: datetime | None = None
    """When the job first saw that the brokers have no plugin for them."""
    gaps: tuple[Gap, ...] = ()
    """Those that are over, the oldest first: for a month, and the newest ones if there are many."""
    pid: int = Field(default_factory=os.getpid)
    host: str = Field(default_factory=socket.gethostname)

    def is_alive(self, now: datetime) -> bool:
        """Return whether the job has not stopped, and its last heartbeat is recent."""
        return not self.stopped and now - self.at < self.alive_for

    @property
    def evaluates(self) -> bool:
        """Whether the job evaluated the alerts shortly before this heartbeat."""
        evaluated_at = self.facts.evaluated_at
        return evaluated_at is None or self.at - evaluated_at < self.alive_for

    @property
    def alive_for(self) -> timedelta:
        """How long after this heartbeat the job counts as alive."""
        return timedelta(seconds=_MISSED_HEARTBEATS * self.every_seconds + _SLACK_SECONDS)

    def gaps_until(self, time: datetime | None) -> tuple[Gap, ...]:
        """Return the gaps up to a time at which the job was at the end of the topic, or a reader asks."""
        known, longest = self.facts.caught_up_at, max(self.alive_for, _SHORTEST_GAP)
        if known is None or time is None:
            return self.gaps
        found = (*self.gaps, (known, time)) if time - known > longest else self.gaps
        return tuple(one for one in found[-_MOST_GAPS:] if time - one[1] < _KEPT_FOR)


def heartbeat_path(warehouse: Location | Path, cluster: str) -> Location:
    """Return the location of the heartbeat file of the job that writes `cluster`; it holds JSON."""
    return Location.of(warehouse) / "_jobs" / f"{cluster}{_SUFFIX}"


def read_heartbeat(warehouse: Location | Path, cluster: str) -> HeartbeatRecord | None:
    """Return the last heartbeat; None if there never was one. Raises WarehouseError if it cannot be read."""
    file = heartbeat_path(warehouse, cluster)
    try:
        with warehouse_errors("read", file):
            text = file.find_text(may_be_empty=False)
        return None if text is None else HeartbeatRecord.model_validate_json(text)
    except ValidationError:
        raise WarehouseError(f"{file} was written by another release: restart the job with this one") from None


def first_started_at(warehouse: Location | Path, cluster: str, now: datetime) -> datetime:
    """Return when a job of 0.3.1 or later first started on a cluster: `now` if none has. Raises WarehouseError."""
    file = Location.of(warehouse) / "_jobs" / f"{cluster}.first-started"
    with warehouse_errors("read or write", file):
        with suppress(ValueError, TypeError):  # damaged
            if text := file.find_text():
                return min(datetime.fromisoformat(text.strip()), now)
        file.write_text(f"{now.isoformat()}\n")
    return now


def clusters_with_heartbeat(warehouse: Location | Path) -> set[str]:
    """Return the clusters whose job has run here. Raises WarehouseError if the directory cannot be read."""
    directory = heartbeat_path(warehouse, "").parent
    with warehouse_errors("read", directory):
        names = directory.names()
    return {name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}
