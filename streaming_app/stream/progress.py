"""Reports each batch: Spark's progress and the counts of the micro-batch become a log line and `Health`.

Spark tells of its progress in two ways: the query has it at once, and listeners get an event of it, which may arrive
minutes later while other events or another listener hold it up. So the query is looked at a few times a second, and an
event counts only if it is the first to tell. Whatever tells of it, a batch is dated by its own time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

from streaming_app.stream.batch_outcome import Outcome, all_phases
from streaming_app.stream.health import Batch, Health

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

_KEPT = 1000  # triggers; Spark keeps the progress of a hundred
_Trigger = tuple[str, str]
"""Run, and when it began."""
_NO_OFFSETS = ("null", "None")  # of a source that has not read anything: as JSON, and as PySpark turns that into text


class Progress(StreamingQueryListener):
    """Writes a line for every batch that read anything and when the end is first reached, and updates `health`."""

    end_known_at: datetime | None = None
    """When the end of the topic was determined up to which all batches read; None if each determines it."""

    def __init__(
        self,
        write: Callable[[str], None],
        health: Health,
        query_name: str | None = None,
    ) -> None:
        """Report the query of this name; without one, that which has no name."""
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
        self._told: deque[_Trigger] = deque(maxlen=_KEPT)  # those that are reported, the newest last
        self._outcomes: dict[int, Outcome] = {}
        self._has_caught_up = False
        self._lock = Lock()

    def on_done(self, batch_id: int, outcome: Outcome) -> None:
        """Receive the counts of a batch; Spark's event for it follows."""
        self._outcomes[batch_id] = outcome

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Write the line of the batch that ended."""
        if str(event.progress.runId) in self._runs:
            self._take(event.progress)

    def _take(self, progress: StreamingQueryProgress) -> None:
        """Report what a trigger did, unless it is reported."""
        if not self._is_first_to_tell(str(progress.runId), progress.timestamp):
            return
        if "addBatch" not in progress.durationMs:  # it found nothing to read
            self._nothing_new(progress.timestamp)
            return
        # Spark counts a record each time that it reads the batch.
        seen = min(progress.numInputRows, _offsets_of_batch(progress))
        self._read(progress, seen)
        outcome = self._outcomes.pop(progress.batchId, None)
        if not outcome:
            return
        seconds, behind = progress.batchDuration / 1000, _behind(progress)
        phases = all_phases(outcome.seconds, dict(progress.durationMs), seconds)
        batch = Batch(seen, seconds, outcome.by_type, outcome.quarantined, outcome.drifted, behind, phases)
        began_at = _time(progress.timestamp)
        self._health.batch_done(batch, self.end_known_at or began_at, began_at + timedelta(seconds=seconds))
        if seen:
            left = sum(behind.values())
            self._write(batch_line(progress.batchId, seen, seconds, outcome, left))
        if not any(behind.values()) and self.end_known_at is None:
            self._caught_up()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note which query it is; the job writes its own line at the start. Spark calls this before a batch begins."""
        if event.name == self._query_name:
            self._runs.add(str(event.runId))
            self.records, self.ends, self.has_ended_trigger = 0, {}, False

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Note that there was nothing to read."""
        if str(event.runId) in self._runs and self._is_first_to_tell(str(event.runId), event.timestamp):
            self._nothing_new(event.timestamp)

    def forget_runs(self) -> None:
        """Ignore what events still tell of queries that have ended: they were looked at, and others may come late."""
        self._runs.clear()

    def _read(self, progress: StreamingQueryProgress, seen: int) -> None:
        self.records += seen
        for source in progress.sources:
            self.ends = _offsets(source.endOffset) or self.ends
        self.has_ended_trigger = True

    def look_at(self, query: StreamingQuery) -> None:
        """Report what the query has done since the last call. Call it a few times a second, and once after its end.

        Of a first trigger that finds nothing to read Spark posts no event at all (`ProgressReporter.updateIdleness`).
        """
        known: Any = query._jsq.recentProgress()  # noqa: SLF001 - only what is new is read
        run_id, new = str(query.runId), []
        for number in range(len(known) - 1, -1, -1):
            if (run_id, str(known[number].timestamp())) in self._told:
                break
            new.append(known[number])
        for one in reversed(new):
            self._take(StreamingQueryProgress.fromJObject(one))

    def _is_first_to_tell(self, run_id: str, timestamp: str) -> bool:
        """Return whether this trigger is not reported yet, and count it as reported."""
        with self._lock:
            is_first = (run_id, timestamp) not in self._told
            if is_first:
                self._told.append((run_id, timestamp))
        return is_first

    def _nothing_new(self, trigger_began_at: str) -> None:
        self.has_ended_trigger = True
        self._caught_up()
        began_at = _time(trigger_began_at)
        self._health.nothing_new(self.end_known_at or began_at, began_at)

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


def _offsets_of_batch(progress: StreamingQueryProgress) -> int:
    """Return how many offsets a batch has, and thus records at most."""
    count = 0
    for source in progress.sources:
        starts, ends = _offsets(source.startOffset), _offsets(source.endOffset)
        count += sum(end - starts.get(partition, 0) for partition, end in ends.items())
    return count


def _offsets(text: str | None) -> dict[int, int]:
    topics = json.loads(text) if text and text not in _NO_OFFSETS else {}
    return {int(partition): offset for by_partition in topics.values() for partition, offset in by_partition.items()}


def batch_line(batch_id: int, seen: int, seconds: float, outcome: Outcome, behind: int) -> str:
    """Return the line of a batch: what was read, the counts, how long it took, how many offsets are left."""
    parts = [
        f"{seen:,} records seen",
        *outcome.texts(),
        f"{seconds:.1f} s",
        f"{behind:,} behind",
    ]
    return f"batch {batch_id}: " + ", ".join(parts)
