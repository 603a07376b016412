"""What Spark's progress report and the pipeline say of a batch: a line for people, numbers for `Health`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming_app.job.health import Batch, Health
from streaming_app.job.pipeline import BatchOutcome

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


class Progress(StreamingQueryListener):
    """Writes the line of every batch that read anything, and keeps `health` told."""

    def __init__(self, write: Callable[[str], None], health: Health) -> None:
        self._write = write
        self._health = health
        self._outcomes: dict[int, BatchOutcome] = {}

    def done(self, batch_id: int, outcome: BatchOutcome) -> None:
        """Take what the pipeline says of a batch; Spark's report of it comes after."""
        self._outcomes[batch_id] = outcome

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Write the line of the batch that ended."""
        progress = event.progress
        outcome = self._outcomes.pop(progress.batchId, None)
        if not outcome:
            return
        seconds, behind = progress.batchDuration / 1000, _behind(progress)
        batch = Batch(progress.numInputRows, seconds, outcome.by_type, outcome.quarantined, outcome.drifted, behind)
        self._health.batch_done(batch)
        if progress.numInputRows:
            left = sum(behind.values())
            self._write(batch_line(progress.batchId, progress.numInputRows, seconds, outcome, left))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: the job says itself that it started."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802 - Spark's name
        """Tell that there is no news, which needs no line."""
        self._health.nothing_new()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: the job says itself why it ended."""


def _behind(progress: StreamingQueryProgress) -> dict[int, int]:
    """Offsets between where the batch ended and the end of the topic as it was then known, by partition."""
    behind: dict[int, int] = {}
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        behind |= {partition: max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()}
    return behind


def _offsets(spelled: str | None) -> dict[int, int]:
    topics = json.loads(spelled) if spelled and spelled != "null" else {}
    return {int(partition): offset for by in topics.values() for partition, offset in by.items()}


def batch_line(batch_id: int, seen: int, seconds: float, outcome: BatchOutcome, behind: int) -> str:
    """One line: what was read, what came of it, how long it took, what is left."""
    parts = [
        f"{seen:,} records seen",
        f"{outcome.decoded:,} decoded",
        f"{outcome.groups:,} groups",
        f"{outcome.quarantined:,} quarantined",
        *([f"{outcome.drifted:,} with unknown tags"] if outcome.drifted else []),
        f"{seconds:.1f} s",
        f"{behind:,} behind",
    ]
    return f"batch {batch_id}: " + ", ".join(parts)
