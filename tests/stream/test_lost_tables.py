"""Tables that are deleted while a job writes them, without Spark: they are created by delta-rs."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from streaming_app.errors import StreamChangedError
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_creation import create_missing, existing_tables
from streaming_app.tables.writer import TableWriter
from tests.support.warehouses import create_tables, make_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path / "warehouse")


def test_a_deleted_table_is_named_and_one_that_was_created_again_and_those_that_are_there_are_not(
    warehouse: Path,
) -> None:
    writer, checkpoint = TableWriter(Mock(), warehouse, "default"), Location.of(warehouse) / "checkpoint"
    known = TableVersions(writer, checkpoint, StateFile(checkpoint))
    known.remember()
    known.check()
    shutil.rmtree(warehouse / "quarantine")
    shutil.copytree(create_tables(warehouse.parent / "other") / "quarantine", warehouse / "quarantine")
    with pytest.raises(StreamChangedError, match="The table quarantine was deleted while the job ran"):
        known.check()
    shutil.rmtree(warehouse / "groups")
    with pytest.raises(StreamChangedError, match="The table groups and quarantine was deleted while the job ran"):
        known.check()


def test_a_deleted_table_refuses_rows_and_what_a_commit_left_at_that_moment_is_removed(warehouse: Path) -> None:
    place = Location.of(warehouse) / "groups"
    own = RustTable(place, "default")
    nothing = own.schema().empty_table()
    shutil.rmtree(warehouse / "groups")
    with pytest.raises(OSError, match="Cannot write the table groups"):
        own.append(nothing)
    log = warehouse / "groups" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{11:020}.json").write_text("{}", "utf-8")  # of a batch that had opened the table before
    assert create_missing(place.parent, existing_tables(place.parent)) == {"groups"}
    assert own.open().version() == 0
