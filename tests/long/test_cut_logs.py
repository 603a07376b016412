"""Logs that are cut in every way, and a job that dies at every step of the repair: see `stream/test_truncated_log`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.stream import start, truncation
from streaming_app.stream.log_positions import LogPositions
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.rust_table import RustTable
from tests.stream import test_truncated_log
from tests.stream.test_truncated_log import (
    MANY,
    check_cut_while_away,
    check_deaths,
    commit,
    live_config,
    rows,
    state_of,
)
from tests.support.encoded import Pair
from tests.support.kafka_cluster import LocalCluster
from tests.support.offsets_topic import epoch_records
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]
topic, read = test_truncated_log.topic, test_truncated_log.read  # fixtures


@pytest.mark.parametrize(
    ("kept", "how"),
    [
        pytest.param((), {}, id="shorter"),
        pytest.param((commit("new", 1),), {"leaders_paused": True}, id="in between"),
        pytest.param(MANY * 2, {"by_old_leader": True}, id="by an old leader, longer"),
    ],
)
def test_a_log_that_was_cut_while_the_job_was_away_gives_the_rows_of_a_fresh_reading(
    three_brokers: LocalCluster,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    kept: tuple[Pair, ...],
    how: dict[str, bool],
) -> None:
    check_cut_while_away(three_brokers, topic, read, tmp_path, kept, **how)


STEPS: list[tuple[Any, str, int]] = [
    (truncation, "add_truncation_events", 1),
    (truncation, "delete_topologies", 1),
    (StateFile, "write", 3),
    (start, "_outdated", 1),
    (LogPositions, "started", 1),
    (LogPositions, "before_read", 1),
    (LogPositions, "after_read", 1),
    (RustTable, "append", 1),
]


def test_a_job_that_dies_at_any_step_of_the_repair_goes_on_after_its_next_start(
    three_brokers: LocalCluster,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_cut_while_away(three_brokers, topic, read, tmp_path, MANY, leaders_paused=True)
    check_deaths(read, tmp_path, monkeypatch, STEPS)


def test_a_job_reads_on_by_itself_where_records_were_deleted_before_it_read_them(
    three_brokers: LocalCluster,
    spark: SparkSession,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
) -> None:
    warehouse = create_warehouse(tmp_path / "warehouse")
    config = live_config(three_brokers, topic, warehouse, trigger=10)
    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert wait_until(lambda: rows(warehouse, "SELECT 1 FROM offsets")), job.lines
        assert wait_until(lambda: rows(warehouse, "SELECT 1 FROM groups")), job.lines
        last = three_brokers.append(topic, *epoch_records("never read", 2), commit("old", 99))
        three_brokers.delete_records(topic, last + 1)
        three_brokers.append(topic, *MANY)
        read_query = "SELECT 1 FROM {} WHERE group_id = 'new'"
        for name in ("groups", "offsets"):
            assert wait_until(lambda name=name: rows(warehouse, read_query.format(name))), job.lines
    assert any(f"offsets 3 to {last}, deleted before they were read" in line for line in job.lines), job.lines
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
