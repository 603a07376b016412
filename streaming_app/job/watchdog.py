"""Watches the job: heartbeats, so that something else notices when the job is gone, and the free space of its disks.

The heartbeat file is in the warehouse, for commands and other jobs; the other heartbeats go to sinks. A job that hangs
must not send those either: a heartbeat is sent only if the last evaluation of the alerts, which has its own thread, is
recent. Outdated tables do not stop it: the job's own alerts report them, with more detail than the receiver of the
heartbeat could.
"""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from streaming_app.alerts.engine_facts import DescriptionSupport
from streaming_app.config.settings import JobConfig
from streaming_app.errors import UserError
from streaming_app.job.owner import state_directory
from streaming_app.job.service import Job, Service, error_text
from streaming_app.job.stopping import StopRequestedError
from streaming_app.job_status import DiskSpace, SinkStatus, check_readiness
from streaming_app.notify.http_sink import WatchdogSink
from streaming_app.notify.sink import SinkError
from streaming_app.tables.heartbeat_file import HeartbeatRecord, heartbeat_path

_BEAT_SECONDS = 60.0
_MISSED_EVALUATIONS = 3
_LOW = 10  # a disk is almost full if less than a tenth is free
_SHORTEST_SECONDS = 60.0  # an evaluation of many groups, or a table in a slow store, may take long


class Heartbeat(Service):
    """Writes the heartbeat file while the job runs, with the time of the last evaluation, and once when it ends."""

    def __init__(self, job: Job, descriptions: DescriptionSupport, earlier: HeartbeatRecord | None = None) -> None:
        """Prepare. The next run starts with the knowledge of `descriptions`, this one with the gaps of `earlier`."""
        self._every = max(job.config.alerts.interval, job.config.warehouse.pause)
        super().__init__("heartbeat", job.report, interval=self._every)
        self._health, self._descriptions, self._fence = job.health, descriptions, job.fence
        self._file = heartbeat_path(job.config.warehouse, job.config.cluster)
        self._sinks: tuple[SinkStatus, ...] = ()
        self._last = earlier

    def evaluated(self, sinks: Iterable[SinkStatus]) -> None:
        """Note that the alerts were just evaluated, and the status of the sinks."""
        self._health.note(evaluated_at=datetime.now(timezone.utc))
        self._sinks = tuple(sinks)

    def tick(self) -> None:
        """Write the file. Raises OSError, and OtherOwnerError once another job owns the cluster."""
        if self._fence:
            self._fence.check_owner()
        self._write(self._sinks, stopped=False)

    def ended(self, sinks: Iterable[SinkStatus], error: BaseException | None = None) -> None:
        """Write that the job ended, and by which error, unless another job has taken over and writes the file."""
        if self._fence and self._fence.is_lost:
            return
        is_error = isinstance(error, Exception) and not isinstance(error, StopRequestedError)
        with suppress(OSError):  # e.g. a full disk: the error that ended the job is more important
            self._write(sinks, stopped=True, ended_by=error_text(error) if error and is_error else None)

    def _write(self, sinks: Iterable[SinkStatus], *, stopped: bool, ended_by: str | None = None) -> None:
        status = self._health.status
        record = HeartbeatRecord(
            at=datetime.now(timezone.utc),
            every_seconds=self._every,
            facts=status,
            stopped=stopped,
            ended_by=ended_by,
            notifications_waiting=sum(sink.waiting for sink in sinks),
            descriptions_since=self._descriptions.known_since,
            descriptions_removed_at=self._descriptions.removed_at,
            gaps=self._last.gaps_until(status.caught_up_at) if self._last else (),
        )
        self._file.write_text(record.model_dump_json())
        self._last = record


def watchdog(job: Job, sink: WatchdogSink) -> Service:
    """Return the service that sends the heartbeats of a sink, from the first evaluation on; alerts use it, too."""
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

    return Service(
        f"watchdog {sink.name}",
        job.report,
        interval=_BEAT_SECONDS,
        may_tick=lambda: job.health.status.evaluated_at is not None,
        do=beat,
    )


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
