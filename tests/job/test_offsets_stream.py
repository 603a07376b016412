"""What a start of the query waits for."""

from __future__ import annotations

import time
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming_app.job.offsets_stream import OffsetsStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 6.0


class SlowListener(StreamingQueryListener):
    """Takes long to receive the end of a query."""

    def __init__(self) -> None:
        self.is_done = Event()

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802 - Spark's name

    def onQueryProgress(self, event: Any) -> None: ...  # noqa: N802 - as above

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802 - as above

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ARG002, N802 - as above
        time.sleep(_SECONDS)
        self.is_done.set()


def test_events_of_the_query_before_are_waited_for_on_a_slow_machine_too(spark: SparkSession) -> None:
    listener = SlowListener()
    spark.streams.addListener(listener)
    try:
        rates = spark.readStream.format("rate").load()
        query = rates.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        OffsetsStream.wait_for_listeners(cast("OffsetsStream", SimpleNamespace(_spark=spark)))
        assert listener.is_done.is_set()
    finally:
        spark.streams.removeListener(listener)
