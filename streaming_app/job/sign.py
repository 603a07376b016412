"""The sign of life that the job leaves in the warehouse while it runs, and what it remembers by it from run to run."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from streaming_app.job.errors import JobError
from streaming_app.serve.running import Running, read_running, running_file
from streaming_app.serve.warehouse import WarehouseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming_app.alerts.lane import SinkStatus
    from streaming_app.core.facts import GroupFacts
    from streaming_app.job.files import Files
    from streaming_app.job.health import Health
    from streaming_app.job.run import JobConfig

_STORE_SECONDS = 30.0  # between signs of life in a store, where each is a request that may cost


class SignOfLife:
    """Renewed after each look; `descriptions_since` is what it keeps over restarts."""

    def __init__(self, config: JobConfig, files: Files, health: Health, *, has_plugin: bool) -> None:
        """Take up what the job before left. `has_plugin`: the brokers' config names a description plugin."""
        self._config, self._files, self._health = config, files, health
        self._file = running_file(config.warehouse, config.cluster)
        self._pause = 0.0 if config.warehouse.is_local else _STORE_SECONDS
        self._signed_at = -self._pause
        self._plugin_since = datetime.now(timezone.utc) if has_plugin else None
        earlier = None
        with suppress(WarehouseError):  # of another release
            earlier = read_running(config.warehouse, config.cluster)
        self._descriptions_since = earlier.descriptions_since if earlier else None

    def descriptions_since(self, groups: Mapping[str, GroupFacts], _now: datetime) -> datetime | None:
        """Since when the cluster is known to keep topology descriptions: once known, it stays so.

        The group that showed it may be gone, and the brokers' config tells since when it names a plugin to nobody.
        """
        told = self._config.alerts.descriptions_since(groups.values(), self._plugin_since)
        if self._config.alerts.descriptions != "auto":
            return told
        known = [since for since in (told, self._descriptions_since) if since]
        self._descriptions_since = min(known, default=None)
        return self._descriptions_since

    def renew(self, sinks: Iterable[SinkStatus]) -> None:
        """Write it, if it is time to. Raises OSError when that cannot be done."""
        if time.monotonic() >= self._signed_at + self._pause:
            self._write(sinks, stopped=False)

    def sign_off(self, sinks: Iterable[SinkStatus]) -> None:
        """Write that the job ended in an orderly way."""
        with suppress(OSError, JobError):  # of a full disk, say: what ended the job is what is to be told
            self._write(sinks, stopped=True)

    def _write(self, sinks: Iterable[SinkStatus], *, stopped: bool) -> None:
        counted = self._health.counted
        running = Running(
            at=datetime.now(timezone.utc),
            every_seconds=self._pause + self._config.alerts.interval,
            facts=self._health.facts,
            records_seen=counted.records_seen,
            last_batch_seconds=counted.last_batch_seconds,
            stopped=stopped,
            notifications_waiting=sum(sink.waiting for sink in sinks),
            descriptions_since=self._descriptions_since,
        )
        self._files.write(self._file, running.model_dump_json())
        self._signed_at = time.monotonic()
