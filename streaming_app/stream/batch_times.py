"""Where the seconds of a batch go, by phase. Each phase is measured once, whoever spends the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

OTHER = "other"
PHASES = {
    "source": "Spark asks the brokers for the end of the topic and plans the batch",
    "read": "records are read from the brokers",
    "stored": "the stored rows of their groups are read",
    "fold": "records are decoded and folded",
    "history": "events, topologies and undecodable records are written",
    "groups": "rows of groups are written",
    "checkpoint": "the checkpoint and the versions of the tables are written",
    OTHER: "everything else, such as the maintenance of the tables",
}
"""What happens in each phase, in this order."""

_OF_SPARK = {
    "latestOffset": "source",
    "getBatch": "source",
    "queryPlanning": "source",
    "walCommit": "checkpoint",
    "commitOffsets": "checkpoint",
}
"""Phase by key of `durationMs` in the progress of a query of Spark 4."""


class BatchTimes:
    """Measures the phases of one batch."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: Counter[str] = Counter()

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[phase] += self._clock() - begin  # type: ignore[assignment] # a Counter takes any number

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase, of those that were measured."""
        return dict(self._seconds)


def all_phases(measured: Mapping[str, float], spark_ms: Mapping[str, float], total: float) -> dict[str, float]:
    """Return the seconds of a batch by phase; they add up to `total`, how long Spark says that it took.

    `measured` is what the job measured of it, `spark_ms` the milliseconds of `durationMs`.
    """
    seconds = {**dict.fromkeys(PHASES, 0.0), **measured}
    for key, milliseconds in spark_ms.items():
        if key in _OF_SPARK:
            seconds[_OF_SPARK[key]] += milliseconds / 1000
    seconds[OTHER] += max(0.0, total - sum(seconds.values()))
    return seconds


def describe_phases(seconds: Mapping[str, float]) -> str:
    """Return the phases of a batch for its line: `source 0.12, read 0.30, groups 0.05`, without those of no time."""
    shown = {phase: f"{seconds.get(phase, 0.0):.2f}" for phase in PHASES}
    return ", ".join(f"{phase} {text}" for phase, text in shown.items() if text != "0.00")
