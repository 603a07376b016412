"""A whole job on Kafka 4.1, which does not write whether a group is ready: the tables say what they lack, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.config.settings import JobConfig
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]
WHY = "the state of groups with members is Unknown: brokers before 4.2 do not write whether a group is ready"


def test_a_job_on_kafka_4_1_says_why_states_are_unknown(
    start_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    create_warehouse: Callable[[Path], Path],
    tmp_path: Path,
) -> None:
    broker, warehouse = start_broker(version="4.1.2"), create_warehouse(tmp_path / "warehouse")
    with StreamsGroupClient(broker.bootstrap_server) as client:
        client.create_topic("in", 2)
        member = SimulatedMember(client, "app", topology(subtopology("0", source_topics=["in"])))
        member.join()
        settle([member], lambda: member.settled)  # describe says NotReady of every group
    values = {"bootstrap_server": broker.bootstrap_server, "warehouse": warehouse, "trigger": 1}
    config = JobConfig.model_validate({**values, "self_check": {"enabled": False}})

    def rows(query: str) -> list[dict[str, object]]:
        return WarehouseReader(warehouse).rows(query)

    def command(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--warehouse", str(warehouse)])
        assert result.exit_code == 0, result.output
        return result.output

    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert wait_until(lambda: rows("SELECT 1 FROM broker_facts WHERE kind = 'feature'")), job.lines
        assert wait_until(lambda: rows("SELECT 1 FROM groups")), job.lines
        assert rows("SELECT group_id, state, member_count FROM groups") == [
            {"group_id": "app", "state": "Unknown", "member_count": 1}
        ]
        status = json.loads(command("status", "--json"))
        assert any(WHY in reason for reason in status["brokers"]["unknown"]), status["brokers"]
        assert WHY in command("list", "--state")
        assert WHY in command("describe", "--group", "app", "--state")
        assert not [line for line in job.lines if "Traceback" in line]
