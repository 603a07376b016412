"""Whole jobs whose tables, checkpoint or topic changed: each starts where it must, and history holds nothing twice.

What a job decides in which case is in `test_start_decisions`.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.job import supervisor
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.tables.reader import WarehouseReader
from tests.support.container import Broker
from tests.support.documents import DOCS, code_blocks
from tests.support.offsets_topic import UNDECODABLE, appending, epoch_records
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker
Write = Callable[..., int]
Run = Callable[..., str]


@pytest.fixture
def topic(client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    name = unique("offsets")
    client.create_topic(name, 1, {"delete.retention.ms": str(24 * 3_600_000)})
    return name


@pytest.fixture
def write(broker: Broker, topic: str) -> Iterator[Write]:
    """Appends records of a group at an epoch, and one that cannot be decoded; returns its offset."""
    with appending(broker.bootstrap_server) as append:
        yield lambda epoch, group="g", partition=0: append(
            topic, *epoch_records(group, epoch), UNDECODABLE, partition=partition
        )


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    reader = WarehouseReader(path)
    found = {name: reader.rows(f"SELECT * FROM {name}") for name in ("groups", "group_events", "quarantine")}
    return {name: sorted(rows, key=lambda row: str(sorted(row.items()))) for name, rows in found.items()}


def epochs(warehouse: Path) -> dict[str, int]:
    try:
        rows = WarehouseReader(warehouse).rows("SELECT group_id, group_epoch FROM groups")
    except Exception:  # noqa: BLE001 - the table does not exist at the moment
        return {}
    return {row["group_id"]: row["group_epoch"] for row in rows}


def created(warehouse: Path) -> list[str]:
    """The groups of which the history says that they were created, each as often as it says so."""
    rows = WarehouseReader(warehouse).rows("SELECT group_id FROM group_events WHERE kind = 'created' ORDER BY 1")
    return [row["group_id"] for row in rows]


def back_up_as_documented(warehouse: Path, copied: Path) -> Iterator[str]:
    """Run the shell commands of the operators' page one by one, with other directories; yield each after it."""
    (commands,) = (block.text for block in code_blocks(DOCS / "operating.md", "") if "_checkpoints" in block.text)
    place, *lines = commands.replace("/backup", str(copied)).splitlines()
    assert place == "cd /var/lib/streams-groups"
    for line in lines:
        subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=warehouse, check=True)
        yield line


def test_the_documented_backup_of_a_job_that_writes_meanwhile_can_be_restored_as_documented(
    topic: str, write: Write, run: Run, tmp_path: Path
) -> None:
    warehouse, copied, epoch = tmp_path / "warehouse", tmp_path / "copy", 2
    write(epoch)
    run(topic, warehouse=warehouse)
    for command in back_up_as_documented(warehouse, copied):
        if not command.startswith("mkdir"):
            write(epoch := epoch + 1)
            run(topic, warehouse=warehouse)
    before = content(warehouse)
    shutil.rmtree(warehouse)
    copied.rename(warehouse)
    assert "the checkpoint is older than group_events, quarantine" in run(topic, warehouse=warehouse)
    after = content(warehouse)
    assert after == before
    written = [int(one["new"]) for one in after["group_events"] if one["kind"] == "group_epoch"]
    assert sorted(written) == list(range(2, epoch + 1))
    assert len(after["quarantine"]) == epoch - 1


def test_partitions_that_are_added_and_tables_that_are_deleted_while_the_job_runs_are_read_again(
    topic: str,
    client: StreamsGroupClient,
    broker: Broker,
    spark: SparkSession,
    write: Write,
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_TOPIC_SECONDS", 1)
    values = {"bootstrap_server": broker.bootstrap_server, "warehouse": create_warehouse(tmp_path), "topic": topic}
    config = JobConfig.model_validate(values)
    write(2, "orders")  # in partition 0 of one and of three
    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert job.says("batch 0"), job.lines
        client.create_partitions({topic: 3})
        assert job.says("The topic now has 3 partitions: the stream starts again"), job.lines
        write(5, "payments", partition=2)
        assert wait_until(lambda: epochs(tmp_path) == {"orders": 2, "payments": 5}), job.lines

        shutil.rmtree(tmp_path / "groups")
        write(6, "payments", partition=2)
        # A batch that meets the deletion fails, and is tried again after a pause that grows.
        assert wait_until(lambda: epochs(tmp_path) == {"orders": 2, "payments": 6}), job.lines
    assert sum("reading from the beginning" in line for line in job.lines) >= 3
    assert created(tmp_path) == ["orders", "payments"]
