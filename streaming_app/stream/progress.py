"""Reports each batch: a log line and an update of `JobState`, from Spark's progress and the counts of the batch.

The job asks the query for its progress once a second. The query has it at once, also for triggers that found nothing.
Listeners would get it as events, which may arrive minutes late while other events hold them up, and PySpark takes some
hundred calls of the JVM to convert one. This module takes one call per batch, which returns JSON. The time of a batch
is its own, not the time at which it is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from threading import Lock
from typing import TYPE_CHECKING, Any

from streaming_app.stream.batch_counts import BatchCounts, all_phases
from streaming_app.stream.job_state import CommittedBatch, JobState

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_Trigger = Mapping[str, Any]
"""The report of a trigger, as in `StreamingQueryProgress.json` of Spark 4."""


class Progress:
    """Updates `health`; writes a line for every batch that read anything, and when the end is first reached."""

    end_known_at: datetime | None = None
    """When the end of the topic up to which all batches read was determined; None if each batch determines it."""

    def __init__(self, write: Callable[[str], None], health: JobState) -> None:
        """Report the queries of one stream, one after the other."""
        self._write = write
        self._health = health
        self._has_caught_up = False
        self._outcomes: dict[int, tuple[BatchCounts, datetime]] = {}  # by batch, with the time at which it was written
        self._last: tuple[StreamingQuery, str] | None = None  # the last reported trigger, by its start time
        self._lock = Lock()
        self.starting()

    def starting(self) -> None:
        """Note that a query is about to start."""
        self.has_ended_trigger = False
        """Whether the query has ended a trigger, with or without a batch."""

    def on_done(self, batch_id: int, outcome: BatchCounts) -> None:
        """Receive the counts of a batch; Spark's progress of the batch follows."""
        self._outcomes[batch_id] = outcome, datetime.now(timezone.utc)

    def poll(self, query: StreamingQuery) -> None:
        """Report what the query has done since the last call. Call it once a second, and once after its end.

        Spark keeps the progress of a hundred triggers.
        """
        with self._lock:  # a running job and an ending one call this from different threads
            self._poll(query)

    def _poll(self, query: StreamingQuery) -> None:
        known: Any = query._jsq.recentProgress()  # noqa: SLF001 - allows to read only the new entries
        new: list[_Trigger] = []
        for number in range(len(known) - 1, -1, -1):
            if (query, str(known[number].timestamp())) == self._last:  # Spark builds the JSON at each call, so compare
                break
            new.append(json.loads(known[number].json()))
        for one in reversed(new):
            self._last = query, one["timestamp"]
            self._note(one)

    def _note(self, trigger: _Trigger) -> None:
        """Note and report a trigger."""
        began_at = _time(trigger["timestamp"])
        self.has_ended_trigger = True
        if "addBatch" not in trigger.get("durationMs", ()):  # it found nothing to read
            self._caught_up()
            self._health.nothing_new(self.end_known_at or began_at, began_at)
            return
        # Spark counts a record once for each time that the batch was read.
        seen = min(trigger["numInputRows"], _offsets_of_batch(trigger))
        known = self._outcomes.pop(trigger["batchId"], None)
        if not known:
            return
        outcome, written_at = known
        # Spark's own duration includes the pause after the batch, see `StreamQuery`.
        written = max(0.0, (written_at - began_at).total_seconds())
        seconds, behind = written + trigger["durationMs"].get("commitOffsets", 0) / 1000, _behind(trigger)
        phases = all_phases(outcome.seconds, trigger["durationMs"], seconds)
        batch = CommittedBatch(seen, seconds, outcome.by_type, outcome.quarantined, outcome.drifted, behind, phases)
        self._health.batch_done(batch, self.end_known_at or began_at, written_at)
        if seen:
            self._write(batch_line(trigger["batchId"], seen, seconds, outcome, sum(behind.values())))
        if not any(behind.values()) and self.end_known_at is None:
            self._caught_up()

    def _caught_up(self) -> None:
        """Write a line the first time that nothing is left. With constant input, a query is never idle."""
        if not self._has_caught_up:
            self._has_caught_up = True
            self._write("Caught up: waiting for new records.")


def _time(text: str) -> datetime:
    """Return the time at which a trigger began, before it asked for the end of the topic."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _behind(trigger: _Trigger) -> dict[int, int]:
    """Return the offsets from the end of the batch to the end of the topic as then known, by partition."""
    behind: dict[int, int] = {}
    for source in trigger["sources"]:
        ends, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        behind |= {partition: max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()}
    return behind


def _offsets_of_batch(trigger: _Trigger) -> int:
    """Return the number of offsets of a batch: it has at most as many records."""
    count = 0
    for source in trigger["sources"]:
        starts, ends = _offsets(source["startOffset"]), _offsets(source["endOffset"])
        count += sum(end - starts.get(partition, 0) for partition, end in ends.items())
    return count


def _offsets(topics: Mapping[str, Mapping[str, int]] | None) -> dict[int, int]:
    """Return the offsets of a source's only topic; empty if the source has not read anything."""
    return {
        int(partition): offset for by_partition in (topics or {}).values() for partition, offset in by_partition.items()
    }


def batch_line(batch_id: int, seen: int, seconds: float, outcome: BatchCounts, behind: int) -> str:
    """Return the log line of a batch: records read, counts, duration, offsets left."""
    parts = [
        f"{seen:,} records seen",
        *outcome.texts(),
        f"{seconds:.1f} s",
        f"{behind:,} behind",
    ]
    return f"batch {batch_id}: " + ", ".join(parts)
