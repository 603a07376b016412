"""Batches through Spark into tables: the way for few records and the way for many must come to the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import streaming_app
from offsets_decoder import encode
from schemas.table_definitions import table, tables, views
from streaming_app.job import pipeline
from streaming_app.job.pipeline import BatchOutcome, Pipeline
from streaming_app.job.tables import Warehouse
from streaming_app.serve.warehouse import Warehouse as Served
from tests.job.frames import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
GROUPS = ("one", 'it\'s "two" \\ 🎉', "three")


def history() -> Iterator[tuple[bytes | None, bytes | None]]:
    """Two rebalances of three groups, an offset commit, what cannot be decoded, and the end of one group."""
    for epoch in (2, 3):
        for group in GROUPS:
            at, member = {"group_id": group}, {"group_id": group, "member_id": "m"}
            tasks = [{"subtopology_id": "0", "partitions": list(range(epoch))}]
            yield encode(23, at, {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["in"]}]})
            yield encode(19, member, {"client_id": "c", "client_tags": [{"key": "zone", "value": "a"}]})
            yield encode(17, at, {"epoch": epoch, "validated_topology_epoch": 0, "last_assignment_configs": []})
            yield encode(21, member, {"active_tasks": tasks})
            yield encode(20, at, {"assignment_epoch": epoch})
            yield encode(22, member, {"member_epoch": epoch, "state": 1, "active_tasks": tasks})
    yield encode(1, {"group": "one", "topic": "in", "partition": 0}, {"offset": 7})
    yield b"\x00\x18\x00\x01g", b"\x00\x00"
    yield None, b"no key"
    yield encode(17, {"group_id": "three"}, None)


def take(spark: SparkSession, path: Path, cuts: list[int]) -> list[BatchOutcome]:
    """Let a pipeline take the history in batches that end at `cuts`."""
    warehouse = Warehouse(spark, str(path), "default")
    warehouse.prepare()
    told: list[BatchOutcome] = []
    taken = Pipeline(warehouse, "default", "topic", lambda _, outcome: told.append(outcome))
    rows = [
        (offset, START + timedelta(seconds=offset // 6), key, value) for offset, (key, value) in enumerate(history())
    ]
    for batch_id, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        taken(batch(spark, rows[start:end]), batch_id)
    taken(batch(spark, rows[start:end]), batch_id)  # as after a crash before the checkpoint
    return told


def content(path: Path) -> dict[str, Any]:
    opened = Served(path)
    return {
        definition.name: opened.rows(f"SELECT * FROM {definition.name} ORDER BY {', '.join(_order(definition.name))}")
        for definition in tables()
    }


def _order(name: str) -> list[str]:
    return [f'"{column}"' for column in table(name).key]


@pytest.fixture(scope="module")
def few(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose batches all were small."""
    path = tmp_path_factory.mktemp("few")
    told = take(spark, path, [8, 25])
    assert sum(outcome.decoded for outcome in told[:-1]) == 6 * 6 + 1
    assert sum(outcome.quarantined for outcome in told[:-1]) == 2
    assert told[-1].groups == 0
    return path


