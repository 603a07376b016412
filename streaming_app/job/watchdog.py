"""Who watches the job: heartbeats, so that something else notices when it is gone, and the disks that it needs.

A job that hangs says nothing either: a heartbeat is sent only while the last evaluation of the alerts, by a thread of
their own, is recent. Whether the tables are up to date is part of what is said, and alerts of the job's own are about
it; it does not stop the heartbeat, as the receiver would only say the same with less detail.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.errors import UserError
from streaming_app.job.owner import state_directory
from streaming_app.job.service import Service
from streaming_app.job_status import DiskSpace, JobStatus, check_readiness
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.report import Report

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig
    from streaming_app.stream.health import Health

_MISSED_EVALUATIONS = 3
_LOW = 10  # a part of so many
_SHORTEST_SECONDS = 60.0  # an evaluation of many groups, or a table on a slow store, may take long


class Watchdog(Service):
    """The heartbeats of one sink, until it is closed."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        sink: Sink,
        cluster: str,
        status: Callable[[], JobStatus],
        report: Report,
        *,
        patience: float,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Prepare; a heartbeat follows an evaluation that is not older than `patience`, in seconds."""
        super().__init__(f"watchdog {sink.name}", report, interval=sink.beat_seconds)
        self._sink, self._cluster, self._status, self._now = sink, cluster, status, now
        self._patience = timedelta(seconds=patience)

    def is_ready(self) -> bool:
        """Return whether anything has been evaluated yet."""
        return self._status().evaluated_at is not None

    def tick(self) -> None:
        """Send a heartbeat. Raises UserError if there is none to send, or it is not accepted."""
        status, now = self._status(), self._now()
        silent = now - (status.evaluated_at or status.started_at)
        if silent > self._patience:
            raise UserError(f"no heartbeat is sent: alerts were last evaluated {silent.total_seconds():.0f} s ago")
        try:
            self._sink.beat(self._cluster, check_readiness(status, now).reason)
        except SinkError as error:
            raise UserError(str(error)) from None


def make_watchdogs(config: JobConfig, health: Health, report: Report) -> list[Watchdog]:
    """Return those of a job."""
    patience = max(_MISSED_EVALUATIONS * config.alerts.interval, _SHORTEST_SECONDS)
    return [
        Watchdog(sink, config.cluster, lambda: health.status, report, patience=patience)
        for sink in config.sinks
        if sink.beat_seconds
    ]


class Disks:
    """The disks of the warehouse and of the state directory, as far as they are local."""

    def __init__(self, config: JobConfig) -> None:
        warehouse = {Path(str(config.warehouse))} if config.warehouse.is_local else set()
        self._directories = sorted({*warehouse, state_directory(config.warehouse, config.state_dir)})
        self._low_since: dict[Path, datetime] = {}

    def now(self) -> Sequence[DiskSpace]:
        """Return those that can be asked, as they are now."""
        found = []
        for directory in self._directories:
            with suppress(OSError):
                usage = shutil.disk_usage(directory)
                if usage.free * _LOW < usage.total:
                    self._low_since.setdefault(directory, datetime.now(timezone.utc))
                else:
                    self._low_since.pop(directory, None)
                found.append(DiskSpace(str(directory), usage.free, usage.total, self._low_since.get(directory)))
        return found
