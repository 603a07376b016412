"""A real application through its life: every command equals Kafka's own tool, column by column, and the application."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.config.settings import JobConfig
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.support.compared_tools import SHORT_SESSIONS, ComparedGroup
from tests.support.kafka_tool import StreamsGroupsTool
from tests.support.running_job import job_in_thread
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP, TOPICS = "word-count", ("lines", "counts")
_PROPERTIES = {"commit.interval.ms": "200", "num.stream.threads": "2"}


def test_all_commands_equal_kafkas_tool_while_an_application_runs_loses_an_instance_and_stops(
    start_broker: Callable[..., LocalBroker], spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    server = start_broker(properties=SHORT_SESSIONS).bootstrap_server
    with StreamsGroupClient(server) as client:
        for topic in TOPICS:
            client.create_topic(topic, 2)
    with ExitStack() as running:
        first, second = (
            running.enter_context(
                StreamsApplication(server, tmp_path / name, GROUP, "words", TOPICS, properties=_PROPERTIES)
            )
            for name in ("first", "second")
        )
        tool = running.enter_context(closing(StreamsGroupsTool(server)))
        first.produce(on=True)
        assert wait_until(lambda: has_committed(tool), interval=0.5)
        first.produce(on=False)
        config = JobConfig.model_validate({"bootstrap_server": server, "warehouse": empty_warehouse})
        running.enter_context(job_in_thread(spark, config, tmp_path / "spark.log"))
        group = ComparedGroup(GROUP, server, empty_warehouse, tool, first, second)
        group.await_equal("Stable")
        second.kill()
        group.applications = [first]
        group.await_equal("Stable")
        first.stop()
        group.applications = []
        group.await_equal("Empty")


def has_committed(tool: StreamsGroupsTool) -> bool:
    """Return whether there is an offset of each partition of the input, and of the repartition topic."""
    rows = tool.rows("--describe", "--group", GROUP, "--verbose")
    return len(rows) == 4 and all(row["CURRENT-OFFSET"].isdecimal() for row in rows)
