"""Whether the job runs and how it does, by a file that it renews while it lives. Written by the job, read by commands.

The lock of `job/lock.py` tells the same on the job's own machine only, and only to those who may write there.
"""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streaming_app.core.facts import JobFacts
from streaming_app.serve.place import Place
from streaming_app.serve.warehouse import WarehouseError

_MISSED = 3  # renewals that may be missed, by a busy machine, before the job counts as gone


class Running(BaseModel):
    """What the job wrote of itself at `at`; it writes again every `every_seconds`."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    every_seconds: float
    facts: JobFacts
    records_seen: int
    """Records read since the start, of every kind."""
    last_batch_seconds: float
    stopped: bool = False
    """It ended, in an orderly way."""
    notifications_waiting: int = 0
    descriptions_since: datetime | None = None
    """Since when the cluster is known to keep topology descriptions."""
    pid: int = Field(default_factory=os.getpid)
    host: str = Field(default_factory=socket.gethostname)

    def alive(self, now: datetime) -> bool:
        """It has not ended, and was heard of lately."""
        return not self.stopped and now - self.at < timedelta(seconds=_MISSED * self.every_seconds + 5)


def running_file(warehouse: Place | Path, cluster: str) -> Place:
    """Where the job of `cluster` writes how it does, as JSON."""
    return Place.of(warehouse) / "_jobs" / f"{cluster}.running.json"


def read_running(warehouse: Place | Path, cluster: str) -> Running | None:
    """What the job wrote last; None if there never was one. Raises WarehouseError if it cannot be read."""
    file = running_file(warehouse, cluster)
    try:
        return Running.model_validate_json(file.read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WarehouseError(f"Cannot read {file}: {error.strerror or error}") from None
    except ValidationError:
        raise WarehouseError(f"{file} was written by another release: restart the job with this one") from None


def warning(warehouse: Place | Path, cluster: str) -> str | None:
    """A line for those who look at tables that nobody keeps; None while the job lives."""
    running = read_running(warehouse, cluster)
    if running is None:
        return f"No job has written cluster {cluster!r} here yet."
    if running.alive(datetime.now(timezone.utc)):
        return None
    return f"The job of cluster {cluster!r} is not running: this is what it knew at {running.at:%Y-%m-%d %H:%M:%SZ}."
