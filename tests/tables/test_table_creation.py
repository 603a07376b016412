"""New tables need no feature that some reader lacks, and are created once; those of another release fit or do not."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from streaming_app.errors import JobError, WarehouseError
from streaming_app.tables import table_creation
from streaming_app.tables.definitions import Table, tables
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_creation import create_missing, create_table, existing_tables
from streaming_app.tables.writer import TableWriter
from tests.support.rows import group_row, member_row
from tests.support.warehouses import make_warehouse

JOBS, ROUNDS = 12, 20
SCHEMA = pa.schema([("n", pa.int64())])


def test_every_reader_takes_new_tables_also_after_an_interrupted_creation(tmp_path: Path) -> None:
    (tmp_path / "groups" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (tmp_path / "alerts" / "_delta_log").mkdir(parents=True)
    assert prepare(tmp_path) == {one.name for one in tables()}
    for definition in tables():
        table = DeltaTable(tmp_path / definition.name)
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), definition.name
        assert (protocol.reader_features, protocol.writer_features) == (None, None)
        assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
        assert table.to_pandas().empty
        assert [field.name for field in table.schema().fields] == list(definition.names)


@pytest.mark.slow
def test_a_table_that_jobs_create_at_the_same_moment_is_created_once(tmp_path: Path) -> None:
    """delta-rs finds no table, and then commits to the one that another job has created and written meanwhile."""
    row = pa.table({"n": [1]}, schema=SCHEMA)
    with ThreadPoolExecutor(JOBS) as threads:
        for number in range(ROUNDS):
            place, begin = tmp_path / str(number), threading.Barrier(JOBS)

            def create(_: int, place: Path = place, begin: threading.Barrier = begin) -> None:
                begin.wait()
                create_table(Location.of(place), SCHEMA, {})
                write_deltalake(place, row, mode="append")

            list(threads.map(create, range(JOBS)))
            commits = sorted((place / "_delta_log").glob("*.json"))
            kinds = [json.loads(one.read_text("utf-8").splitlines()[0])["commitInfo"]["operation"] for one in commits]
            assert kinds == ["CREATE TABLE", *["WRITE"] * JOBS]


def as_of_older_release(definition: Table) -> Table:
    """Return the table as of a release without not_ready_reason, topology_hash, the members' joined_at, deliveries."""
    added = {"not_ready_reason", "topology_hash", "deliveries"}
    kept = [column for column in definition.columns if column.name not in added]
    return replace(definition, columns=tuple(replace(c, type=c.type.replace(",joined_at:timestamp", "")) for c in kept))


def prepare(path: Path) -> set[str]:
    return TableWriter(cast("Any", None), path, "default").prepare()


def test_tables_of_an_older_release_get_the_missing_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        older = [as_of_older_release(definition) for definition in tables() if definition.name != "topologies"]
        before.setattr(table_creation, "tables", lambda: tuple(older))
        prepare(tmp_path)
    groups = RustTable(Location.of(tmp_path / "groups"), "default")
    groups.append(groups.to_table([group_row("old", members=[member_row("m")])]))
    queries = ("not_ready_reason FROM groups", "joined_at FROM members")
    for query in queries:
        with pytest.raises(WarehouseError, match="created by an older release and lacks columns"):
            WarehouseReader(tmp_path).rows(f"SELECT {query}")
    assert prepare(tmp_path) == {"topologies"}
    for query in queries:
        assert [[*row.values()] for row in WarehouseReader(tmp_path).rows(f"SELECT {query}")] == [[None]]


def test_a_warehouse_of_an_older_release_lacks_a_table_and_none_is_no_warehouse(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"No streams-groups warehouse at .* run `streams-groups run"):
        WarehouseReader(tmp_path).rows("SELECT 1 AS one")
    shutil.rmtree(make_warehouse(tmp_path) / "topologies")
    with pytest.raises(WarehouseError, match=r"created by an older release and lacks the table topologies: start the"):
        WarehouseReader(tmp_path).rows("SELECT * FROM topologies")


def test_tables_of_a_newer_release_are_rejected_and_the_column_is_named(tmp_path: Path) -> None:
    DeltaTable(make_warehouse(tmp_path) / "groups").alter.add_columns(Field("hat_size", PrimitiveType("string")))
    with pytest.raises(JobError, match=r"has a column hat_size that this release does not know"):
        prepare(tmp_path)


def test_a_deleted_table_refuses_rows_and_what_a_commit_left_at_that_moment_is_removed(tmp_path: Path) -> None:
    place = Location.of(make_warehouse(tmp_path)) / "groups"
    own = RustTable(place, "default")
    nothing = own.schema().empty_table()
    shutil.rmtree(place.path)
    with pytest.raises(OSError, match="Cannot write the table groups"):
        own.append(nothing)
    # Of a batch that had opened the table before.
    (place / "_delta_log" / f"{11:020}.json").write_text("{}")
    assert create_missing(place.parent, existing_tables(place.parent)) == {"groups"}
    assert own.open().version() == 0
