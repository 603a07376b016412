"""Jobs that create one table at the same moment."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import create_table

JOBS, ROUNDS = 12, 20
SCHEMA = pa.schema([("n", pa.int64())])


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
