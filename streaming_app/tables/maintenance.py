"""Keeps the tables small: compacts files, deletes expired rows, and removes files and log entries no longer needed.

No task runs while a batch writes: their commits would conflict. No task is part of a batch, which would delay its
records. A service of `job.streams` runs each task between two batches. The next batch does not need the result. So if a
task fails, the job reports it in one line, and tries again after growing pauses; neither the stream nor other tasks
wait.

A file keeps the time of the last deletion of expired rows, so that a job that runs at intervals (`--once`) also deletes
them daily.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from streaming_app.errors import OtherOwnerError, java_error_message
from streaming_app.tables.definitions import Table, expiring_tables
from streaming_app.tables.location import Location

COMMITS_PER_COMPACTION = 100  # batches that wrote something between two compactions
_DAY_SECONDS = 24 * 3600
_VACUUM_SECONDS = 3600
_RETRY_SECONDS = 60  # after the first failure of a task; doubled with each further one
_MAX_RETRY_SECONDS = 3600
_MAX_CAUSE = 300  # characters of the cause in a line about a failure


@dataclass
class _Task:
    """One kind of task of one table."""

    name: str
    """What it does, as the line about a failure says it."""
    run: Callable[[], str]
    """Runs it; returns a text for the report, or an empty one."""
    is_due: bool = False
    failures: int = 0
    """Number of failures in a row."""
    failed_at: float = 0.0

    def pause(self) -> float:
        """Return the seconds between its last failure and the next attempt."""
        return min(_RETRY_SECONDS * 2 ** (self.failures - 1), _MAX_RETRY_SECONDS) if self.failures else 0.0


class MaintainedTables(Protocol):
    """The operations on the tables of one cluster; implemented by `TableWriter` and `NewestTables`."""

    def compact(self, name: str) -> None:
        """Compact the files of a table."""

    def clean_up_log(self, name: str) -> None:
        """Remove log entries that are older than the table's log retention."""

    def delete_expired(self, definition: Table, days: float) -> int:
        """Delete the rows that are older than `days`; return their number."""

    def vacuum(self, name: str) -> None:
        """Remove the data files that no version needs."""


class Maintenance:
    """Counts batches, and runs the tasks that are due. `AlertsTable` maintains the table `alerts` itself."""

    def __init__(  # noqa: PLR0913 - the last three are for tests, or have a default
        self,
        writer: MaintainedTables,
        done_at: Location | Path,
        retention_days: float,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        *,
        tables: Sequence[Table] | None = None,
        on_failure: Callable[[], None] = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
        between_batches: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Prepare. The file `done_at` holds the time of the last deletion of expired rows, in seconds since 1970.

        `tables` are by default all tables that expire. `on_failure` is called when a task fails. While `is_stopping`,
        no task starts. Each task runs within `between_batches`, during which no batch starts.
        """
        self._writer = writer
        self._done_at = Location.of(done_at)
        self._retention_days = retention_days
        self._report = report
        self._clock = clock
        self._on_failure = on_failure
        self._is_stopping = is_stopping
        self._between_batches = between_batches or nullcontext()
        self._commits, self._has_begun = 0, False
        self._vacuumed_at = clock()
        self._deleted_at = clock()
        tables = expiring_tables() if tables is None else tables
        self._compactions = [_Task(f"compacting {one.name}", self._compaction(one)) for one in tables]
        self._deletions = [_Task(f"deleting expired rows of {one.name}", self._deletion(one)) for one in tables]
        self._read = _Task("reading when expired rows were last deleted", self._read_time, is_due=True)
        self._note = _Task("noting when expired rows were deleted", self._write_time)
        self._vacuums = [_Task(f"removing old files of {one.name}", self._vacuum(one)) for one in tables]

    def after_batch(self, *, wrote: int) -> None:
        """Note that a batch is done.

        `wrote` is the number of commits for which the batch counts: 0 if it changed no table, more than 1 if it wrote
        so much that the tables should be compacted earlier.
        """
        self._commits += wrote
        self._has_begun = True

    def run(self) -> None:
        """After the first batch, run the tasks that are due, each between two batches. Report the results in a line.

        Raises OtherOwnerError once another job has taken over, but no other error of a task.
        """
        if not self._has_begun:
            return
        started = self._clock()
        if self._commits >= COMMITS_PER_COMPACTION:
            self._commits = 0
            _set_due(self._compactions)
        self._attempt(self._read)
        is_day_over = not self._read.is_due and _is_over(self._deleted_at, _DAY_SECONDS, started)
        if is_day_over:
            self._deleted_at = started
            _set_due([*self._deletions, self._note])
        if is_day_over or _is_over(self._vacuumed_at, _VACUUM_SECONDS, started):
            self._vacuumed_at = started
            _set_due(self._vacuums)
        done = [self._attempt(task) for task in (*self._compactions, *self._deletions)]
        if not any(task.is_due for task in self._deletions):
            self._attempt(self._note)
        done += [self._attempt(task) for task in self._vacuums]
        if lines := dict.fromkeys(filter(None, done)):
            self._report(f"maintenance: {', '.join(lines)}, {self._clock() - started:.1f} s")

    def _attempt(self, task: _Task) -> str:
        """Run a task if it is due; return its report."""
        now = self._clock()
        if not task.is_due or self._is_stopping() or not _is_over(task.failed_at, task.pause(), now):
            return ""
        try:
            with self._between_batches:
                if self._is_stopping():
                    return ""
                done = task.run()
        except OtherOwnerError:
            raise
        except Exception as error:  # noqa: BLE001 - Delta, Spark and stores raise many kinds; the stream must go on
            if not self._is_stopping():  # Spark cancels the task when the job stops
                self._failed(task, now, error)
            return ""
        task.is_due, task.failures = False, 0
        return done

    def _failed(self, task: _Task, now: float, error: Exception) -> None:
        task.failures += 1
        task.failed_at = now
        self._on_failure()
        cause = java_error_message(error)[:_MAX_CAUSE]
        self._report(f"maintenance: {task.name} failed, trying again in {task.pause() / 60:.0f} min: {cause}")

    def _compaction(self, table: Table) -> Callable[[], str]:
        def run() -> str:
            self._writer.compact(table.name)
            self._writer.clean_up_log(table.name)
            return "files compacted"

        return run

    def _deletion(self, table: Table) -> Callable[[], str]:
        def run() -> str:
            count = self._writer.delete_expired(table, self._retention_days)
            return f"{count:,} expired rows of {table.name} deleted" if count else ""

        return run

    def _vacuum(self, table: Table) -> Callable[[], str]:
        def run() -> str:
            self._writer.vacuum(table.name)
            return ""

        return run

    def _read_time(self) -> str:
        try:
            self._deleted_at = float(self._done_at.find_text() or "")
        except ValueError:  # no file: the tables are new and hold nothing old
            self._note.is_due = True
        return ""

    def _write_time(self) -> str:
        self._done_at.write_text(str(self._deleted_at))
        return ""


def _is_over(since: float, seconds: float, now: float) -> bool:
    """Return whether so much time has passed. If `since` is in the future, a clock was wrong: return True."""
    return not 0 <= now - since < seconds


def _set_due(tasks: list[_Task]) -> None:
    for task in tasks:
        task.is_due = True
