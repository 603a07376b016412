"""Alerts end to end: a real broker, the job, and a receiver of notifications."""

from http import HTTPStatus
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.container import Broker
from tests.support.receivers import HttpReceiver
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until


@pytest.mark.broker
def test_a_group_that_is_not_ready_is_notified_once_and_once_when_it_is_ready(
    broker: Broker, client: StreamsGroupClient, group_id: str, spark: SparkSession, empty_warehouse: Path
) -> None:
    member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[f"{group_id}-in"])))
    member.join()
    with HttpReceiver() as receiver:

        def notifications() -> list[tuple[str, str, str]]:
            return [(body["type"], body["data"]["rule"], body["data"]["group_id"]) for body in receiver.bodies]

        config = JobConfig.model_validate(
            {
                "bootstrap_server": broker.bootstrap_server,
                "warehouse": empty_warehouse,
                "alerts": {
                    "interval": 0.3,
                    "groups": group_id,
                    "rules": {"StreamsGroupDown": {"for": 0.1}, "StreamsGroupDescriptionMissing": {"enabled": False}},
                },
                "sinks": [{"type": "webhook", "url": receiver.url}],
                "metrics": {"listen": "127.0.0.1:0"},
            }
        )
        with job_in_thread(spark, config, empty_warehouse / "spark.log") as job:
            assert wait_until(lambda: notifications() != []), job.lines
        with job_in_thread(spark, config, empty_warehouse / "spark.log") as job:
            assert wait_until(lambda: job.get("/ready")[0] == HTTPStatus.OK), job.lines
            assert (
                f'streams_group_state{{cluster="default",group="{group_id}",state="NotReady"}} 1.0'
                in job.get("/metrics")[1]
            )
            client.create_topic(f"{group_id}-in", 1)
            assert wait_until(lambda: bool(member.heartbeat()) and len(notifications()) > 1), job.lines
    assert notifications() == [
        ("alert.firing", "StreamsGroupDown", group_id),
        ("alert.resolved", "StreamsGroupDown", group_id),
    ]
    assert f"Source topics {group_id}-in are missing" in receiver.bodies[0]["data"]["summary"]
    query = f"SELECT ended_by, deliveries FROM alerts WHERE group_id = {quote(group_id)}"
    (row,) = WarehouseReader(empty_warehouse).rows(query)
    assert row["ended_by"] == "evidence"
    assert [one["event"] for one in row["deliveries"] if one["sent_at"]] == ["firing", "resolved"]
