"""The job on a Spark cluster of two workers, as in deploy/spark, with enough groups to be folded by the workers.

Run by `make check-deploy`, not by `make test`: it takes most of a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.reader import WarehouseReader
from tests.deploy.spark_cluster import spark_cluster
from tests.job.job_runner import run_job
from tests.offsets_topic import epoch_records

pytestmark = pytest.mark.broker

GROUPS = 2_500  # more than the job folds in the driver


def test_executors_of_a_cluster_read_fold_and_write(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 4)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, linger_ms=5)
    for number in range(GROUPS):
        for key, value in epoch_records(f"g-{number}", 2):
            producer.send(topic, key=key, value=value, partition=number % 4)
    producer.close()
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    log.mkdir()

    with spark_cluster(tmp_path, workers=2) as cluster:
        settings = {
            **cluster,
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        result = run_job(broker.bootstrap_server, warehouse, "--topic", topic, *conf)
    assert result.returncode == 0, result.stderr

    stored = WarehouseReader(warehouse).rows("SELECT count(*) AS n, min(assignment_epoch) AS epoch FROM groups")
    assert stored == [{"n": GROUPS, "epoch": 2}]
    events = [json.loads(line) for file in log.iterdir() for line in file.read_text("utf-8").splitlines()]
    executors = [event["Task Info"]["Executor ID"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
    assert set(executors) == {"0", "1"}
