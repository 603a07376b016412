"""A query of the job: how Spark starts it, and whether it is writing a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from streaming_app.job.stopping import StopRequestedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming_app.tables.location import Location


class StreamQuery:
    """Starts one query, any number of times, one after the other."""

    def __init__(self, checkpoint: Location, stop: threading.Event, name: str | None = None) -> None:
        """Prepare; no batch begins once `stop` is set. Two active queries of a session need different names."""
        self._checkpoint, self._stop, self._name = checkpoint, stop, name
        self._no_batch = threading.Event()
        self._no_batch.set()

    @property
    def is_writing(self) -> bool:
        """Whether a batch is being written."""
        return not self._no_batch.is_set()

    def wait_for_batch(self) -> None:
        """Wait until no batch is being written."""
        self._no_batch.wait()

    def start(
        self, records: DataFrame, write_batch: Callable[[DataFrame, int], None], trigger_seconds: float | None
    ) -> StreamingQuery:
        """Start the query, with a batch every so many seconds; None: for what there is now.

        Raises StopRequestedError when the job ends.
        """

        def write(batch: DataFrame, batch_id: int) -> None:
            if self._stop.is_set():
                raise StopRequestedError
            self._no_batch.clear()
            try:
                write_batch(batch, batch_id)
            finally:
                self._no_batch.set()

        once = trigger_seconds is None
        trigger = {"availableNow": True} if once else {"processingTime": f"{trigger_seconds} seconds"}
        stream = records.writeStream.foreachBatch(write).trigger(**trigger)
        stream = stream.option("checkpointLocation", str(self._checkpoint))
        if self._name is not None:
            stream = stream.queryName(self._name)
        if self._stop.is_set():
            raise StopRequestedError
        query = stream.start()
        if self._stop.is_set():  # and nobody waits for the query any more
            query.stop()
        return query
