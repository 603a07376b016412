"""Keeps the tables small: files compacted, old history and long-dead groups dropped, unused files removed.

It runs between batches, in the stream's own thread: beside them it would only meet them in conflicts. When rows were
last dropped stands in a file, so that a job that runs now and then (`--once`) does it daily, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.job.tables import VERSIONS_KEPT_HOURS
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from streaming_app.job.tables import Warehouse

COMMITS = 100  # batches that wrote something, until files are compacted
_DAY_SECONDS = 24 * 3600
_VACUUM_SECONDS = VERSIONS_KEPT_HOURS * 3600

TRIMMED_BY = {"groups": "deleted_at", "group_events": "at", "quarantine": "timestamp"}
"""Table to the time from which its retention counts; rows without that time stay. `alerts` keeps itself.

Groups come first: the history of a group that is gone goes with it.
"""


class Upkeep:
    """Told of every batch, it does what is due."""

    def __init__(
        self,
        warehouse: Warehouse,
        done_at: Place | Path,
        retention_days: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare. The file `done_at` says when old rows were dropped, in seconds since 1970."""
        self._warehouse = warehouse
        self._done_at = Place.of(done_at)
        self._retention_days = retention_days
        self._say = say
        self._clock = clock
        self._commits = 0
        self._vacuum_at = clock() + _VACUUM_SECONDS
        self._trimmed_at = self._read()

    def after_batch(self, *, wrote: bool) -> None:
        """Do what is due after a batch, and say so in one line if it was anything."""
        started = self._clock()
        done = []
        self._commits += wrote
        if self._commits >= COMMITS:
            for name in TRIMMED_BY:
                self._warehouse.compact(name)
                self._warehouse.forget_versions(name)
            self._commits = 0
            done.append("files compacted")
        due = started >= self._trimmed_at + _DAY_SECONDS
        if due:
            dropped = {
                name: self._warehouse.trim(name, column, self._retention_days) for name, column in TRIMMED_BY.items()
            }
            self._trimmed_at = self._write(self._clock())
            done += [f"{count:,} old rows of {name} dropped" for name, count in dropped.items() if count]
        if due or started >= self._vacuum_at:
            for name in TRIMMED_BY:
                self._warehouse.vacuum(name)
            self._vacuum_at = started + _VACUUM_SECONDS
        if done:
            self._say(f"upkeep: {', '.join(done)}, {self._clock() - started:.1f} s")

    def _read(self) -> float:
        try:
            return float(self._warehouse.files.read(self._done_at) or "")
        except ValueError:
            return self._write(self._clock())  # what was made just now holds nothing old

    def _write(self, seconds: float) -> float:
        self._warehouse.files.write(self._done_at, str(seconds))
        return seconds
