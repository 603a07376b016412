"""Logs that unclean elections cut: the tables hold what the log has, and say what it no longer has."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offsets_decoder import encode
from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError
from streaming_app.stream import start
from streaming_app.stream.log_positions import LogPositions
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.spark_writer import SparkWriter
from tests.groups.encoded import Pair
from tests.job.job_runner import run_once
from tests.job.running_job import job_in_thread
from tests.kafka_cluster import LocalCluster
from tests.offsets_topic import UNDECODABLE, epoch_records
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]
BOTH_STREAMS = {"offsets": {"enabled": True, "trigger": 1}}


def commit(group: str, offset: int) -> Pair:
    """A commit of a group."""
    return encode(1, {"group": group, "topic": "in", "partition": 0}, {"offset": offset})


def rows(warehouse: Path, query: str) -> list[dict[str, Any]]:
    return WarehouseReader(warehouse).rows(query)


def state_of(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    """What the tables say of every group and commit."""
    tables = {"groups": "group_id", "offsets": "group_id", "all_groups": "group_id"}
    return {name: rows(warehouse, f"SELECT * FROM {name} ORDER BY {key}") for name, key in tables.items()}


def events(warehouse: Path, where: str) -> set[tuple[str, str]]:
    found = rows(warehouse, f"SELECT group_id, kind FROM group_events WHERE {where}")
    return {(row["group_id"], row["kind"]) for row in found}


def history(warehouse: Path) -> list[dict[str, Any]]:
    """The events of records that exist, without when and where."""
    return rows(
        warehouse,
        "SELECT group_id, kind, member_id, old, new, e.offset, log_epoch FROM group_events e "
        "WHERE void IS NOT TRUE AND kind <> 'log_truncated' ORDER BY e.offset, group_id, kind",
    )


@pytest.fixture
def topic(three_brokers: LocalCluster, unique: Callable[[str], str]) -> str:
    """A topic of one partition with a group and its commit."""
    name = unique("cut")
    three_brokers.create_topic(name)
    three_brokers.append(name, *epoch_records("old", 2), commit("old", 10))
    return name


@pytest.fixture
def read(
    three_brokers: LocalCluster,
    spark: SparkSession,
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    topic: str,
) -> Callable[..., list[str]]:
    """Runs the job with `--once`, both streams, into a warehouse of this test: `read("name")`."""

    def once(name: str = "warehouse", **settings: Any) -> list[str]:
        if not (tmp_path / name).exists():
            create_warehouse(tmp_path / name)
        settings = {"topic": topic, **BOTH_STREAMS, **settings}
        return run_once(spark, three_brokers.bootstrap_server, tmp_path / name, **settings)

    return once


LOST = (*epoch_records("gone", 2), *epoch_records("old", 7), commit("old", 99), commit("gone", 5), UNDECODABLE)
FEW = (commit("new", 1),)
MANY = (
    *epoch_records("new", 3),
    *epoch_records("old", 3),
    commit("old", 12),
    commit("new", 1),
    commit("new", 2),
    UNDECODABLE,
)


@pytest.mark.parametrize(
    ("kept", "leaders_paused"),
    [((), False), (FEW, True), (MANY, True)],
    ids=["shorter", "in between", "regrown past it"],
)
def test_a_log_that_was_cut_while_the_job_was_away_gives_the_rows_of_a_fresh_reading(
    three_brokers: LocalCluster,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    kept: tuple[Pair, ...],
    leaders_paused: bool,
) -> None:
    read()

    def lose() -> None:
        three_brokers.append(topic, *LOST)
        read()

    three_brokers.cut(
        topic,
        0,
        lost=lose,
        kept=lambda: kept and three_brokers.append(topic, *kept),
        leaders_paused=leaders_paused,
    )
    lines = read()
    warehouse = tmp_path / "warehouse"

    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert history(warehouse) == history(tmp_path / "fresh")
    first, last = 3, 3 + len(LOST) - 1
    lost = f"partition 0 of {topic}, offsets {first} to {last}"
    assert any(lost in line for line in lines), lines
    assert ("gone", "created") in events(warehouse, "void")
    assert ("old", "group_epoch") in events(warehouse, "void")
    assert not events(warehouse, f"void AND e.offset < {first}".replace("e.", "")) - events(warehouse, "void")
    assert events(warehouse, "kind = 'log_truncated'") == {("gone", "log_truncated"), ("old", "log_truncated")}
    voided = rows(warehouse, "SELECT q.offset, void FROM quarantine q WHERE void")
    assert [row["offset"] for row in voided] == [last]
    read()
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert history(warehouse) == history(tmp_path / "fresh")


class DiedError(Exception):
    """The job dies here."""


STEPS: list[tuple[Any, str, int]] = [
    (start, "add_truncation_events", 1),
    (start, "void_history", 1),
    (start, "delete_topologies", 1),
    (start, "_write", 1),
    (start, "_write", 2),
    (SparkWriter, "delete_groups", 1),
    (LogPositions, "started", 1),
    (LogPositions, "before_read", 1),
    (LogPositions, "after_read", 1),
    (GroupRows, "append", 1),
    (GroupRows, "replace", 1),
]
"""The calls after which a job dies: the function, and the how manieth."""


def die_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    original, calls = getattr(owner, name), itertools.count(1)

    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if next(calls) >= number:
            raise DiedError(name)
        return result

    monkeypatch.setattr(owner, name, call)


def test_a_job_that_dies_at_any_step_of_the_repair_goes_on_after_its_next_start(
    three_brokers: LocalCluster,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = {"offsets": {"enabled": False}}
    read(**alone)

    def lose() -> None:
        three_brokers.append(topic, *LOST)
        read(**alone)

    three_brokers.cut(topic, 0, lost=lose, kept=lambda: three_brokers.append(topic, *MANY), leaders_paused=True)
    read("fresh", **alone)
    for owner, step, number in STEPS:
        name = f"{step.strip('_')}-{number}"
        shutil.copytree(tmp_path / "warehouse", tmp_path / name)
        with monkeypatch.context() as patched:
            die_after(patched, owner, step, number)
            with pytest.raises(JobError, match="DiedError|" + step):
                read(name, **alone)
        read(name, **alone)
        assert state_of(tmp_path / name) == state_of(tmp_path / "fresh"), name
        assert history(tmp_path / name) == history(tmp_path / "fresh"), name
        told = rows(tmp_path / name, "SELECT group_id FROM group_events WHERE kind = 'log_truncated' ORDER BY 1")
        assert told == [{"group_id": "gone"}, {"group_id": "old"}], name
        assert len(rows(tmp_path / name, "SELECT 1 FROM group_events WHERE void")) > 3, name


def test_a_log_that_is_cut_while_the_job_runs_is_read_again_by_itself(
    three_brokers: LocalCluster,
    spark: SparkSession,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    record_property: Callable[[str, object], None],
) -> None:
    warehouse = create_warehouse(tmp_path / "warehouse")
    values = {
        "bootstrap_server": three_brokers.bootstrap_server,
        "warehouse": warehouse,
        "topic": topic,
        **BOTH_STREAMS,
    }
    config = JobConfig.model_validate({**values, "self_check": {"enabled": False}, "trigger": 1})
    elected = 0.0

    def is_read(group: str) -> bool:
        return any(row["group_id"] == group for row in rows(warehouse, "SELECT group_id FROM groups")) and any(
            row["group_id"] == group for row in rows(warehouse, "SELECT group_id FROM offsets")
        )

    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert job.says("batch 0", 60), job.lines

        def lose() -> None:
            three_brokers.append(topic, *LOST)
            assert wait_until(lambda: is_read("gone"), 60), job.lines

        def keep() -> None:
            nonlocal elected
            elected = time.monotonic()
            three_brokers.append(topic, *MANY)

        three_brokers.cut(topic, 0, lost=lose, kept=keep)
        assert wait_until(lambda: is_read("new") and not is_read("gone"), 120), job.lines
        seconds = time.monotonic() - elected
        print(f"right rows {seconds:.1f} s after the election", *job.lines, sep="\n")
        record_property("seconds", seconds)
        three_brokers.append(topic, *epoch_records("later", 2), commit("later", 1))
        assert wait_until(lambda: is_read("later"), 60), job.lines
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert history(warehouse) == history(tmp_path / "fresh")
    assert seconds <= 60


def test_an_election_that_loses_nothing_is_no_alarm(
    three_brokers: LocalCluster, topic: str, read: Callable[..., list[str]], tmp_path: Path
) -> None:
    read()
    epoch = three_brokers.leader_epoch(topic, 0)
    three_brokers.elect(topic, 0)
    three_brokers.append(topic, *epoch_records("new", 2))

    lines = read()

    assert "resuming from the checkpoint" in lines[0]
    found = rows(tmp_path / "warehouse", "SELECT group_id, log_epoch FROM groups ORDER BY group_id")
    assert found == [
        {"group_id": "new", "log_epoch": three_brokers.leader_epoch(topic, 0)},
        {"group_id": "old", "log_epoch": epoch},
    ]
    assert not events(tmp_path / "warehouse", "kind = 'log_truncated' OR void")


def test_records_that_were_deleted_before_they_were_read_are_named_and_the_rest_is_read(
    three_brokers: LocalCluster, topic: str, read: Callable[..., list[str]], tmp_path: Path
) -> None:
    read()
    last = three_brokers.append(topic, *epoch_records("never read", 2), commit("old", 99))
    three_brokers.delete_records(topic, last + 1)
    three_brokers.append(topic, *MANY)
    lines = read()
    warehouse = tmp_path / "warehouse"
    lost = f"partition 0 of {topic}, offsets 3 to {last}, deleted before they were read"
    assert [any(name in line and lost in line for line in lines) for name in ("", "offsets: ")] == [True, True], lines
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert not rows(warehouse, "SELECT kind FROM group_events WHERE void")
    assert ("old", "created") in events(warehouse, "void IS NOT TRUE")
    found = rows(warehouse, "SELECT DISTINCT group_id, old, new FROM group_events WHERE kind = 'log_truncated'")
    assert found == [{"group_id": "old", "old": f"{topic}-0 from offset 3", "new": f"{topic}-0 from offset {last + 1}"}]
    assert "resuming from the checkpoint" in read()[0]
    assert state_of(warehouse) == state_of(tmp_path / "fresh")


def test_a_job_reads_on_by_itself_where_records_were_deleted_before_it_read_them(
    three_brokers: LocalCluster,
    spark: SparkSession,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
) -> None:
    warehouse = create_warehouse(tmp_path / "warehouse")
    values = {"bootstrap_server": three_brokers.bootstrap_server, "warehouse": warehouse, "topic": topic}
    streams = {"trigger": 10, "offsets": {"enabled": True, "trigger": 10}, "self_check": {"enabled": False}}
    config = JobConfig.model_validate({**values, **streams})
    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert wait_until(lambda: rows(warehouse, "SELECT 1 FROM offsets"), 60), job.lines
        assert wait_until(lambda: rows(warehouse, "SELECT 1 FROM groups"), 60), job.lines
        last = three_brokers.append(topic, *epoch_records("never read", 2), commit("old", 99))
        three_brokers.delete_records(topic, last + 1)
        three_brokers.append(topic, *MANY)
        read_query = "SELECT 1 FROM {} WHERE group_id = 'new'"
        for name in ("groups", "offsets"):
            assert wait_until(lambda name=name: rows(warehouse, read_query.format(name)), 90), job.lines
    assert any(f"offsets 3 to {last}, deleted before they were read" in line for line in job.lines), job.lines
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
