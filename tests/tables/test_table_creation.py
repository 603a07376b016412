"""New tables need no feature of Delta that some reader lacks, and are created once, whichever jobs do it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming_app.tables.definitions import tables
from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import create_table
from streaming_app.tables.writer import TableWriter

JOBS, ROUNDS = 12, 20
SCHEMA = pa.schema([("n", pa.int64())])


def test_every_reader_takes_new_tables_also_after_an_interrupted_creation(tmp_path: Path) -> None:
    (tmp_path / "groups" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (tmp_path / "alerts" / "_delta_log").mkdir(parents=True)
    assert TableWriter(cast("Any", None), tmp_path, "default").prepare() == {one.name for one in tables()}
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
