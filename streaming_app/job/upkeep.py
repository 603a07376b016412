"""Keeps the tables small: files compacted, old history and long-dead groups dropped, unused files removed.

It runs between batches, in the stream's own thread: beside them it would only meet them in conflicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from schemas.table_definitions import tables

if TYPE_CHECKING:
    from streaming_app.job.tables import Warehouse

COMMITS = 100  # batches that wrote something, until files are compacted
_DAY_SECONDS = 24 * 3600.0

TRIMMED_BY = {"groups": "deleted_at", "group_events": "at", "quarantine": "timestamp", "alerts": "resolved_at"}
"""Table to the time from which its retention counts; rows without that time stay."""


class Upkeep:
    """Told of every batch, it does what is due."""

    def __init__(
        self,
        warehouse: Warehouse,
        retention_days: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; old rows are trimmed first after the first batch, then daily."""
        self._warehouse = warehouse
        self._retention_days = retention_days
        self._say = say
        self._clock = clock
        self._commits = 0
        self._trim_at = clock()

    def after_batch(self, *, wrote: bool) -> None:
        """Do what is due after a batch, and say so in one line if it was anything."""
        started = self._clock()
        done = []
        self._commits += wrote
        if self._commits >= COMMITS:
            for definition in tables():
                self._warehouse.compact(definition.name)
            self._commits = 0
            done.append("files compacted")
        if started >= self._trim_at:
            dropped = {
                name: self._warehouse.trim(name, column, self._retention_days) for name, column in TRIMMED_BY.items()
            }
            for definition in tables():
                self._warehouse.vacuum(definition.name)
            self._trim_at = started + _DAY_SECONDS
            done += [f"{count:,} old rows of {name} dropped" for name, count in dropped.items() if count]
        if done:
            self._say(f"upkeep: {', '.join(done)}, {self._clock() - started:.1f} s")
