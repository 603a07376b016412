"""Whether Spark makes progress with what it is doing, for a batch that takes longer than any time limit.

The measure is what Spark's own page of SQL queries shows: the metrics of the running queries, such as rows and bytes
read and written. Executors report those of running tasks every 10 s, so a task of an hour shows progress, too. They do
not change while tasks hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEWEST = 10  # queries that are looked at: a batch runs few at a time


class SparkProgress:
    """Compares what Spark has done with what it had done at the last call."""

    def __init__(self, spark: SparkSession) -> None:
        self._queries: Any = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - the JVM has no public name
        self._last = ""

    def has_changed(self) -> bool:
        """Return whether a query began, ended, or read or wrote anything since the last call."""
        count = self._queries.executionsCount()
        newest = self._queries.executionsList(max(0, count - _NEWEST), _NEWEST)
        states = [self._state(newest.apply(number)) for number in range(newest.size())]
        last, self._last = self._last, f"{count} {states}"
        return self._last != last

    def _state(self, query: Any) -> str:  # noqa: ANN401 - a Java object
        number = query.executionId()
        is_running = query.completionTime().isEmpty()
        return f"{number} {self._queries.executionMetrics(number).toString() if is_running else 'ended'}"
