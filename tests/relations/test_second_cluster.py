"""Relation K without Spark: what another cluster does in the warehouse changes nothing of what a start finds."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable, write_deltalake

from streaming_app.errors import StreamChangedError
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables import own_files
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.writer import TableWriter
from tests.stream.stopped_job import AT, Stopped, replace_tables
from tests.support.rows import group_row
from tests.support.s3_server import s3_server
from tests.support.warehouses import copy_warehouse, make_warehouse

pytestmark = pytest.mark.slow
RESUMED = "resuming from the checkpoint"
TABLES = ("groups", "group_events", "quarantine")
READER = "a query"
FOREVER = 36_500.0
TIME = {"group_events": "at", "quarantine": "timestamp"}
MANY = 9
"""Commits of the other cluster: more than the job has made."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse in which the other cluster had rows before."""
    directory = tmp_path_factory.mktemp("shared")
    one = Stopped(make_warehouse(directory / "warehouse"))
    one.write_batches()
    return directory


@pytest.fixture
def stopped(written: Path, tmp_path: Path) -> Stopped:
    return Stopped(copy_warehouse(written, tmp_path / "stopped") / "warehouse")


def other(stopped: Stopped, name: str) -> RustTable:
    return RustTable(stopped.writer.location / name, "other")


def write_as_other(stopped: Stopped, name: str, commits: int) -> None:
    table = other(stopped, name)
    row = group_row("g", cluster="other") if name == "groups" else {"source_partition": 0, "offset": 1}
    for _ in range(commits):
        table.append(table.to_table([row]))


def maintain_as_other(stopped: Stopped, name: str) -> None:
    """Let the other cluster's job maintain the table, hours later: the log keeps its newest commits only."""
    write_as_other(stopped, name, MANY)
    for file in (stopped.directory / name / "_delta_log").iterdir():
        os.utime(file, (0, 0))
    MaintainedTable(other(stopped, name)).maintain()
    left = [file.stem for file in (stopped.directory / name / "_delta_log").glob("*.json")]
    assert min(map(int, left)) > MANY, left


def restore(stopped: Stopped, name: str) -> None:
    """Set a table back to what it was after the second batch."""
    table = DeltaTable(stopped.directory / name)
    table.restore(DeltaTable(stopped.older / name).version())


def replace(stopped: Stopped, name: str) -> None:
    replace_tables(stopped, stopped.older, [name])


SINCE: dict[str, Callable[[Stopped, str], None]] = {
    "writes nothing": lambda *_: None,
    "writes": lambda stopped, name: write_as_other(stopped, name, MANY),
    "maintains": maintain_as_other,
}
BACK = {"RESTORE": restore, "a copy": replace}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("since", SINCE.values(), ids=SINCE)
@pytest.mark.parametrize("back", BACK.values(), ids=BACK)
def test_a_table_that_was_set_back_is_seen_whatever_another_cluster_does_since(
    stopped: Stopped, back: Callable[[Stopped, str], None], since: Callable[[Stopped, str], None], name: str
) -> None:
    back(stopped, name)
    since(stopped, name)
    assert f"lost or restored since: {name};" in stopped.start().message


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("since", SINCE.values(), ids=SINCE)
def test_what_another_cluster_does_alone_lets_a_job_resume(
    stopped: Stopped, since: Callable[[Stopped, str], None], name: str
) -> None:
    since(stopped, name)
    assert stopped.start().message == RESUMED


def write_after_the_last_batch(stopped: Stopped, name: str) -> None:
    """Commit a part of the next batch, or expire rows, without noting it: the job is killed."""
    table = stopped.writer.table(name)
    if name == "groups":
        table.replace(table.to_table([group_row("g", group_epoch=9, last_offset=39)]))
    else:
        table.delete(f'"offset" < {stopped.begin_batch(2)}')


def compact_with_another_tool(stopped: Stopped, name: str) -> None:
    table = DeltaTable(stopped.directory / name)
    write_as_other(stopped, name, 3)
    table.optimize.z_order(["last_offset" if name == "groups" else "offset"])


def maintain(stopped: Stopped, name: str, days: float = FOREVER) -> None:
    """Let the service of the job maintain a table, after writes of no batch; the job is killed before a check."""
    assert stopped.start().message == RESUMED
    own = stopped.writer.table(name)
    for number in range(2):
        of_group = group_row(f"g{number}", deleted_at=AT, last_offset=5)
        row = of_group if name == "groups" else {"group_id": "g", "source_partition": 0, "offset": 1, TIME[name]: AT}
        own.append(own.to_table([row]))
    before = own.open().file_uris()
    MaintainedTable(own, days).maintain()
    assert own.open().file_uris() != before


