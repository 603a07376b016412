"""The job waits for the topic, however long, and says so."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.job import supervisor
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.heartbeat_file import read_heartbeat
from streaming_app.tables.reader import WarehouseReader
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until


@pytest.mark.broker
def test_a_job_waits_for_the_topic_that_the_first_group_creates(
    start_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_TOPIC_SECONDS", 2.0)
    own = start_broker()

    def stored() -> list[str]:
        return [row["group_id"] for row in WarehouseReader(empty_warehouse).rows("SELECT group_id FROM groups")]

    config = JobConfig.model_validate(
        {
            "bootstrap_server": own.bootstrap_server,
            "warehouse": empty_warehouse,
            "metrics": {"listen": "127.0.0.1:0"},
            "offsets": {"enabled": False},  # whose stream waits with a line of its own
        }
    )
    with job_in_thread(spark, config, empty_warehouse / "spark.log") as job:
        assert job.says("Waiting for it."), job.lines
        assert (job.get("/health")[0], job.get("/ready")[0]) == (200, 503)
        assert wait_until(lambda: is_alive(empty_warehouse))
        with StreamsGroupClient(own.bootstrap_server) as client:
            SimulatedMember(client, "first", topology(subtopology("0", source_topics=["missing"]))).join()
        assert wait_until(lambda: job.get("/ready")[0] == 200), job.lines
        assert sum("Waiting" in line for line in job.lines) == 1
        assert wait_until(lambda: stored() == ["first"]), job.lines
    assert job.lines[-1] == "Stopped."


def is_alive(warehouse: Path) -> bool:
    last = read_heartbeat(warehouse, "default")
    return last is not None and last.is_alive(datetime.now(timezone.utc))
