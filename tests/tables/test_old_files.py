"""Files that no version needs any more are removed, from local tables and from those in a store."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import RustTable
from tests.support.s3_server import S3Server, s3_server
from tests.support.warehouses import arrow_schema, make_warehouse

NAME = "lag"
pytestmark = pytest.mark.slow  # hundreds of commits
DAY = 24 * 3600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["local", "my tables", "store"])
def directory(
    request: pytest.FixtureRequest, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The files of an empty table whose old versions nobody needs from the moment on in which they are replaced."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    created = make_warehouse(tmp_path / request.param) / NAME
    table = DeltaTable(created)
    for name in ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration"):
        table.alter.set_table_properties({name: "interval 0 seconds"}, raise_if_not_exists=False)
    if request.param != "store":
        return created
    return Path(shutil.copytree(created, server.root / tmp_path.name / NAME))


@pytest.fixture
def table(directory: Path, server: S3Server) -> RustTable:
    is_local = server.root not in directory.parents
    place = directory if is_local else server.uri(directory.relative_to(server.root).as_posix())
    return RustTable(Location.of(place), "default")


def rows(number: int) -> pa.Table:
    values = [{"cluster": "default", "group_id": "g", "topic": str(number), "partition": 0}]
    return pa.Table.from_pylist(values, arrow_schema(NAME))


def data_files(directory: Path) -> set[str]:
    return {file.name for file in directory.rglob("*") if file.is_file() and "_delta_log" not in file.parts}


def needed_files(table: RustTable) -> set[str]:
    return {uri.rpartition("/")[2] for uri in table.open().file_uris()}


def test_after_many_commits_the_files_are_those_of_the_versions_within_retention(
    table: RustTable, directory: Path
) -> None:
    for number in range(130):
        table.replace(rows(number))
        table.maintain()
    left = data_files(directory) - needed_files(table)
    assert len(left) < 100, "more than the commits since the last maintenance"
    RustTable(table.location, "default").maintain()  # as after a start
    assert data_files(directory) == needed_files(table)
    assert len(needed_files(table)) == 1


def test_what_no_version_ever_named_is_removed_once_it_is_a_day_old_as_a_paused_batch_may_still_commit_it(
    table: RustTable, directory: Path
) -> None:
    table.replace(rows(0))
    (named,) = directory.glob("cluster=default/*.parquet")
    young, old = (shutil.copyfile(named, named.with_name(f"part-{name}.parquet")) for name in ("young", "old"))
    for age, file in ((DAY - 600, young), (DAY + 600, old), (DAY + 600, named)):
        os.utime(file, (time.time() - age,) * 2)
    table.maintain()
    assert data_files(directory) == {named.name, young.name}
