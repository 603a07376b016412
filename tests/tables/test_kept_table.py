"""A table in a store is opened once by a process that goes on using it, and is never taken for another version."""

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming_app.errors import OtherOwnerError
from streaming_app.tables import kept_table
from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence
from streaming_app.tables.kept_table import KNOWN_SECONDS, newest_table
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import BatchId, CommitOptions, RustTable
from streaming_app.tables.table_creation import existing_tables
from tests.support.s3_server import S3Server, s3_server
from tests.support.warehouses import arrow_schema, make_warehouse

NAME = "log_ends"
pytestmark = pytest.mark.slow  # a store, and other processes that write


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    server.use(monkeypatch.setenv)
    return server


@pytest.fixture
def directory(store: S3Server, tmp_path: Path) -> Path:
    """The files of an empty table in the store."""
    return create(store.root / uuid4().hex / NAME, tmp_path / "warehouse")


@pytest.fixture
def place(store: S3Server, directory: Path) -> Location:
    return Location.of(store.uri(directory.relative_to(store.root).as_posix()))


def create(table: Path, warehouse: Path) -> Path:
    return Path(shutil.copytree(make_warehouse(warehouse) / NAME, table))


def rows(*topics: str) -> pa.Table:
    values = [{"cluster": "default", "topic": topic, "partition": 0} for topic in topics]
    return pa.Table.from_pylist(values, arrow_schema(NAME))


def topics(place: Location) -> list[str]:
    """Return what a process that has not opened the table finds in it."""
    found = DeltaTable(str(place), storage_options=place.storage_options).to_pyarrow_table()
    return sorted(found["topic"].to_pylist())


def append_as_other(place: Location, topic: str, *transactions: Transaction) -> None:
    write_deltalake(
        str(place),
        rows(topic),
        mode="append",
        storage_options=place.storage_options,
        commit_properties=CommitProperties(app_transactions=list(transactions)),
    )


def versions(directory: Path) -> list[int]:
    return sorted(int(file.stem) for file in (directory / "_delta_log").glob("*.json") if file.stem.isdecimal())


def files(table: DeltaTable) -> list[str]:
    return sorted(table.file_uris())


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_write_reads_only_what_is_new_whatever_was_committed_before(
    store: S3Server, place: Location, *, is_checked: bool
) -> None:
    table, counts = RustTable(place, "default", Fence("default", 1), is_checked=is_checked), []
    for number in range(30):
        with store.counted() as requests:
            table.append(rows(f"{number}"), BatchId(["app"], number))
        counts.append(requests)
    assert counts[1] == counts[-1] == {"PUT": 2, "LIST": 2, "GET": 5}
    assert len(topics(place)) == 30
    with store.counted() as requests:
        assert newest_table(place).version() == 30 + 1
    assert requests == {"GET": 2}, "nothing was written, and nothing is read again"


