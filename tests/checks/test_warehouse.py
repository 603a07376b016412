from __future__ import annotations

import shutil
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from streaming_app.checks.result import FAILED, OK, WARNING, Result
from streaming_app.checks.warehouse import check_warehouse
from streaming_app.tables.location import Location
from tests.support.heartbeats import write_heartbeat
from tests.support.warehouses import make_warehouse
from tests.upgrade.record import archive_of


def results(path: Path) -> dict[str, Result]:
    return {result.check: result for result in check_warehouse(Location.of(path), "default")}


def test_a_warehouse_that_does_not_exist_can_be_created_and_is_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "warehouse"
    found = results(path)
    assert [result.status for result in found.values()] == [OK, OK, OK, OK]
    assert "can be created" in found["warehouse"].text
    assert not path.parent.exists()


def test_tables_of_this_release_are_right_and_those_of_an_older_one_are_upgraded(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    files = set(tmp_path.rglob("*"))
    assert results(tmp_path)["tables"].status == OK
    assert set(tmp_path.rglob("*")) == files, "nothing remains of what the check wrote"
    shutil.rmtree(tmp_path / "topologies")
    result = results(tmp_path)["tables"]
    assert (result.status, "(topologies): the job upgrades them" in result.text) == (WARNING, True)


@pytest.mark.parametrize("release", ["0.1.0", "0.2.0"])
def test_a_warehouse_that_the_job_upgrades_is_not_said_to_be_of_a_newer_release(tmp_path: Path, release: str) -> None:
    """Seen: `check` failed, and `run` upgraded: the table `alerts` of 0.2.0 has columns that are gone."""
    with tarfile.open(archive_of(release)) as archive:
        archive.extractall(tmp_path, filter="data")
    result = results(tmp_path)["tables"]
    assert (result.status, "alerts" in result.text) == (WARNING, True)
    assert "the job upgrades them at its start" in result.text


def test_tables_of_a_newer_release_fail_and_the_column_is_named(tmp_path: Path) -> None:
    groups = make_warehouse(tmp_path) / "groups"
    table = DeltaTable(groups)
    rows = table.to_pyarrow_dataset().to_table().slice(0, 0)
    newer = rows.append_column("hat_size", rows.column("state"))
    write_deltalake(groups, newer, mode="append", schema_mode="merge")
    result = results(tmp_path)["tables"]
    assert result.status == FAILED
    assert "has a column hat_size that this release does not know" in result.text
    assert "newer release" in result.remedy


def test_a_job_that_writes_the_cluster_is_named(tmp_path: Path) -> None:
    running = write_heartbeat(tmp_path, every_seconds=30, pid=7, host="h")
    result = results(tmp_path)["other job"]
    said = "process 7 on h writes cluster 'default': a second job waits until this one has ended"
    assert (result.status, result.text) == (OK, said)
    write_heartbeat(tmp_path, every_seconds=30, pid=7, host="h", at=running.at - timedelta(hours=1))
    assert results(tmp_path)["other job"].text == "no job writes cluster 'default'"
