"""Logs that unclean elections cut: the tables hold what the log has, and say what it no longer has."""

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError
from streaming_app.groups.events import OFFSETS_RESET
from streaming_app.stream import start, truncation
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.checkpoint_offsets import checkpoint_location
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from tests.stream.test_offset_acts import streams
from tests.support.encode import encode
from tests.support.encoded import Pair
from tests.support.job_runner import run_once
from tests.support.kafka_cluster import LocalCluster
from tests.support.offsets_topic import UNDECODABLE, epoch_records
from tests.support.running_job import job_in_thread
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]
BOTH_STREAMS = {"offsets": {"enabled": True, "trigger": 1}}


def commit(group: str, offset: int, text: str = streams()) -> Pair:
    """Return a commit of Kafka Streams; with an empty text one of a tool."""
    return encode(1, {"group": group, "topic": "in", "partition": 0}, {"offset": offset, "metadata": text})


def rows(warehouse: Path, query: str) -> list[dict[str, Any]]:
    return WarehouseReader(warehouse).rows(query)


def live_config(cluster: LocalCluster, topic: str, warehouse: Path) -> JobConfig:
    """Return the configuration of a job that runs both streams until it is stopped."""
    values = {"bootstrap_server": cluster.bootstrap_server, "warehouse": warehouse, "topic": topic, "trigger": 1}
    return JobConfig.model_validate({**values, **BOTH_STREAMS})


