"""The empty warehouse that tests copy is what the job creates: see `tests/warehouse_template.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.tables.definitions import tables
from streaming_app.tables.spark_writer import SparkWriter
from tests import warehouse_template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_ONE_CREATION = {"id", "createdTime"}


def created(table: Path) -> dict[str, Any]:
    """Return the protocol and the metadata with which a table begins."""
    (first,) = (table / "_delta_log").glob("*.json")
    actions = {
        kind: action for line in first.read_text("utf-8").splitlines() for kind, action in json.loads(line).items()
    }
    metadata = {name: value for name, value in actions["metaData"].items() if name not in _OF_ONE_CREATION}
    return {"protocol": actions["protocol"], "metadata": metadata}


def test_the_template_has_the_tables_that_the_job_creates(
    spark: SparkSession, tmp_path: Path, empty_warehouse: Path
) -> None:
    SparkWriter(spark, str(tmp_path / "now"), "default").prepare()
    for definition in tables():
        found = created(empty_warehouse / definition.name)
        assert found == created(tmp_path / "now" / definition.name), definition.name


def test_a_template_is_made_once_and_replaces_those_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writer:
        def __init__(self, _session: object, path: str, _cluster: str) -> None:
            self.path = Path(path)

        def prepare(self) -> None:
            (self.path / "groups").mkdir(parents=True)
            sessions.append(self.path)

    sessions: list[Path] = []
    monkeypatch.setattr(warehouse_template, "DIRECTORY", tmp_path)
    monkeypatch.setattr(warehouse_template, "SparkWriter", Writer)
    first, again = (warehouse_template.warehouse_template(lambda: None) for _ in range(2))
    assert (first, len(sessions)) == (again, 1)
    monkeypatch.setattr(warehouse_template, "version", lambda _name: "0.0.1")
    other = warehouse_template.warehouse_template(lambda: None)
    assert (other != first, other.is_dir(), first.exists(), len(sessions)) == (True, True, False, 2)
