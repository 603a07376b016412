"""The example queries of docs/tables.md, run over a history with known results."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offsets_decoder import encode
from streaming_app import open_warehouse
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.frames import Pair, batch, expect_few_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"
THREE = datetime(2026, 3, 14, 3, tzinfo=timezone.utc)
MIDNIGHT = THREE.replace(hour=0)


def history() -> Iterator[tuple[datetime, Pair]]:
    """At 3:00 m1 gets task 1_4; at 3:10 m2 gets it, with a new topology epoch; at 4:00 another rebalance.

    Other groups are Empty since the day before, since noon or since the day after; one was deleted the day before.
    """
    group = {"group_id": "payments"}
    for epoch, (minutes, holder) in enumerate([(0, "m1"), (10, "m2"), (60, "m2")], start=2):
        at = THREE + timedelta(minutes=minutes)
        topology = min(epoch - 2, 1)
        metadata = {"epoch": epoch, "validated_topology_epoch": topology, "last_assignment_configs": []}
        subtopology = {"subtopology_id": "1", "source_topics": [f"in-{topology}"]}
        yield at, encode(23, group, {"epoch": topology, "subtopologies": [subtopology]})
        yield at, encode(17, group, metadata)
        for member in ("m1", "m2"):
            yield at, encode(19, {**group, "member_id": member}, {"client_id": member})
        settled = at + timedelta(seconds=30)
        yield settled, encode(20, group, {"assignment_epoch": epoch})
        for member in ("m1", "m2"):
            tasks = [{"subtopology_id": "1", "partitions": [4] if member == holder else [14, 40]}]
            current = {"member_epoch": epoch, "state": 1, "active_tasks": tasks}
            yield settled, encode(22, {**group, "member_id": member}, current)
    for name, hours, epoch in (("stuck", -30, 2), ("since-noon", 12, 2), ("next-day", 25, 2), ("done-before", -5, 2)):
        at = MIDNIGHT + timedelta(hours=hours)
        yield at, encode(17, {"group_id": name}, {"epoch": epoch})
    yield MIDNIGHT - timedelta(hours=4), encode(17, {"group_id": "done-before"}, None)


Results = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, create_warehouse: Callable[[Path], Path]
) -> dict[str, Results]:
    """The example queries with their results, by `streams-groups sql` and by Spark."""
    path = create_warehouse(tmp_path_factory.mktemp("questions"))
    warehouse = TableWriter(spark, str(path), "default")
    rows = [(offset, at, key, value) for offset, (at, (key, value)) in enumerate(history())]
    expect_few_records(path)
    GroupsBatchWriter(warehouse, FoldOptions("default", "topic"), lambda *_: None)(batch(spark, rows), 0)
    examples = re.findall(r"^(\S[^\n]*[?:])\n\n```sql\n(.+?)```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    opened = WarehouseReader(path)
    open_warehouse(spark, str(path))
    return {
        "streams-groups sql": {question: opened.rows(query) for question, query in examples},
        "Spark SQL": {question: _by_spark(spark, query) for question, query in examples},
    }


@pytest.fixture(params=["streams-groups sql", "Spark SQL"])
def result(results: dict[str, Results], request: pytest.FixtureRequest) -> Results:
    """The results of each of the two."""
    return results[request.param]


def _by_spark(spark: SparkSession, query: str) -> list[dict[str, Any]]:
    """Run a query with the change for Spark SQL that the document describes."""
    rows = spark.sql(query.replace("date_part('epoch', ", "unix_timestamp(")).collect()
    return [
        {name: v.astimezone(timezone.utc) if isinstance(v, datetime) else v for name, v in row.asDict().items()}
        for row in rows
    ]


def test_the_examples_answer_what_they_ask(result: Results) -> None:
    assert result["Which member had task 1_4 at 03:12?"] == [{"member_id": "m2", "tasks": "active 1_4"}]
    assert result["How long was each group not Stable that day?"] == [
        {"group_id": "payments", "not_stable_seconds": 90.0},
        {"group_id": "since-noon", "not_stable_seconds": 12 * 3600.0},
        {"group_id": "stuck", "not_stable_seconds": 24 * 3600.0},
    ]
    rebalances = result["Rebalances per hour:"]
    assert [(row["hour"].hour, row["rebalances"]) for row in rebalances] == [(3, 2), (4, 1)]
    changed = THREE + timedelta(minutes=10)
    others = result["Which deployments changed the topology?"]
    assert [(row["at"], len({row["hash_before"], row["hash"]})) for row in others] == [(changed, 2)]
