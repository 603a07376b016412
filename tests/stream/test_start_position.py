"""Where the stream starts: after an absence, and when topic, tables or checkpoint change while the job runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition

from streaming_app.config.settings import JobConfig
from streaming_app.job import supervisor
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.heartbeat_file import heartbeat_path
from streaming_app.tables.reader import WarehouseReader
from tests.support.encoded import metadata_record
from tests.support.offsets_topic import appending
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
DAY_MS = 86_400_000


@pytest.fixture
def write(broker: Broker) -> Iterator[Callable[..., int]]:
    """Appends the record of a group at an epoch, and returns its offset."""
    with appending(broker.bootstrap_server) as append:

        def send(topic: str, group: str, epoch: int, partition: int = 0) -> int:
            return append(topic, metadata_record({"group_id": group}, epoch), partition=partition)

        yield send


def epochs(warehouse: Path) -> dict[str, int]:
    """The epoch of each stored group."""
    rows = WarehouseReader(warehouse).rows("SELECT group_id, group_epoch FROM groups")
    return {row["group_id"]: row["group_epoch"] for row in rows}


def created(warehouse: Path) -> list[dict[str, Any]]:
    """How often the history says that each group was created."""
    query = (
        "SELECT group_id, count(*) AS n FROM group_events WHERE kind = 'created' GROUP BY group_id ORDER BY group_id"
    )
    return WarehouseReader(warehouse).rows(query)


def test_groups_whose_tombstones_are_gone_are_dropped_after_an_absence_that_is_too_long_and_the_history_stays(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1, {"delete.retention.ms": str(DAY_MS)})
    write(topic, "ghost", 2)
    write(topic, "g", 2)
    run(topic)
    # As if the group was deleted, and compaction had removed its record and then its tombstone.
    client.admin.delete_records({TopicPartition(topic, 0): 1})
    heartbeat = heartbeat_path(tmp_path, "default").path
    record = json.loads(heartbeat.read_text("utf-8"))
    a_day_and_an_hour_ago = (datetime.now(timezone.utc) - timedelta(hours=25)).isoformat()
    record["facts"] |= {"caught_up_at": a_day_and_an_hour_ago, "read_from_beginning_at": None}
    heartbeat.write_text(json.dumps(record), "utf-8")
    write(topic, "g", 3)
    assert "last at the end of the topic 25 h ago, and tombstones are removed after 24 h" in run(topic)
    assert epochs(tmp_path) == {"g": 3}
    assert created(tmp_path) == [{"group_id": "g", "n": 1}, {"group_id": "ghost", "n": 1}]
    assert "resuming from the checkpoint" in run(topic)


@contextmanager
def running(spark: SparkSession, config: JobConfig, log_file: Path) -> Iterator[list[str]]:
    """Run the job from its first batch on."""
    with job_in_thread(spark, config, log_file) as job:
        assert job.says("batch 0"), job.lines
        yield job.lines


@pytest.fixture
def job(
    broker: Broker,
    spark: SparkSession,
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Any]:
    create_warehouse(tmp_path)
    monkeypatch.setattr(supervisor, "_TOPIC_SECONDS", 1)

    def start(topic: str) -> Any:
        values = {"bootstrap_server": broker.bootstrap_server, "warehouse": tmp_path, "topic": topic}
        return running(spark, JobConfig.model_validate({**values, "self_check": {"enabled": False}}), tmp_path / "log")

    return start


def test_partitions_that_are_added_while_the_job_runs_are_read(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Any, job: Callable[[str], Any], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    write(topic, "orders", 2)  # in partition 0 of one and of three
    with job(topic) as lines:
        client.admin.create_partitions({topic: 3})
        assert wait_until(lambda: "The topic now has 3 partitions: the stream starts again" in lines), lines
        write(topic, "payments", 5, partition=2)
        assert wait_until(lambda: epochs(tmp_path) == {"orders": 2, "payments": 5}), lines
    assert created(tmp_path) == [{"group_id": "orders", "n": 1}, {"group_id": "payments", "n": 1}]


def test_what_is_deleted_while_the_job_runs_is_built_again(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Any, job: Callable[[str], Any], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    write(topic, "old", 2)
    with job(topic) as lines:
        shutil.rmtree(tmp_path / "groups")
        write(topic, "new", 5)
        assert wait_until(lambda: any("reading from the beginning" in line for line in lines[1:])), lines
        # A batch that meets the deletion fails, and is tried again after a pause that grows.
        assert wait_until(lambda: has_epochs(tmp_path, {"old": 2, "new": 5})), lines
    assert created(tmp_path) == [{"group_id": "new", "n": 1}, {"group_id": "old", "n": 1}]


def has_epochs(warehouse: Path, expected: dict[str, int]) -> bool:
    try:
        return epochs(warehouse) == expected
    except Exception:  # noqa: BLE001 - the table does not exist at the moment
        return False
