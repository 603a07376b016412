"""The heartbeat file that the job writes into the warehouse while it runs; commands and other jobs read it."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from streaming_app.job.service import Job, Service, error_text
from streaming_app.job.stopping import StopRequestedError
from streaming_app.tables.heartbeat_file import HeartbeatRecord, heartbeat_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_app.alerts.engine_facts import DescriptionSupport
    from streaming_app.job_status import SinkStatus


class Heartbeat(Service):
    """Writes the file while the job runs, even if the evaluation of the alerts fails, and once more when it ends.

    The file also says when the alerts were last evaluated, since that is a separate fact.
    """

    def __init__(self, job: Job, descriptions: DescriptionSupport, earlier: HeartbeatRecord | None = None) -> None:
        """Prepare; `descriptions` is also written, so that the next run starts with this run's knowledge.

        `earlier` is the last heartbeat of the run before: what it knew of gaps is kept.
        """
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
        totals, status = self._health.totals, self._health.status
        record = HeartbeatRecord(
            at=datetime.now(timezone.utc),
            every_seconds=self._every,
            facts=status,
            records_seen=totals.records_seen,
            last_batch_seconds=totals.last_batch_seconds,
            stopped=stopped,
            ended_by=ended_by,
            notifications_waiting=sum(sink.waiting for sink in sinks),
            descriptions_since=self._descriptions.known_since,
            descriptions_removed_at=self._descriptions.removed_at,
            gaps=self._last.gaps_until(status.caught_up_at) if self._last else (),
        )
        self._file.write_text(record.model_dump_json())
        self._last = record
