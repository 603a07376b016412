"""The runbook: its configuration and all its queries are valid, and these find what they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.generate import runbook
from offsets_decoder import encode
from streaming_app.alerts.catalog import GROUP_ID, rules
from streaming_app.config.alerts import AlertSettings
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.encoded import metadata_record
from tests.support.frames import batch, expect_few_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = runbook.PAGE.read_text("utf-8")
QUERIES = re.findall(r"```sql\n(.+?)```", TEXT, re.DOTALL)


def test_the_configuration_in_the_page_is_valid() -> None:
    examples = re.findall(r"```yaml\n(.+?)```", TEXT, re.DOTALL)
    assert examples
    for example in examples:
        AlertSettings.model_validate(yaml.safe_load(example)["alerts"])


@pytest.fixture(scope="module")
def reader(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, create_warehouse: Callable[[Path], Path]
) -> WarehouseReader:
    """A warehouse with a group whose member has not revoked its task, and a record that could not be decoded."""
    path = create_warehouse(tmp_path_factory.mktemp("runbook"))
    warehouse = TableWriter(spark, str(path), "default")
    group, member = {"group_id": "payments"}, {"group_id": "payments", "member_id": "m1"}
    revoking = {
        "member_epoch": 2,
        "state": 2,
        "active_tasks_pending_revocation": [{"subtopology_id": "1", "partitions": [4]}],
    }
    records = [
        encode(23, group, {"epoch": 0, "subtopologies": [{"subtopology_id": "1", "source_topics": ["a"]}]}),
        metadata_record(group, 3, validated_topology_epoch=0),
        encode(19, member, {"client_id": "worker", "client_host": "/10.1.2.3", "rebalance_timeout_ms": 45_000}),
        encode(20, group, {"assignment_epoch": 3}),
        encode(22, member, revoking),
        (encode(17, group, {"epoch": 3})[0], b"\x00\x63"),
    ]
    at = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
    rows = [(offset, at, key, value) for offset, (key, value) in enumerate(records)]
    expect_few_records(path)
    GroupsBatchWriter(warehouse, "default", "topic", lambda *_: None)(batch(spark, rows), 0)
    return WarehouseReader(path)


def test_every_query_is_valid(reader: WarehouseReader) -> None:
    assert len(QUERIES) > len(rules())
    for query in QUERIES:
        reader.query(query.replace(GROUP_ID, "payments"))


def test_queries_find_what_their_questions_ask_for(reader: WarehouseReader) -> None:
    def results(rule: str) -> list[list[dict[str, Any]]]:
        return [reader.rows(sql) for sql in rules()[rule].queries_for("payments").values()]

    _, members = results("StreamsGroupStalled")
    assert [(row["client_host"], row["member_state"]) for row in members] == [("/10.1.2.3", "UNREVOKED_TASKS")]
    states, joined, (topics,), _ = results("StreamsGroupDown")
    assert topics["source_topics"] == ["a"]
    assert [row["kind"] for row in joined] == ["member_joined"]
    assert "Reconciling" in {row["new"] for row in states}
    (record,), *_ = results("StreamsGroupsUndecodableRecords")
    assert (record["group_id"], record["error_kind"]) == ("payments", "UnknownValueVersion")
    (late, *_), *_ = results("StreamsGroupDescriptionMissing")
    assert (late["description_status"], late["solicitable"]) == ("NEVER_STORED", True)
