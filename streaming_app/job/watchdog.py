"""Watches the job: heartbeats, so that something else notices when the job is gone, and the free space of its disks.

A job that hangs must not send heartbeats either: a heartbeat is sent only if the last evaluation of the alerts, which
has its own thread, is recent. Outdated tables do not stop the heartbeat: the job's own alerts report them, with more
detail than the receiver of the heartbeat could.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.errors import UserError
from streaming_app.job.owner import state_directory
from streaming_app.job.service import Job, Service
from streaming_app.job_status import DiskSpace, check_readiness
from streaming_app.notify.http_sink import WatchdogSink
from streaming_app.notify.sink import SinkError

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig

_BEAT_SECONDS = 60.0
_MISSED_EVALUATIONS = 3
_LOW = 10  # a disk is almost full if less than a tenth is free
_SHORTEST_SECONDS = 60.0  # an evaluation of many groups, or a table in a slow store, may take long


def watchdogs(job: Job) -> list[Service]:
    """Return the services that send the heartbeats of a job, one for each sink that gets them."""
    return [watchdog(job, sink) for sink in job.config.sinks if isinstance(sink, WatchdogSink)]


def watchdog(job: Job, sink: WatchdogSink) -> Service:
    """Return the service that sends the heartbeats of a sink, starting with the first evaluation of the alerts.

    The thread that sends alerts uses the sink, too.
    """
    patience = max(_MISSED_EVALUATIONS * job.config.alerts.interval, _SHORTEST_SECONDS)

    def beat() -> None:
        status, now = job.health.status, job.now()
        silent = (now - (status.evaluated_at or status.started_at)).total_seconds()
        if silent > patience:
            raise UserError(f"no heartbeat is sent: alerts were last evaluated {silent:.0f} s ago")
        try:
            sink.beat(job.config.cluster, check_readiness(status, now).reason)
        except SinkError as error:
            raise UserError(str(error)) from None

    def has_evaluated() -> bool:
        return job.health.status.evaluated_at is not None

    name = f"watchdog {sink.name}"
    return Service(name, job.report, interval=_BEAT_SECONDS, may_tick=has_evaluated, do=beat)


class Disks:
    """The disks of the warehouse and of the state directory, if they are local."""

    def __init__(self, config: JobConfig) -> None:
        warehouse = {Path(str(config.warehouse))} if config.warehouse.is_local else set()
        self._directories = sorted({*warehouse, state_directory(config.warehouse, config.state_dir)})
        self._low_since: dict[Path, datetime] = {}

    def now(self) -> Sequence[DiskSpace]:
        """Return the current space of the disks that can be read."""
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
