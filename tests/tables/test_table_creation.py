"""The tables that delta-rs creates are those that Spark creates, so that every reader and release takes them alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.errors import JobError
from streaming_app.tables import table_creation
from streaming_app.tables.definitions import tables
from streaming_app.tables.delta_writer import DeltaWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_CREATION = ("id", "createdTime")
_FEATURES = {"deletionVectors", "invariants", "appendOnly"}


def first_entry(table: Path) -> dict[str, Any]:
    """Return the actions of a table's first version, without what is of one creation only."""
    lines = (table / "_delta_log" / f"{0:020}.json").read_text("utf-8").splitlines()
    actions = {kind: action for line in lines for kind, action in json.loads(line).items() if kind != "commitInfo"}
    for name in _OF_CREATION:
        del actions["metaData"][name]
    actions["metaData"] = {name: value for name, value in actions["metaData"].items() if value is not None}
    actions["metaData"]["schemaString"] = json.loads(actions["metaData"]["schemaString"])
    return actions


def test_both_ways_to_create_a_table_give_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_delta_rs: set[str] = set()
    create = table_creation._create_with_delta_rs

    def create_and_note(location: Any, definition: Any, *rest: Any) -> None:
        by_delta_rs.add(definition.name)
        create(location, definition, *rest)

    monkeypatch.setattr(table_creation, "_create_with_delta_rs", create_and_note)
    DeltaWriter(spark, str(tmp_path / "both"), "default").prepare()
    monkeypatch.setattr(table_creation, "_create_with_delta_rs", None)
    monkeypatch.setattr(table_creation, "_BY_SPARK", {one.name for one in tables()})
    DeltaWriter(spark, str(tmp_path / "spark"), "default").prepare()
    assert {"alerts", "lag", "offset_commits"} <= by_delta_rs
    for definition in tables():
        found = first_entry(tmp_path / "both" / definition.name)
        assert found == first_entry(tmp_path / "spark" / definition.name), definition.name
        assert set(found["protocol"].get("writerFeatures", ())) <= _FEATURES


def test_a_table_that_cannot_be_created_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    writer = DeltaWriter(spark, str(tmp_path), "default")
    writer.prepare()
    (tmp_path / "alerts").rename(tmp_path / "other")
    (tmp_path / "alerts").write_text("a file is in the way", "utf-8")
    with pytest.raises(JobError, match=r"^Cannot (read|write) the warehouse .*[^\n]$"):
        writer.prepare()
