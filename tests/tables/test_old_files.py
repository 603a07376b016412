"""Files that no version needs any more are removed, from local tables and from those in a store."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import EPOCH
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
    server.use(monkeypatch.setenv)
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
    maintained = MaintainedTable(table)
    for number in range(130):
        table.replace(rows(number))
        maintained.maintain_if(maintained.is_due())
    left = data_files(directory) - needed_files(table)
    assert len(left) < 100, "more than the commits since the last maintenance"
    maintained.maintain()
    assert data_files(directory) == needed_files(table)
    assert len(needed_files(table)) == 1


@pytest.mark.parametrize(("retention", "hours"), [("interval 0 seconds", 24), ("interval 2 days", 48)])
def test_what_no_version_ever_named_is_removed_after_a_day_or_the_retention_as_a_paused_batch_may_still_commit_it(
    retention: str, hours: int, table: RustTable, directory: Path
) -> None:
    table.replace(rows(0))
    table.open().alter.set_table_properties({"delta.deletedFileRetentionDuration": retention})
    (named,) = directory.glob("cluster=default/*.parquet")
    young, old = (shutil.copyfile(named, named.with_name(f"part-{name}.parquet")) for name in ("young", "old"))
    in_root = shutil.copyfile(named, directory / "part-as-0.3.0-wrote-it.parquet")
    for age, file in ((hours - 1, young), (hours + 1, old), (hours + 1, named), (hours + 1, in_root)):
        os.utime(file, (time.time() - age * 3600,) * 2)
    MaintainedTable(table).maintain()
    assert data_files(directory) == {named.name, young.name}


def test_a_table_is_maintained_after_a_start_unless_that_was_done_in_this_hour(table: RustTable) -> None:
    seconds = [1_800_000_000.0]

    def started(cluster: str) -> MaintainedTable:
        return MaintainedTable(RustTable(table.location, cluster), wall_clock=lambda: seconds[0])

    for cluster in ("a", "b"):  # the other one's has nothing to do with it
        assert started(cluster).is_due()
        started(cluster).maintain_if(started(cluster).is_due())
        assert not started(cluster).is_due()
    seconds[0] += 3600
    assert started("a").is_due()


def test_expired_rows_are_deleted_once_a_day_however_often_the_job_starts(tmp_path: Path) -> None:
    own = RustTable(Location.of(make_warehouse(tmp_path) / "lag_history"), "default")
    seconds = [1_800_000_000.0 // DAY * DAY]
    deleted = []
    for hours in (0, 1, 22, 1):
        seconds[0] += hours * 3600
        own.append(own.to_table([{"group_id": "g", "observed_at": EPOCH}]))
        deleted.append(MaintainedTable(own, 7, wall_clock=lambda: seconds[0]).maintain())
    assert deleted == [1, 0, 0, 3]
