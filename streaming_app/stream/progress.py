"""The counts of each batch, and its report: a log line and an update of `JobState`.

The job asks the query for its progress once a second. The query has it at once, also for triggers that found nothing.
Listeners would get it as events, which may arrive minutes late while other events hold them up, and PySpark takes some
hundred calls of the JVM to convert one. This module takes one call per batch, which returns JSON. The time of a batch
is its own, not the time at which it is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from streaming_app.stream.batch_rows import BatchRows
from streaming_app.stream.job_state import CommittedBatch, JobState

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_Trigger = Mapping[str, Any]
"""The report of a trigger, as in `StreamingQueryProgress.json` of Spark 4."""


class GroupListener(Protocol):
    """Receives changed groups once they are in the tables."""

    def on_rows(self, rows: BatchRows) -> None:
        """Receive the written rows: those of groups, events and retracted events. This process holds them."""

    def on_bulk_change(self) -> None:
        """Many rows were written: reading them from the table is cheaper than passing them here."""


class Progress:
    """Updates `health`; writes a line for every batch that read anything, and when the end is first reached."""

    end_known_at: datetime | None = None
    """When the end of the topic up to which all batches read was determined; None if each batch determines it."""

    def __init__(self, write: Callable[[str], None], health: JobState) -> None:
        self._write = write
        self._health = health
        self._has_caught_up = False
        self._batches: dict[
            int, tuple[CommittedBatch, datetime]
        ] = {}  # by batch, with the time at which it was written
        self._last: tuple[StreamingQuery, str] | None = None  # the last reported trigger, by its start time
        self._lock = Lock()
        self.starting()

    def starting(self) -> None:
        """Note that a query is about to start."""
        self.has_ended_trigger = False
        """Whether the query has ended a trigger, with or without a batch."""

    def on_done(self, batch_id: int, batch: CommittedBatch) -> None:
        """Receive the counts of a batch; Spark's progress of the batch follows."""
        self._batches[batch_id] = batch, datetime.now(timezone.utc)

    def poll(self, query: StreamingQuery) -> None:
        """Report what the query has done since the last call. Call it once a second, and once after its end.

        Spark keeps the progress of a hundred triggers.
        """
        with self._lock:  # a running job and an ending one call this from different threads
            spark: Any = query._jsq  # noqa: SLF001 - allows to read only the new entries
            newest = spark.lastProgress()
            if newest is None or (query, str(newest.timestamp())) == self._last:  # two calls of the JVM instead of four
                return
            known = spark.recentProgress()
            new: list[_Trigger] = []
            for number in range(len(known) - 1, -1, -1):
                if (query, str(known[number].timestamp())) == self._last:  # Spark builds the JSON at each call
                    break
                new.append(json.loads(known[number].json()))
            for one in reversed(new):
                self._last = query, one["timestamp"]
                self._note(one)

    def _note(self, trigger: _Trigger) -> None:
        began_at = datetime.fromisoformat(trigger["timestamp"].replace("Z", "+00:00"))  # then it asked for the end
        self.has_ended_trigger = True
        if "addBatch" not in trigger.get("durationMs", ()):  # it found nothing to read
            self._caught_up()
            self._health.nothing_new(self.end_known_at or began_at, began_at)
            return
        (source,) = trigger["sources"]
        starts, ends, latest = (_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
        # Spark counts a record once for each time that the batch was read. There are at most as many as offsets.
        seen = min(trigger["numInputRows"], sum(end - starts.get(partition, 0) for partition, end in ends.items()))
        behind = {partition: max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()}
        left = sum(behind.values())
        known = self._batches.pop(trigger["batchId"], None)
        if not known:
            return
        batch, written_at = known
        # Spark's own duration includes the pause after the batch, see `StreamQuery`.
        written = max(0.0, (written_at - began_at).total_seconds())
        seconds = written + trigger["durationMs"].get("commitOffsets", 0) / 1000
        batch = replace(batch, seen=seen, seconds=seconds, behind=behind)
        self._health.batch_done(batch, self.end_known_at or began_at, written_at)
        if seen:
            counts = {"records seen": seen, **batch.written, "quarantined": batch.quarantined}
            counts |= {"with unknown tags": batch.drifted} if batch.drifted else {}
            listed = ", ".join(f"{count:,} {what}" for what, count in counts.items())
            self._write(f"batch {trigger['batchId']}: {listed}, {seconds:.1f} s, {left:,} behind")
        if not left and self.end_known_at is None:
            self._caught_up()

    def _caught_up(self) -> None:
        """Write a line the first time that nothing is left. With constant input, a query is never idle."""
        if not self._has_caught_up:
            self._has_caught_up = True
            self._write("Caught up: waiting for new records.")


def _offsets(topics: Mapping[str, Mapping[str, int]] | None) -> dict[int, int]:
    """Return the offsets of a source's only topic; empty if the source has not read anything."""
    return {int(partition): offset for offsets in (topics or {}).values() for partition, offset in offsets.items()}
