"""Nobody waits for the maintenance: a store that does not answer it delays no alert, no batch and no end of the job."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming_app.errors import OtherOwnerError
from streaming_app.job.service import Service, Services
from streaming_app.job.services import maintenance_service
from streaming_app.stream.job_state import JobState
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.writer import TableWriter
from tests.alerts.examples import make_alert
from tests.support.a_job import a_job
from tests.support.s3_server import S3Server, s3_server
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse

ALERT = make_alert(cluster="default")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path, monkeypatch.setenv) as server:
        make_warehouse(server.root / "w", as_the_job=True)
        yield server


def service_of(warehouse: Path | str, lines: list[str], fence: Fence | None = None) -> tuple[Service, JobState]:
    job = a_job(Location.of(warehouse), lines.append, fence=fence)
    writer = TableWriter(cast("Any", None), job.config.warehouse, "default", fence)
    return maintenance_service(job, writer, lambda: True, threading.Event()), job.health


@pytest.mark.slow
@pytest.mark.parametrize("held", [r"LIST w/alerts/?$", r"PUT w/alerts/_delta_log/\w+\.checkpoint"])
def test_an_alert_is_stored_while_the_store_does_not_answer_the_maintenance_of_its_table(
    held: str, server: S3Server
) -> None:
    lines, running, fence = list[str](), Services(), Fence("default", 1)
    service, _ = service_of(server.uri("w"), lines, fence)
    alerts = AlertsTable(Location.of(server.uri("w")), "default", fence)

    def is_held() -> bool:  # as the server decides it: the service also sends other requests about the table
        return any(re.search(held, f"{kind} {key}") for kind, key in server.requests()[-1:])

    with server.holding(held):
        running.start(service)
        assert wait_until(is_held)
        for number in range(3):
            alerts.save([replace(ALERT, alert_id=f"{number}")])
        assert {one.alert_id for one in alerts.alerts()} == {"0", "1", "2"}
        assert service.is_running
        assert running.close() == ["maintenance"], "the job ends without it"
    assert service.join(300)
    assert lines == []
    assert {one.alert_id for one in alerts.alerts()} == {"0", "1", "2"}


def test_a_table_that_cannot_be_maintained_is_a_line_and_is_counted_and_the_others_are_maintained(
    tmp_path: Path,
) -> None:
    lines = list[str]()
    service, health = service_of(make_warehouse(tmp_path, as_the_job=True), lines)
    (tmp_path / "lag").rename(tmp_path / "away")
    before = {one.name: DeltaTable(one).version() for one in tmp_path.iterdir() if one.name != "away"}
    service.attempt()
    assert [line.partition(": ")[0] for line in lines] == ["maintenance"]
    assert "the table lag" in lines[0]
    assert health.status.maintenance_failures == 1
    assert all(DeltaTable(tmp_path / name).version() > version for name, version in before.items())


def test_the_service_ends_once_another_job_has_taken_over(tmp_path: Path) -> None:
    fence, lines = Fence("default", 1), list[str]()
    make_warehouse(tmp_path, as_the_job=True)
    service, health = service_of(tmp_path, lines, fence)
    Fence("default", 2).claim([Location.of(tmp_path / "alerts")])
    with pytest.raises(OtherOwnerError):
        service.tick()
    assert health.status.maintenance_failures == 0


@pytest.mark.parametrize("name", ["group_events", "alerts", "lag_history", "groups", "offset_commits"])
def test_rows_that_are_written_while_a_table_is_maintained_are_all_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each commit of the maintenance another one of the same job comes first, the first time."""
    warehouse, fence = make_warehouse(tmp_path, as_the_job=True), Fence("default", 1)
    service, health = service_of(warehouse, lines := [], fence)
    writer = TableWriter(cast("Any", None), warehouse, "default", fence)
    own = writer.table(name)
    key = {"group_id": "g", "alert_id": "a", "topic": "t", "partition": 0, "last_offset": 0, "offset": 0}
    key["committed_offset"] = 1  # else it is a tombstone

    def append(number: int) -> None:
        row = {column: value for column, value in key.items() if column in own.schema().names}
        own.append(own.to_table([{**row, "group_id": f"g{number}"}]))

    for number in range(110):
        append(number)
    numbers, change = iter(range(110, 1_000)), type(own).change_apart

    def overtaken(self: Any, write: Any, opened: Any, transactions: Any = ()) -> None:
        is_first = True

        def after(table: DeltaTable, commit: Any) -> None:
            nonlocal is_first
            if is_first and self.location.name == name:
                is_first = False
                append(next(numbers))
            write(table, commit)

        change(self, after, opened, transactions)

    monkeypatch.setattr(type(own), "change_apart", overtaken)
    service.attempt()
    assert (lines, health.status.maintenance_failures) == ([], 0)
    written = next(numbers)
    assert written > 110
    found = [row["group_id"] for row in own.select("group_id").to_pylist()]
    assert sorted(found) == sorted(f"g{number}" for number in range(written))
    assert pa.table(own.open().get_add_actions()).num_rows < 110


def test_a_table_is_maintained_after_many_commits_half_an_hour_after_a_few_and_daily_without_any(
    tmp_path: Path,
) -> None:
    own, now = RustTable(Location.of(make_warehouse(tmp_path) / "lag"), "default"), [0.0]
    table = MaintainedTable(own, clock=lambda: now[0])

    def done_after(seconds: float, commits: int = 0) -> bool:
        now[0] += seconds
        own.uses.commits += commits
        is_due = table.is_due()
        table.maintain_if(is_due)
        return is_due

    assert done_after(0)
    assert not done_after(3_600)
    assert done_after(23 * 3_600)
    assert not done_after(600, commits=1)
    assert done_after(1_200)
    assert not done_after(0, commits=99)
    assert done_after(0, commits=1)


@pytest.mark.parametrize(("seconds", "files"), [(0.0, 1), (10.0, 5)], ids=["a fast store", "a slow store"])
def test_files_are_not_merged_where_that_would_take_so_long_that_a_writer_comes_in_between(
    seconds: float, files: int, tmp_path: Path
) -> None:
    own, times = RustTable(Location.of(make_warehouse(tmp_path) / "alerts"), "default"), count(0.0, seconds)
    for number in range(5):
        own.append(own.to_table([{"alert_id": f"{number}"}]))
    MaintainedTable(own, 30, clock=lambda: next(times)).maintain()
    assert pa.table(own.open().get_add_actions()).num_rows == files


def test_what_the_maintenance_notes_and_merges_rejects_no_commit_that_is_made_meanwhile(tmp_path: Path) -> None:
    own = RustTable(Location.of(make_warehouse(tmp_path) / "group_events"), "default", Fence("default", 1))
    row = own.to_table([{"group_id": "g"}])
    own.append(row)
    own.append(row)
    writes = list[str]()

    def write(target: DeltaTable, commit: Any) -> None:
        writes.append("attempt")
        MaintainedTable(own).maintain()  # between the version that the writer has opened and its commit
        write_deltalake(target, row, mode="append", **commit)

    own.change(write)
    assert (writes, own.count_rows()) == (["attempt"], 3)
