"""Whether Spark makes progress with what it is doing, for a batch that takes longer than any time limit.

The measure is what Spark's own page of SQL queries shows: the metrics of the running queries, such as rows and bytes
read and written. Executors report those of running tasks every 10 s, so a task of an hour shows progress, too. They do
not change while tasks hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEWEST = 40  # queries that are looked at: a batch runs few at a time, and there may be two streams


OFFSETS = "offsets"
"""The name of the stream of committed offsets; that of the groups has none."""


class SparkProgress:
    """Compares what Spark has done with what it had done at the last call."""

    def __init__(self, spark: SparkSession, stream: str | None = None) -> None:
        """Look at what the stream of this name runs; None: at what no stream with a name runs."""
        self._prefix = f"{stream or OFFSETS}<br/>"  # the description begins with a stream's name, if it has one
        self._is_named = stream is not None
        self._queries: Any = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - the JVM has no public name
        self._last = ""

    def has_changed(self) -> bool:
        """Return whether a query began, ended, or read or wrote anything since the last call."""
        count = self._queries.executionsCount()
        newest = self._queries.executionsList(max(0, count - _NEWEST), _NEWEST)
        executions = [newest.apply(number) for number in range(newest.size())]
        states = [self._state(one) for one in executions if self._is_own(one)]
        last, self._last = self._last, str(states)
        return self._last != last

    def _is_own(self, query: Any) -> bool:  # noqa: ANN401 - a Java object
        return str(query.description()).startswith(self._prefix) == self._is_named

    def _state(self, query: Any) -> str:  # noqa: ANN401 - a Java object
        number = query.executionId()
        is_running = query.completionTime().isEmpty()
        return f"{number} {self._queries.executionMetrics(number).toString() if is_running else 'ended'}"
