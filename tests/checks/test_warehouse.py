import shutil
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from streaming_app.checks.result import FAILED, OK, WARNING, Result
from streaming_app.checks.warehouse import check_warehouse
from streaming_app.tables.location import Location
from tests.support.heartbeats import write_heartbeat
from tests.support.warehouses import make_warehouse


def results(path: Path) -> dict[str, Result]:
    return {result.check: result for result in check_warehouse(Location.of(path), "default")}


def test_a_warehouse_that_does_not_exist_can_be_created_and_is_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "warehouse"
    found = results(path)
    assert [result.status for result in found.values()] == [OK, OK, OK, OK]
    assert "can be created" in found["warehouse"].text
    assert not path.parent.exists()


def test_tables_of_this_release_are_right_and_the_job_creates_those_that_are_missing(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    files = set(tmp_path.rglob("*"))
    assert results(tmp_path)["tables"].status == OK
    assert set(tmp_path.rglob("*")) == files, "nothing remains of what the check wrote"
    shutil.rmtree(tmp_path / "topologies")
    result = results(tmp_path)["tables"]
    assert (result.status, result.text) == (WARNING, "the job creates or completes topologies at its start")


def test_tables_of_a_newer_release_fail_and_the_column_is_named(tmp_path: Path) -> None:
    groups = make_warehouse(tmp_path) / "groups"
    table = DeltaTable(groups)
    rows = table.to_pyarrow_dataset().to_table().slice(0, 0)
    newer = rows.append_column("hat_size", rows.column("state"))
    write_deltalake(groups, newer, mode="append", schema_mode="merge")
    result = results(tmp_path)["tables"]
    assert result.status == FAILED
    assert "has a column hat_size that this release does not know" in result.text


def test_a_job_that_writes_the_cluster_is_named(tmp_path: Path) -> None:
    running = write_heartbeat(tmp_path, every_seconds=30, pid=7, host="h")
    result = results(tmp_path)["other job"]
    said = "process 7 on h writes cluster 'default': a second job waits until this one has ended"
    assert (result.status, result.text) == (OK, said)
    write_heartbeat(tmp_path, every_seconds=30, pid=7, host="h", at=running.at - timedelta(hours=1))
    assert results(tmp_path)["other job"].text == "no job writes cluster 'default'"