def test_many_records_come_to_the_same_as_few(
    spark: SparkSession, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_FEW_RECORDS", 0)
    take(spark, tmp_path, [8, 25])
    assert content(tmp_path) == content(few)


def test_where_batches_are_cut_makes_no_difference(spark: SparkSession, few: Path, tmp_path: Path) -> None:
    take(spark, tmp_path, [3, 10, 11, 39])
    assert content(tmp_path) == content(few)


@pytest.mark.parametrize("few_records", [0, 20_000])
def test_a_batch_of_nothing_but_other_groups_changes_nothing(
    spark: SparkSession, few: Path, monkeypatch: pytest.MonkeyPatch, few_records: int
) -> None:
    monkeypatch.setattr(pipeline, "_FEW_RECORDS", few_records)
    before = content(few)
    classic = encode(2, {"group": "classic"}, {"protocol_type": "consumer", "generation": 1})
    gone = encode(17, {"group_id": "never seen"}, None)
    taken = Pipeline(Warehouse(spark, str(few), "default"), "default", "topic", lambda *_: None)
    rows = [(500 + n, START, key, value) for n, (key, value) in enumerate([classic, gone])]
    taken(batch(spark, rows[:1]), 500)
    taken(batch(spark, rows), 501)
    assert content(few) == before


def test_the_state_is_that_of_the_last_record(few: Path) -> None:
    rows = Served(few).rows("SELECT group_id, state, group_epoch, member_count FROM groups ORDER BY group_id")
    assert rows == [
        {"group_id": 'it\'s "two" \\ 🎉', "state": "Stable", "group_epoch": 3, "member_count": 1},
        {"group_id": "one", "state": "Stable", "group_epoch": 3, "member_count": 1},
        {"group_id": "three", "state": "Dead", "group_epoch": 3, "member_count": 0},
    ]


def test_spark_sql_sees_every_table_and_view_as_the_shell_does(spark: SparkSession, few: Path) -> None:
    streaming_app.open_warehouse(spark, few)
    for definition in (*tables(), *views()):
        seen = spark.sql(f"SELECT * FROM {definition.name}")
        assert set(definition.names) <= set(seen.columns)
        assert {"cluster", "group_id"} <= set(seen.columns)
        assert seen.count() == Served(few).rows(f"SELECT count(*) AS n FROM {definition.name}")[0]["n"]
    joined = spark.sql(
        "SELECT a.partition FROM assignments a JOIN members m USING (cluster, group_id, member_id) "
        "WHERE group_id = 'one' AND m.client_id = 'c' AND a.current ORDER BY a.partition"
    )
    assert [row[0] for row in joined.collect()] == [0, 1, 2]
    key, value = encode(17, {"group_id": "four"}, {"epoch": 2})
    added = batch(spark, [(1000, START, key, value)])
    Pipeline(Warehouse(spark, str(few), "default"), "default", "topic", lambda *_: None)(added, 1000)
    assert spark.sql("SELECT group_epoch FROM groups WHERE group_id = 'four'").collect()[0][0] == 2


@pytest.mark.parametrize("few_records", [0, 20_000])
def test_groups_that_are_not_ready_get_their_reason_either_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_records: int
) -> None:
    monkeypatch.setattr(pipeline, "_FEW_RECORDS", few_records)
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    taken = Pipeline(warehouse, "default", "topic", lambda *_: None, topics=lambda _names: {"other": 1})
    rows = [
        (offset, START, key, value)
        for offset, (key, value) in enumerate(pair for pair in history() if pair[0] and pair[0][1] in {19, 23})
    ]
    tail = [
        encode(17, {"group_id": group}, {"epoch": 2, "last_assignment_configs": [{"key": "k", "value": "v"}]})
        for group in GROUPS
    ]
    rows += [(len(rows) + n, START, key, value) for n, (key, value) in enumerate(tail)]
    taken(batch(spark, rows[:-1]), 0)
    taken(batch(spark, rows[-1:]), 1)
    told = Served(tmp_path).rows("SELECT state, not_ready_reason FROM groups")
    reason = "MISSING_SOURCE_TOPICS: Source topics in are missing."
    assert told == [{"state": "NotReady", "not_ready_reason": reason}] * 3
    events = Served(tmp_path).rows("SELECT new FROM group_events WHERE kind = 'not_ready_reason'")
    assert events == [{"new": reason}] * 3


def test_a_large_batch_without_a_group_that_is_not_ready_asks_for_no_topics(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_FEW_RECORDS", 0)
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    taken = Pipeline(warehouse, "default", "topic", lambda *_: None, topics=lambda names: pytest.fail(str(names)))
    rows = [
        (offset, START + timedelta(seconds=offset // 6), key, value) for offset, (key, value) in enumerate(history())
    ]
    taken(batch(spark, rows), 0)
    assert {row["state"] for row in Served(tmp_path).rows("SELECT state FROM groups")} == {"Stable", "Dead"}


@pytest.mark.parametrize(("dialect", "stored", "failed"), [("shipped", -1, 5), ("kip-1331", 5, -1)])
def test_tags_mean_what_the_dialect_says_and_unknown_ones_are_counted(
    spark: SparkSession, tmp_path: Path, dialect: str, stored: int, failed: int
) -> None:
    told: list[BatchOutcome] = []
    warehouse = Warehouse(spark, str(tmp_path), "default")
    warehouse.prepare()
    taken = Pipeline(warehouse, "default", "topic", lambda _, outcome: told.append(outcome), dialect=dialect)
    tagged = bytes.fromhex("0000 00000002 0000000000000000 02 03 04 00000005 09 01 00")  # tag 3 is 5, tag 9 unknown
    taken(batch(spark, [(0, START, b"\x00\x11\x00\x01g", tagged)]), 0)
    assert (told[0].decoded, told[0].drifted, told[0].quarantined) == (1, 1, 0)
    rows = Served(tmp_path).rows("SELECT stored_description_epoch AS s, failed_description_epoch AS f FROM groups")
    assert rows == [{"s": stored, "f": failed}]
