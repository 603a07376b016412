"""SIGTERM ends the job, and with exit code 0, in every state; `test_taken_over` has the one of a job that just runs."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.reader import WarehouseReader
from tests.support.running_job import RunningJob, is_caught_up, running_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark
NO_BROKER = "127.0.0.1:1"


def assert_ends(job: RunningJob) -> None:
    code, errors = job.end(signal.SIGTERM)
    assert (code, errors) == (0, ""), job.lines
    assert "Stopping ...\n" in job.lines


def test_a_signal_while_spark_starts_is_no_error(tmp_path: Path) -> None:
    with running_job(NO_BROKER, tmp_path) as job:
        assert job.says("Starting Spark")
        assert wait_until(lambda: any((tmp_path / "_jobs").glob("default.spark.properties")))
        assert_ends(job)
        # It cannot end before Spark has started: on a machine that does much else it is abandoned first.
        assert job.lines[job.lines.index("Stopping ...\n") + 1 :] == ["Stopped.\n"]


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
        assert wait_until(lambda: is_caught_up(tmp_path) and lag_rows(tmp_path) == [{"lag": 1}])
        own.kill()
        assert_ends(job)


def lag_rows(warehouse: Path) -> list[dict[str, Any]]:
    return WarehouseReader(warehouse).rows("SELECT lag FROM lag WHERE group_id = 'g'")
