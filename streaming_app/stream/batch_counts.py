"""The results of a batch for the rest of the job: its counts, the seconds of its phases, and the changed groups."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from streaming_app.stream.batch_rows import BatchRows


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """The counts of a batch."""

    written: Mapping[str, int]
    """Numbers of written rows, in the words and the order of the batch's log line."""
    quarantined: int = 0
    """Records that could not be decoded."""
    drifted: int = 0
    """Records with unknown tagged fields; for committed offsets, only the newest record of each key counts."""
    by_type: Mapping[int, int] = field(default_factory=dict)
    """Records that left the JVM, by record type; -1 for records without a key."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, for the measured phases (see `PHASES`)."""

    def texts(self) -> list[str]:
        """Return the counts as texts for the log line of the batch."""
        written = [f"{count:,} {what}" for what, count in self.written.items()]
        drifted = [f"{self.drifted:,} with unknown tags"] if self.drifted else []
        return [*written, f"{self.quarantined:,} quarantined", *drifted]


class GroupListener(Protocol):
    """Receives changed groups once they are in the tables."""

    def on_rows(self, rows: BatchRows) -> None:
        """Receive the written rows: those of groups, events and retracted events. This process holds them."""

    def on_bulk_change(self) -> None:
        """Many rows were written: reading them from the table is cheaper than passing them here."""


OTHER = "other"
PHASES = {
    "source": "Spark asks the brokers for the end of the topic and plans the batch",
    "read": "records are read from the brokers",
    "stored": "the stored rows of their groups are read",
    "fold": "records are decoded and folded",
    "history": "events, topologies and undecodable records are written",
    "groups": "rows of groups are written",
    "checkpoint": "the checkpoint and the versions of the tables are written",
    OTHER: "everything else",
}
"""What happens in each phase; the phases are in order."""

_OF_SPARK = {
    "latestOffset": "source",
    "getBatch": "source",
    "queryPlanning": "source",
    "walCommit": "checkpoint",
    "commitOffsets": "checkpoint",
}
"""Phase by key of `durationMs` in the query progress of Spark 4."""


class BatchTimes:
    """Measures the phases of one batch."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: Counter[str] = Counter()

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the duration of the block to a phase."""
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[phase] += self._clock() - begin  # type: ignore[assignment] # a Counter takes any number

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase, for the measured phases."""
        return dict(self._seconds)


def all_phases(measured: Mapping[str, float], spark_ms: Mapping[str, float], total: float) -> dict[str, float]:
    """Return the seconds of a batch by phase. They add up to `total`, the duration that Spark reports.

    `measured` has the seconds that the job measured, `spark_ms` the milliseconds of `durationMs`.
    """
    seconds = {**dict.fromkeys(PHASES, 0.0), **measured}
    for key, milliseconds in spark_ms.items():
        if key in _OF_SPARK:
            seconds[_OF_SPARK[key]] += milliseconds / 1000
    seconds[OTHER] += max(0.0, total - sum(seconds.values()))
    return seconds
