"""SIGTERM and SIGINT end the job within seconds, and with exit code 0, in every state."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from offsets_decoder import encode
from streaming_app.job.stopping import STOP_SECONDS
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.container import Broker
from streaming_app.tables.heartbeat_file import read_heartbeat
from streaming_app.tables.reader import WarehouseReader
from tests.job.running_job import RunningJob, is_caught_up, running_job
from tests.waiting import wait_until

pytestmark = pytest.mark.spark
NO_BROKER = "127.0.0.1:1"
GROUPS = 500


def assert_ends(job: RunningJob, *signals: signal.Signals) -> None:
    code, errors, seconds = job.end(*signals)
    assert (code, errors) == (0, ""), job.lines
    assert "Stopping ...\n" in job.lines
    assert seconds < STOP_SECONDS + 1, (seconds, job.lines)


def test_a_signal_while_spark_starts_is_no_error(tmp_path: Path) -> None:
    with running_job(NO_BROKER, tmp_path) as job:
        assert job.says("Starting Spark")
        assert wait_until(lambda: any((tmp_path / "_jobs").glob("default.spark.properties")), 60)
        assert_ends(job, signal.SIGTERM)
        assert job.lines[-1] == "Stopped.\n"


def test_a_signal_while_the_job_waits_for_a_broker_ends_it(
    tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    create_warehouse(tmp_path)
    with running_job(NO_BROKER, tmp_path) as job:
        assert job.says("Waiting for a broker.")
        assert_ends(job, signal.SIGINT)
        assert job.lines[-1] == "Stopped.\n"
    last = read_heartbeat(tmp_path, "default")
    assert last is not None
    assert last.stopped


@pytest.mark.broker
def test_a_signal_after_the_broker_was_lost_ends_the_job_while_it_asks_for_the_ends_of_logs(
    start_broker: Callable[..., LocalBroker], tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    create_warehouse(tmp_path)
    own = start_broker()
    with (
        StreamsGroupClient(own.bootstrap_server) as client,
        KafkaProducer(bootstrap_servers=own.bootstrap_server) as producer,
    ):
        client.create_topic("in", 1)
        producer.send("in", value=b"a record that is not processed", partition=0)
    consumer = KafkaConsumer(bootstrap_servers=own.bootstrap_server, group_id="g", enable_auto_commit=False)
    consumer.assign([TopicPartition("in", 0)])
    consumer.commit({TopicPartition("in", 0): OffsetAndMetadata(0, "", -1)})
    consumer.close()
    with running_job(own.bootstrap_server, tmp_path) as job:
        assert job.says("reading from the beginning")
        assert wait_until(lambda: is_caught_up(tmp_path) and lag_rows(tmp_path) == [{"lag": 1}], 180)
        own.kill()
        assert_ends(job, signal.SIGTERM)


def lag_rows(warehouse: Path) -> list[dict[str, Any]]:
    return WarehouseReader(warehouse).rows("SELECT lag FROM lag WHERE group_id = 'g'")


@pytest.mark.broker
def test_no_batch_begins_after_a_signal_and_the_next_start_has_everything_once(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    run: Callable[..., str],
) -> None:
    create_warehouse(tmp_path)
    topic = unique("offsets")
    client.create_topic(topic, 1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, linger_ms=5)
    for number in range(GROUPS):
        key, value = encode(17, {"group_id": f"g{number}"}, {"epoch": 2})
        producer.send(topic, key=key, value=value)
    producer.close()
    options = ("--topic", topic, "--max-offsets-per-trigger", 10, "--trigger", 0)
    with running_job(broker.bootstrap_server, tmp_path, *options) as job:
        assert job.says("batch 2")
        assert_ends(job, signal.SIGTERM)
        after = job.lines[job.lines.index("Stopping ...\n") :]
        assert sum(line.startswith("batch") for line in after) <= 1, after
    assert "resuming" in run(topic)
    for query in ("SELECT count(*) AS n FROM groups", "SELECT count(*) AS n FROM group_events WHERE kind = 'created'"):
        assert WarehouseReader(tmp_path).rows(query) == [{"n": GROUPS}]
