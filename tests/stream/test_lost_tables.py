"""Tables that are deleted while a job writes them, without Spark: they are created by delta-rs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming_app.stream.table_versions import KnownTables, LostTableError
from streaming_app.tables import definitions
from streaming_app.tables.location import Location
from tests.support.warehouses import create_tables, local_files, make_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path / "warehouse")


@pytest.fixture
def known(warehouse: Path) -> Iterator[KnownTables]:
    tables = KnownTables(Location.of(warehouse), local_files())
    tables.remember()
    yield tables
    tables.close()


def test_a_deleted_table_is_named_and_those_that_are_there_are_not(known: KnownTables, warehouse: Path) -> None:
    known.check_quickly()
    known.check()
    assert known.remove_remains() == []
    shutil.rmtree(warehouse / "groups")
    for check in (known.check_quickly, known.check):
        with pytest.raises(LostTableError, match="The table groups was deleted while the job ran"):
            check()


def test_a_table_created_again_is_another_table_and_only_an_unmarked_one_is_removed(
    known: KnownTables, warehouse: Path
) -> None:
    for name in ("groups", "quarantine"):
        shutil.rmtree(warehouse / name)
    write_deltalake(warehouse / "groups", pa.table({"cluster": ["default"]}))  # as Spark does for a lost table
    shutil.copytree(create_tables(warehouse.parent / "other") / "quarantine", warehouse / "quarantine")
    for check in (known.check_quickly, known.check):
        with pytest.raises(LostTableError, match="groups and quarantine"):
            check()
    assert known.remove_remains() == ["groups"]
    assert not (warehouse / "groups").exists()
    assert (warehouse / "quarantine").exists()


def test_no_descriptor_stays_open(warehouse: Path) -> None:
    def count_open() -> int:
        """Of this warehouse: other threads of the process open what they like."""
        links = (os.path.realpath(file) for file in Path("/proc/self/fd").iterdir())
        return sum(link.startswith(os.path.realpath(warehouse)) for link in links)

    tables = KnownTables(Location.of(warehouse), local_files())
    for _ in range(3):
        tables.remember()
        assert count_open() == len(definitions.tables())
    tables.close()
    assert count_open() == 0