def state_of(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    """What the tables say of every group and commit."""
    tables = {"groups": "group_id", "offsets": "group_id", "all_groups": "group_id"}
    return {name: rows(warehouse, f"SELECT * FROM {name} ORDER BY {key}") for name, key in tables.items()}


def events(warehouse: Path, where: str) -> set[tuple[str, str]]:
    found = rows(warehouse, f"SELECT group_id, kind FROM group_events WHERE {where}")
    return {(row["group_id"], row["kind"]) for row in found}


def history(warehouse: Path, *others: str) -> list[dict[str, Any]]:
    """The events of records that exist, without when and where, and without `others`."""
    left_out = ", ".join(f"'{kind}'" for kind in ("log_truncated", *others))
    return rows(
        warehouse,
        "SELECT group_id, kind, member_id, topic, old, new, cause, e.offset, log_epoch FROM group_events e "
        f"WHERE void IS NOT TRUE AND kind NOT IN ({left_out}) ORDER BY e.offset, group_id, kind",
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


LOST = (*epoch_records("gone", 2), *epoch_records("old", 7), commit("old", 99, ""), commit("gone", 5), UNDECODABLE)
MANY = (
    *epoch_records("new", 3),
    *epoch_records("old", 3),
    commit("old", 12, ""),
    commit("new", 1),
    commit("new", 2, ""),
    UNDECODABLE,
)


class DiedError(Exception):
    """The job dies here."""


STEPS: list[tuple[Any, str, int]] = [
    (truncation, "void_history", 1),
    (StateFile, "write", 1),
    (GroupRows, "replace", 1),
]
"""The calls after which a job dies, and the how manieth: history is marked, the start is prepared, rows are written."""


def die_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    original, calls = getattr(owner, name), itertools.count(1)

    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if next(calls) >= number:
            raise DiedError(name)
        return result

    monkeypatch.setattr(owner, name, call)


def test_a_log_that_was_cut_while_the_job_was_away_gives_the_rows_of_a_fresh_reading_also_if_the_repair_dies(
    three_brokers: LocalCluster,
    topic: str,
    read: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`cut` is a copy of what the second run finds."""
    read()
    warehouse = tmp_path / "warehouse"
    before = history(warehouse)

    def lose() -> None:
        three_brokers.append(topic, *LOST)
        read()

    three_brokers.cut(topic, 0, lost=lose, kept=partial(three_brokers.append, topic, *MANY), leaders_paused=True)
    shutil.copytree(warehouse, tmp_path / "cut")
    lines = read()
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert history(warehouse) == history(tmp_path / "fresh")
    first, last = 3, 3 + len(LOST) - 1
    lost = f"partition 0 of {topic}, offsets {first} to {last}"
    assert any(lost in line for line in lines), lines
    resets = f"SELECT group_id, old, new, cause, void FROM group_events WHERE kind = '{OFFSETS_RESET}' ORDER BY 1, 2, 3"
    assert [tuple(row.values()) for row in rows(warehouse, resets)] == [
        ("new", "1", "2", "while_empty", False),
        ("old", "10", "12", "while_empty", False),
        ("old", None, "99", "while_empty", True),  # this run has not read the commit before
    ]
    assert ("gone", "created") in events(warehouse, "void")
    assert ("old", "group_epoch") in events(warehouse, "void")
    assert history(warehouse)[: len(before)] == before  # nothing of a record that exists is void
    assert events(warehouse, "kind = 'log_truncated'") == {("gone", "log_truncated"), ("old", "log_truncated")}
    voided = rows(warehouse, "SELECT q.offset, void FROM quarantine q WHERE void")
    assert [row["offset"] for row in voided] == [last]

    for owner, step, number in STEPS:  # of the repair, after which the job starts again
        name = f"{step.strip('_')}-{number}"
        shutil.copytree(tmp_path / "cut", tmp_path / name)
        with monkeypatch.context() as patched:
            die_after(patched, owner, step, number)
            with pytest.raises(JobError, match="DiedError|" + step):
                read(name, offsets={"enabled": False})
        read(name, offsets={"enabled": False})
        assert state_of(tmp_path / name)["groups"] == state_of(tmp_path / "fresh")["groups"], name
        own = [history(tmp_path / one, OFFSETS_RESET) for one in (name, "fresh")]  # the other stream does not run
        assert own[0] == own[1], name
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the query of the offsets says does not depend on when that of the groups begins again."""
    warehouse = create_warehouse(tmp_path / "warehouse")
    config, prepare = live_config(three_brokers, topic, warehouse), start.prepare_start

    def has(group: str, table: str) -> bool:
        return any(row["group_id"] == group for row in rows(warehouse, f"SELECT group_id FROM {table}"))

    def is_read(group: str) -> bool:
        return has(group, "groups") and has(group, "offsets")

    def prepare_late(writer: Any, checkpoint: Location, *more: Any, log: Any, **options: Any) -> Any:
        if log.cuts and checkpoint == checkpoint_location(warehouse, config.cluster):
            assert wait_until(lambda: has("new", "offsets"))
        return prepare(writer, checkpoint, *more, log=log, **options)

    monkeypatch.setattr("streaming_app.job.streams.prepare_start", prepare_late)

    with job_in_thread(spark, config, tmp_path / "log") as job:
        assert job.says("batch 0"), job.lines

        def lose() -> None:
            three_brokers.append(topic, *LOST)
            assert wait_until(lambda: is_read("gone")), job.lines

        three_brokers.cut(topic, 0, lost=lose, kept=lambda: three_brokers.append(topic, *MANY))
        assert wait_until(lambda: is_read("new") and not is_read("gone")), job.lines
        three_brokers.append(topic, *epoch_records("later", 2), commit("later", 1))
        assert wait_until(lambda: is_read("later")), job.lines
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert history(warehouse) == history(tmp_path / "fresh")


def test_an_election_that_loses_nothing_is_no_alarm_and_records_deleted_before_they_were_read_are_named(
    three_brokers: LocalCluster, topic: str, read: Callable[..., list[str]], tmp_path: Path
) -> None:
    read()
    warehouse, epoch = tmp_path / "warehouse", three_brokers.leader_epoch(topic, 0)
    three_brokers.elect(topic, 0)
    last = three_brokers.append(topic, *epoch_records("new", 2))
    assert "resuming from the checkpoint" in read()[0]
    found = rows(warehouse, "SELECT group_id, log_epoch FROM groups ORDER BY group_id")
    assert [row["group_id"] for row in found] == ["new", "old"]
    assert [row["log_epoch"] for row in found] == [three_brokers.leader_epoch(topic, 0), epoch]
    assert not events(warehouse, "kind = 'log_truncated' OR void")

    first, last = last + 1, three_brokers.append(topic, *epoch_records("never read", 2), commit("old", 99))
    three_brokers.delete_records(topic, last + 1)
    three_brokers.append(topic, *MANY)
    lines = read()
    lost = f"partition 0 of {topic}, offsets {first} to {last}, deleted before they were read"
    assert [any(name in line and lost in line for line in lines) for name in ("", "offsets: ")] == [True, True], lines
    read("fresh")
    assert state_of(warehouse) == state_of(tmp_path / "fresh")
    assert not rows(warehouse, "SELECT kind FROM group_events WHERE void")
    assert ("old", "created") in events(warehouse, "void IS NOT TRUE")
    found = rows(warehouse, "SELECT group_id, old, new FROM group_events WHERE kind = 'log_truncated' ORDER BY 1")
    told = {"old": f"{topic}-0 from offset {first}", "new": f"{topic}-0 from offset {last + 1}"}
    assert found == [{"group_id": group_id, **told} for group_id in ("new", "old")]
