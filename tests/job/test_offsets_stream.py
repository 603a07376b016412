"""What a start of the query waits for, and whether a self-check runs meanwhile."""

from __future__ import annotations

import time
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming_app.config.job_config import JobConfig
from streaming_app.job import offsets_stream
from streaming_app.job.offsets_stream import OffsetsStream

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({}, True),
        ({"once": True}, False),
        ({"self_check": {"enabled": False}}, False),
        ({"topic": "copy-of-another-cluster"}, False),  # these brokers do not have its groups
    ],
    ids=["default", "once", "disabled", "another topic"],
)
def test_a_self_check_runs_only_where_the_brokers_have_the_groups_of_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], runs: bool
) -> None:
    monkeypatch.setattr(offsets_stream, "make_self_check", Mock())
    config = JobConfig.model_validate({"bootstrap_server": "localhost:9092", "warehouse": tmp_path, **settings})
    services = Mock()
    stream = OffsetsStream(
        Mock(), config, {}, Mock(), health=Mock(), topics=Mock(), services=services, report=print, stop=Event()
    )
    try:
        stream._start_self_check(Mock(), Mock())
    finally:
        stream.close()
    assert services.start_self_check.called == runs
