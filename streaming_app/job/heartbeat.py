"""The heartbeat file that the job writes into the warehouse while it runs; commands and other jobs read it."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from streaming_app.errors import JobError
from streaming_app.job.service import Service
from streaming_app.report import Report
from streaming_app.tables.heartbeat_file import HeartbeatRecord, heartbeat_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_app.alerts.outbox import SinkStatus
    from streaming_app.alerts.survey import DescriptionSupport
    from streaming_app.config.settings import JobConfig
    from streaming_app.stream.health import Health
    from streaming_app.tables.fence import Fence
    from streaming_app.tables.files import Files


class Heartbeat:
    """Writes the file, and once more when the job ends. It says when the alerts were last evaluated."""

    def __init__(
        self,
        config: JobConfig,
        files: Files,
        health: Health,
        descriptions: DescriptionSupport,
        fence: Fence | None = None,
    ) -> None:
        """Prepare; `descriptions` is written, too, so that the next run starts from what this one knows."""
        self._config, self._files, self._health, self._descriptions = config, files, health, descriptions
        self._fence = fence
        self._file = heartbeat_path(config.warehouse, config.cluster)
        self._pause = config.warehouse.pause
        self._written_at = -self._pause
        self._sinks: tuple[SinkStatus, ...] = ()

    def evaluated(self, sinks: Iterable[SinkStatus]) -> None:
        """Note that the alerts have just been evaluated, and what the sinks do."""
        self._health.evaluated()
        self._sinks = tuple(sinks)

    def beat(self) -> None:
        """Write the file if it is due.

        Raises OSError or JobError when it cannot be written, and OtherOwnerError once it is another job's.
        """
        if time.monotonic() >= self._written_at + self._pause:
            if self._fence:
                self._fence.check_owner()
            self._write(self._sinks, stopped=False)

    def stop(self, sinks: Iterable[SinkStatus]) -> None:
        """Write that the job ended in an orderly way, unless another one has taken over, and writes the file."""
        if self._fence and self._fence.is_lost:
            return
        with suppress(OSError, JobError):  # e.g. a full disk: the error that ended the job matters more
            self._write(sinks, stopped=True)

    def _write(self, sinks: Iterable[SinkStatus], *, stopped: bool) -> None:
        totals = self._health.totals
        record = HeartbeatRecord(
            at=datetime.now(timezone.utc),
            every_seconds=self._pause + self._config.alerts.interval,
            facts=self._health.status,
            records_seen=totals.records_seen,
            last_batch_seconds=totals.last_batch_seconds,
            stopped=stopped,
            notifications_waiting=sum(sink.waiting for sink in sinks),
            descriptions_since=self._descriptions.known_since,
        )
        self._files.write(self._file, record.model_dump_json())
        self._written_at = time.monotonic()


class HeartbeatService(Service):
    """Writes heartbeats while the job runs, whatever the evaluation of the alerts does: the two are different news."""

    def __init__(self, heartbeat: Heartbeat, interval: float, report: Report) -> None:
        """Prepare; `interval` is in seconds."""
        super().__init__("heartbeat", report, interval=interval)
        self._heartbeat = heartbeat

    def tick(self) -> None:
        """Write one if it is due. Raises OSError or JobError."""
        self._heartbeat.beat()
