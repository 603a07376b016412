"""Reports each batch: Spark's progress event and the counts of the micro-batch become a log line and `Health`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming_app.stream.batch_outcome import Outcome, all_phases, describe_phases
from streaming_app.stream.health import Batch, Health

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery


class Progress(StreamingQueryListener):
    """Writes a line for every batch that read anything and when the end is first reached, and updates `health`."""

    end_known_at: datetime | None = None
    """When the end of the topic was determined up to which all batches read; None if each determines it."""

    def __init__(
        self,
        write: Callable[[str], None],
        health: Health,
        query_name: str | None = None,
        *,
        shows_phases: bool = False,
    ) -> None:
        """Report the query of this name; without one, that which has no name."""
        self._shows_phases = shows_phases
        self._write = write
        self._health = health
        self._query_name = query_name
        self.records = 0
        """How many the query has read since it was started."""
        self.ends: Mapping[int, int] = {}
        """The end of its last batch since then, by partition."""
        self.has_ended_trigger = False
        """Whether it has ended a trigger since then, with a batch, which is counted here, or without."""
        self._runs: set[str] = set()
        self._is_first_trigger = False  # of a run, whose event may never come
        self._outcomes: dict[int, Outcome] = {}
        self._has_caught_up = False
        self._lock = Lock()

    def on_done(self, batch_id: int, outcome: Outcome) -> None:
        """Receive the counts of a batch; Spark's event for it follows."""
        self._outcomes[batch_id] = outcome

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Write the line of the batch that ended."""
        progress = event.progress
        if str(progress.runId) not in self._runs:
            return
        self._read(progress)
        self._is_first_trigger = False
        outcome = self._outcomes.pop(progress.batchId, None)
        if not outcome:
            return
        seconds, behind = progress.batchDuration / 1000, _behind(progress)
        phases = all_phases(outcome.seconds, dict(progress.durationMs), seconds)
        batch = Batch(
            progress.numInputRows, seconds, outcome.by_type, outcome.quarantined, outcome.drifted, behind, phases
        )
        self._health.batch_done(batch, self.end_known_at or _time(progress.timestamp))
        if progress.numInputRows:
            left = sum(behind.values())
            shown = phases if self._shows_phases else {}
            self._write(batch_line(progress.batchId, progress.numInputRows, seconds, outcome, left, shown))
        if not any(behind.values()) and self.end_known_at is None:
            self._caught_up()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note which query it is; the job writes its own line at the start. Spark calls this before a batch begins."""
        if event.name == self._query_name:
            self._runs.add(str(event.runId))
            self._is_first_trigger = True
            self.records, self.ends, self.has_ended_trigger = 0, {}, False

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Note that there was nothing to read."""
        if str(event.runId) in self._runs:
            self._is_first_trigger = False
            self._nothing_new(event.timestamp)

    def _read(self, progress: StreamingQueryProgress) -> None:
        self.records += progress.numInputRows
        for source in progress.sources:
            self.ends = _offsets(source.endOffset) or self.ends
        self.has_ended_trigger = True

    def look_at(self, query: StreamingQuery) -> None:
        """Note that the first trigger of the running query found nothing to read.

        Spark posts no event of it, only of the next one (`ProgressReporter.updateIdleness`), which may be ten seconds
        later. Call it a few times a second.
        """
        if not self._is_first_trigger or self.end_known_at is not None:
            return
        progress = query.lastProgress
        if progress is not None:
            self._is_first_trigger = False
            if "addBatch" not in progress.durationMs:  # of a batch there is an event
                self._nothing_new(progress.timestamp)

    def _nothing_new(self, trigger_began_at: str) -> None:
        self.has_ended_trigger = True
        self._caught_up()
        self._health.nothing_new(self.end_known_at or _time(trigger_began_at))

    def _caught_up(self) -> None:
        """Write a line the first time that nothing is left: a query to which records always come is never idle."""
        with self._lock:
            is_first, self._has_caught_up = not self._has_caught_up, True
        if is_first:
            self._write("Caught up: waiting for new records.")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query; the job writes its own line at the end."""
        self._runs.discard(str(event.runId))


def _time(text: str) -> datetime:
    """Return the time of an event: when its trigger began, before it asked for the end of the topic."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _behind(progress: StreamingQueryProgress) -> dict[int, int]:
    """Return the offsets between the end of the batch and the end of the topic as then known, by partition."""
    behind: dict[int, int] = {}
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        behind |= {partition: max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()}
    return behind


def _offsets(text: str | None) -> dict[int, int]:
    topics = json.loads(text) if text and text != "null" else {}
    return {int(partition): offset for by_partition in topics.values() for partition, offset in by_partition.items()}


def batch_line(  # noqa: PLR0913, PLR0917 - each is a part of the line
    batch_id: int, seen: int, seconds: float, outcome: Outcome, behind: int, phases: Mapping[str, float]
) -> str:
    """Return the line of a batch: what was read, the counts, how long it took and where, how many offsets are left."""
    where = describe_phases(phases)
    parts = [
        f"{seen:,} records seen",
        *outcome.texts(),
        f"{seconds:.1f} s" + (f" ({where})" if where else ""),
        f"{behind:,} behind",
    ]
    return f"batch {batch_id}: " + ", ".join(parts)