OWN = {
    "a killed job": write_after_the_last_batch,
    "another tool": compact_with_another_tool,
    "files that are merged": maintain,
    "rows that expire": partial(maintain, days=1),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_what_was_written_after_the_last_batch_is_no_restore_and_hides_none(
    stopped: Stopped, own: Callable[[Stopped, str], None], name: str
) -> None:
    own(stopped, name)
    write_as_other(stopped, name, MANY)
    assert stopped.start().message == RESUMED
    restore(stopped, name)
    write_as_other(stopped, name, MANY)
    assert f"lost or restored since: {name};" in stopped.start().message


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_a_check_notes_what_was_written_before_the_log_forgets_it(
    stopped: Stopped, own: Callable[[Stopped, str], None], name: str
) -> None:
    assert stopped.start().message == RESUMED
    known = TableVersions(stopped.writer, stopped.checkpoint, stopped.state())
    known.remember()
    own(stopped, name)
    for _ in range(2):
        known.check()
        known.refresh()
        maintain_as_other(stopped, name)
    assert stopped.start().message == RESUMED


@pytest.mark.parametrize("name", TABLES)
def test_what_the_maintenance_commits_during_a_commit_is_noted_with_it(stopped: Stopped, name: str) -> None:
    """After its commit the handle of a writer has it, too; the table has two readers."""
    assert stopped.start().message == RESUMED
    table, others = stopped.writer.table(name), Stopped(stopped.directory).writer.table(name)
    table.open_files(READER)
    row = group_row("x", deleted_at=AT) if name == "groups" else {"group_id": "x", "offset": 1, TIME[name]: AT}

    def write(target: DeltaTable, commit: Any) -> None:
        write_deltalake(target, table.to_table([row]), mode="append", **commit)
        MaintainedTable(others, 1).maintain()
        target.update_incremental()

    table.change(write)
    noted = {**table.files}
    assert set(noted) == {READER, str(stopped.checkpoint)}
    assert set(noted.values()) == {table.open_files("newest")}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_is_set_back_while_the_job_runs_is_not_written_and_ends_the_stream(
    stopped: Stopped, name: str
) -> None:
    assert stopped.start().message == RESUMED
    known = TableVersions(stopped.writer, stopped.checkpoint, stopped.state())
    known.remember()
    write_as_other(stopped, name, 1)
    stopped.write_batch(3)
    known.check()
    restore(stopped, name)
    maintain_as_other(stopped, name)
    with pytest.raises(StreamChangedError, match=f"The table {name} was restored while the job ran"):
        known.check()
    with pytest.raises(OSError, match=f"Cannot write the table {name}: it was restored"):
        stopped.write_batch(4)
    TableVersions(stopped.writer, stopped.checkpoint, stopped.state()).refresh()  # the job ends now
    assert f"lost or restored since: {name};" in stopped.start().message
    stopped.write_batch(0)
    known.check()
    assert stopped.start().message == RESUMED


@pytest.mark.parametrize("is_first", [True, False])
def test_that_is_found_by_a_bounded_number_of_requests(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    most = 5
    monkeypatch.setattr(own_files, "_MOST_COMMITS", most)
    stopped = Stopped(copy_warehouse(written / "warehouse", tmp_path / "warehouse"))
    known = stopped.writer.table("groups").open_files(READER)
    copy_warehouse(written / "older", stopped.older)
    for step in sorted((restore, partial(write_as_other, commits=MANY)), key=lambda one: (one is restore) != is_first):
        step(stopped, "groups")
    with s3_server(tmp_path / "s3") as store:
        copy_warehouse(tmp_path / "warehouse", store.root / "warehouse")
        store.use(monkeypatch.setenv)
        table = TableWriter(Mock(), Location.of(store.uri("warehouse")), "default").table("groups")
        assert not table.was_set_back(READER, table.open_files(READER))
        with store.counted() as requests:
            assert table.was_set_back(READER, known)
    newer = 2  # whether the known version is the newest
    assert requests == {"GET": newer + (1 if is_first else most)}


def test_a_query_finds_that_a_table_of_two_was_set_back_though_the_other_one_found_it_first_and_writes_on(
    stopped: Stopped,
) -> None:
    name, table = "quarantine", stopped.writer.table("quarantine")
    assert stopped.start().message == RESUMED
    place = stopped.checkpoint.parent / "second"
    second = TableVersions(stopped.writer, place, StateFile(place).read(), (), shared=[name])
    second.write()
    restore(stopped, name)
    assert f"lost or restored since: {name};" in stopped.start().message
    table.append(table.to_table([{"partition": 0, "offset": 50}]))
    with pytest.raises(StreamChangedError):
        second.check()
    second.write()  # of a batch that ran
    found = TableVersions(stopped.writer, place, StateFile(place).read(), (), shared=[name])
    assert found.restored() == [name]
