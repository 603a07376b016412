"""A checkpoint that is older than its tables, by the numbers of the batches that each has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from streaming_app.stream.slices import WHOLE
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.tables.definitions import history_tables
from streaming_app.tables.location import Location
from streaming_app.tables.spark_writer import SparkWriter

QUERY = "0a1b"
HISTORY = tuple(one.name for one in history_tables())


def create(warehouse: Path, name: str) -> None:
    write_deltalake(warehouse / name, pa.table({"x": pa.array([], pa.int64())}))


@pytest.fixture
def versions(tmp_path: Path) -> TableVersions:
    """A checkpoint that has begun batch 3 and finished batch 2, and tables without rows."""
    checkpoint = tmp_path / "_checkpoints" / "default"
    for directory, newest in (("offsets", 3), ("commits", 2)):
        (checkpoint / directory).mkdir(parents=True)
        for number in range(newest + 1):
            (checkpoint / directory / str(number)).touch()
            (checkpoint / directory / f".{number}.crc").touch()
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}), "utf-8")
    writer = SparkWriter(Mock(), tmp_path, "default")  # what is read of the tables needs no session
    for name in ("groups", *HISTORY):
        create(tmp_path, name)
    return TableVersions(writer, Location.of(checkpoint))


def append(warehouse: Path, name: str, batch: int, writer: str = batch_writers("default", QUERY)[0]) -> None:
    """Append as a batch does."""
    append_id = Transaction(f"{writer}-{name}", WHOLE[0].version(batch))
    properties = CommitProperties(app_transactions=[append_id])
    write_deltalake(warehouse / name, pa.table({"x": [batch]}), mode="append", commit_properties=properties)


def test_tables_with_what_the_checkpoint_has_begun_fit_it(versions: TableVersions, tmp_path: Path) -> None:
    assert versions.beyond() == []
    append(tmp_path, "group_events", 3)
    append(tmp_path, "quarantine", 2)
    append(tmp_path, "quarantine", 9, writer="default-of-another-query")
    assert versions.beyond() == []


@pytest.mark.parametrize("writer", batch_writers("default", QUERY))
def test_a_table_with_a_batch_that_the_checkpoint_has_not_begun_is_newer(
    versions: TableVersions, tmp_path: Path, writer: str
) -> None:
    append(tmp_path, "group_events", 4, writer)
    assert versions.beyond() == ["group_events"]


def test_a_checkpoint_that_has_finished_what_it_has_not_begun_fits_no_table(
    versions: TableVersions, tmp_path: Path
) -> None:
    (tmp_path / "_checkpoints" / "default" / "commits" / "4").touch()
    assert sorted(versions.beyond()) == sorted(HISTORY)


def test_a_table_that_was_created_again_is_recognized_whatever_was_written_since(
    versions: TableVersions, tmp_path: Path
) -> None:
    append(tmp_path, "group_events", 3)
    versions.write()
    append(tmp_path, "quarantine", 3)
    assert versions.restored() == []
    shutil.rmtree(tmp_path / "group_events")
    create(tmp_path, "group_events")
    for batch in (3, 4, 5):
        append(tmp_path, "group_events", batch)
    assert versions.restored() == ["group_events"]


def test_what_earlier_builds_stored_is_read(versions: TableVersions, tmp_path: Path) -> None:
    append(tmp_path, "group_events", 3)
    stored = tmp_path / "_checkpoints" / "default.tables.json"
    stored.write_text(json.dumps({"groups": 0, "group_events": 1, "quarantine": 1}), "utf-8")
    assert versions.restored() == ["quarantine"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"groups": null}', '{"groups": {"version": 1}}'])
def test_a_damaged_file_says_nothing(versions: TableVersions, tmp_path: Path, text: str) -> None:
    (tmp_path / "_checkpoints" / "default.tables.json").write_text(text, "utf-8")
    assert versions.restored() == []