def test_a_job_checks_what_others_do_to_a_table_after_a_time_and_a_command_always(
    store: S3Server, directory: Path, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(kept_table, "monotonic", lambda: now)
    table = RustTable(place, "default", Fence("default", 1))
    table.append(rows("a"))
    version = table.open().version()
    append_as_other(place, "b")
    with store.counted() as requests:
        now += KNOWN_SECONDS - 1
        assert table.open().version() == version
        table.table_id()
    assert requests == {}
    assert RustTable(place, "default").open().version() == version + 1
    append_as_other(place, "c")
    table.append(rows("d"))
    assert table.open().version() == version + 3, "a write finds all"
    append_as_other(place, "e")
    now += KNOWN_SECONDS
    assert table.open().version() == version + 4
    append_as_other(place, "f")
    table.forget()
    assert table.open().version() == version + 5, "at a start of a query nothing is taken as known"
    shutil.rmtree(directory)
    assert table.table_id() is not None
    now += KNOWN_SECONDS
    assert table.table_id() is None


def test_what_the_maintenance_of_a_job_commits_is_known_to_its_readers(place: Location) -> None:
    table = RustTable(place, "default", Fence("default", 1))
    for topic in "abc":
        table.append(rows(topic))
    table.open()
    MaintainedTable(table).maintain()
    assert table.open().version() == place.delta_table().version()


@pytest.mark.parametrize("others", [1, 2])
def test_a_batch_that_another_process_has_written_meanwhile_is_not_written_again(place: Location, others: int) -> None:
    table = RustTable(place, "default")
    assert table.append(rows("a"), BatchId(["app"], 1)) == 2
    append_as_other(place, "b", Transaction("app", 2))
    for _ in range(others - 1):
        append_as_other(place, "c")
    table.append(rows("again"), BatchId(["app"], 2))
    table.append(rows("d"), BatchId(["app"], 3))
    assert topics(place) == ["a", "b", *"c" * (others - 1), "d"]


def test_a_later_job_that_claims_the_table_during_a_write_is_not_overwritten(place: Location) -> None:
    table, calls = RustTable(place, "default", Fence("default", 1)), 0
    table.append(rows("a"))

    def write(target: DeltaTable, commit: CommitOptions) -> None:
        nonlocal calls
        calls += 1
        Fence("default", 2).claim([place])
        newest_table(place)  # as other threads of this process do all the time
        write_deltalake(target, rows("b"), mode="append", **commit)

    with pytest.raises(OtherOwnerError):
        table.change(write)
    assert calls == 1
    assert topics(place) == ["a"]


def test_a_reader_does_not_move_the_table_that_is_being_written(place: Location) -> None:
    table, seen = RustTable(place, "default"), []
    table.append(rows("a"))

    def write(target: DeltaTable, commit: CommitOptions) -> None:
        append_as_other(place, "b")
        before = target.version()
        assert newest_table(place).version() == before + 1
        seen.append(target.version() == before)
        target.delete("topic = 'a'", **commit)

    table.change(write)
    assert seen == [True]
    assert topics(place) == ["b"]


def test_whatever_two_processes_write_the_table_is_as_one_that_is_opened(place: Location) -> None:
    table, order = RustTable(place, "default"), random.Random(7)  # noqa: S311 - no secret
    table.append(rows("a"))
    for number in range(40):
        name = f"{number % 9}"
        kind = order.choice(["append", "other", "two others", "replace", "delete", "compact", "checkpoint"])
        if kind == "append":
            table.append(rows(name))
        elif kind == "replace":
            table.replace(rows(name), f"topic = '{name}'")
        elif kind == "delete":
            table.delete(f"topic = '{name}'")
        elif kind == "compact":
            MaintainedTable(table).maintain()
        elif kind == "checkpoint":
            place.delta_table().create_checkpoint()
        else:
            for _ in range(1 + (kind == "two others")):
                append_as_other(place, name)
        kept, opened = newest_table(place), place.delta_table()
        assert kept.version() == opened.version(), (number, kind)
        assert files(kept) == files(opened), (number, kind)
        assert pa.schema(kept.schema().to_arrow()) == pa.schema(opened.schema().to_arrow())


@pytest.mark.parametrize("commits", [0, 2, 7])
def test_a_table_that_was_created_again_is_written_as_it_is(
    commits: int, directory: Path, place: Location, tmp_path: Path
) -> None:
    table = RustTable(place, "default")
    for number in range(2):
        table.append(rows("lost"), BatchId(["app"], number))
    newest_table(place)
    shutil.rmtree(directory)
    create(directory, tmp_path / "again")
    for _ in range(commits):
        append_as_other(place, "new")
    assert newest_table(place).version() == 1 + commits
    table.append(rows("own"), BatchId(["app"], 1))
    assert topics(place) == [*["new"] * commits, "own"]
    assert versions(directory) == list(range(commits + 3))


def test_a_table_that_was_restored_from_a_copy_is_written_as_it_is(
    directory: Path, place: Location, tmp_path: Path
) -> None:
    table = RustTable(place, "default")
    table.append(rows("a"), BatchId(["app"], 1))
    shutil.copytree(directory, tmp_path / "copy")
    table.append(rows("b"), BatchId(["app"], 2))
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "copy", directory)
    table.append(rows("b, repeated"), BatchId(["app"], 2))
    assert topics(place) == ["a", "b, repeated"]
    assert versions(directory) == [0, 1, 2, 3]


@pytest.mark.parametrize("is_written", [True, False])
def test_a_batch_whose_commit_failed_is_written_once(
    is_written: bool, store: S3Server, directory: Path, place: Location
) -> None:
    table = RustTable(place, "default", Fence("default", 1))
    table.append(rows("a"), BatchId(["app"], 1))
    with (
        store.refusing_commits(but_written=is_written),
        pytest.raises(OSError, match="as the test wants it"),
    ):
        table.append(rows("b"), BatchId(["app"], 2))
    table.append(rows("b"), BatchId(["app"], 2))
    table.append(rows("c"), BatchId(["app"], 3))
    assert topics(place) == ["a", "b", "c"]
    assert versions(directory) == [0, 1, 2, 3, 4]


CREATES = """
import sys
from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import create_missing

create_missing(Location.of(sys.argv[1]), ())
"""


def test_jobs_of_several_clusters_may_create_one_warehouse_at_the_same_moment(store: S3Server) -> None:
    uri = store.uri(uuid4().hex)
    both = [Popen([sys.executable, "-c", CREATES, uri], stderr=PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1] for process in both] == [""] * len(both)
    assert {one.name for one in tables()} == existing_tables(Location.of(uri)).keys()
