"""`alerts backtest` on the warehouse of a real job that saw an outage: it finds what the job found, when it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer

from streaming_app.cli.main import main
from streaming_app.config.settings import JobConfig
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.job.running_job import job_in_thread
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
_CLOSE = timedelta(seconds=5)


def play(file: Path, warehouse: Path) -> list[dict[str, Any]]:
    options = ["--from", "10m", "--config", str(file), "--warehouse", str(warehouse), "--json"]
    result = CliRunner().invoke(main, ["alerts", "backtest", *options])
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["alerts"]
    return found


def test_a_play_of_what_a_job_recorded_finds_its_incident_and_other_settings_change_it(
    broker: Broker,
    client: StreamsGroupClient,
    group_id: str,
    unique: Callable[[str], str],
    spark: SparkSession,
    empty_warehouse: Path,
    tmp_path: Path,
) -> None:
    source = unique("in")
    client.create_topic(source, 1)
    member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[source])))
    # Whether a member committed as it left is known to a second or two only by a play.
    down: dict[str, Any] = {"after": "5s", "after_unknown": "1h"}
    down |= {"established": "1s", "stay_up": "1s"}
    alerts = {"interval": 0.3, "groups": group_id, "rules": {"StreamsGroupDown": down}}
    lag = {"interval": 0.5, "history_interval": 0.5}
    config = {"bootstrap_server": broker.bootstrap_server, "warehouse": str(empty_warehouse), "trigger": 0.2}

    def rows(query: str) -> list[dict[str, Any]]:
        return WarehouseReader(empty_warehouse).rows(query)

    def send(count: int) -> None:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_server) as producer:
            for _ in range(count):
                producer.send(source, b"x", partition=0).get(30)

    def commit(offset: int) -> None:
        client.commit_offsets(group_id, {(source, 0): offset}, member.member_id, member.epoch)

    def lag_is(number: int) -> bool:
        found = rows(f"SELECT lag FROM lag WHERE group_id = {quote(group_id)} AND topic = {quote(source)}")
        return [row["lag"] for row in found] == [number]

    settings = JobConfig.model_validate({**config, "alerts": alerts, "lag": lag})
    with job_in_thread(spark, settings, tmp_path / "spark.log") as job:
        member.join()
        settle([member])
        send(5)
        commit(5)
        assert wait_until(lambda: lag_is(0), 120), job.lines
        send(5)
        assert wait_until(lambda: lag_is(5), 60), job.lines
        member.leave()
        assert wait_until(lambda: bool(rows(f"SELECT 1 FROM alerts WHERE group_id = {quote(group_id)}")), 60), job.lines
        member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[source])))
        member.join()
        settle([member])
        commit(9)
        ended = f"SELECT 1 FROM alerts WHERE group_id = {quote(group_id)} AND state = 'resolved'"
        assert wait_until(lambda: bool(rows(ended)), 60), job.lines
        (alert,) = rows(f"SELECT * FROM alerts WHERE group_id = {quote(group_id)}")

    file = tmp_path / "f.yaml"
    file.write_text(json.dumps({"alerts": alerts}))
    opened, over = play(file, empty_warehouse)
    assert (opened["what"], opened["rule"], over["what"]) == ("opened", "StreamsGroupDown", "ended")
    assert opened["incident_id"] == json.loads(alert["details"])["incident"]
    assert abs(datetime.fromisoformat(opened["at"]) - alert["opened_at"]) < _CLOSE
    assert abs(datetime.fromisoformat(over["at"]) - alert["resolved_at"]) < _CLOSE + timedelta(minutes=1)

    patient = {**down, "after": "9m"}
    file.write_text(json.dumps({"alerts": {**alerts, "rules": {"StreamsGroupDown": patient}}}))
    assert play(file, empty_warehouse) == []
