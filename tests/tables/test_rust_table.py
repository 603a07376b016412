"""Writes by delta-rs: each once, one at a time in this process, and again only if another commit came first."""

from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from streaming_app.tables import kept_table, rust_table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId, CommitOptions, RustTable
from tests.support.warehouses import arrow_schema, make_warehouse

NAME = "log_ends"
ATTEMPTS = 12


def rows(*topics: str, cluster: str = "default") -> pa.Table:
    values = [{"cluster": cluster, "topic": topic, "partition": 0} for topic in topics]
    return pa.Table.from_pylist(values, arrow_schema(NAME))


def topics(warehouse: Path) -> list[str]:
    found = WarehouseReader(warehouse).rows(f"SELECT topic FROM {NAME} ORDER BY topic")
    return [row["topic"] for row in found]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path)


@pytest.fixture
def table(warehouse: Path) -> RustTable:
    return RustTable(Location.of(warehouse / NAME), "default")


def test_a_batch_is_appended_once(table: RustTable, warehouse: Path) -> None:
    versions = [table.append(rows(f"batch {number}"), BatchId(["app"], number)) for number in (4, 4, 3, 5)]
    assert versions == [2, 2, 2, 3]
    table.append(rows("a"), BatchId(["first", "second"], 4))  # it is noted for each of its writers
    table.append(rows("b"), BatchId(["second"], 4))
    assert topics(warehouse) == ["a", "batch 4", "batch 5"]


def test_rows_are_deleted_by_their_key_of_which_a_part_may_be_null(table: RustTable, warehouse: Path) -> None:
    table.append(rows("a", "b"))
    nulls = pa.Table.from_pylist([{"cluster": "default", "topic": topic} for topic in "ab"], rows().schema)
    table.append(nulls)
    table.delete_rows(pa.concat_tables([rows("a", "other"), nulls.slice(1)]), ["cluster", "topic", "partition"])
    found = WarehouseReader(warehouse).rows(f"SELECT topic, partition FROM {NAME} ORDER BY topic")
    assert [tuple(row.values()) for row in found] == [("a", None), ("b", 0)]
    version = table.delete_rows(rows("a"), ["cluster", "topic", "partition"])
    assert topics(warehouse) == ["a", "b"]
    assert version == DeltaTable(warehouse / NAME).version()


def test_rows_of_other_clusters_stay(table: RustTable, warehouse: Path) -> None:
    other = RustTable(Location.of(warehouse / NAME), "other")
    table.append(rows("a"))
    other.append(rows("a", "b", cluster="other"))
    table.replace(rows("c"))
    other.delete("topic = 'a'")
    MaintainedTable(table).maintain()
    assert topics(warehouse) == ["b", "c"]


def test_while_a_table_is_written_other_writers_of_it_wait_and_those_of_other_tables_do_not(
    table: RustTable, warehouse: Path
) -> None:
    held = list[bool]()

    def write(_target: DeltaTable, _commit: CommitOptions) -> None:
        held.append(rust_table._LOCKS[str(RustTable(table.location, "other").location)].locked())
        RustTable(Location.of(warehouse / "task_copies"), "default").delete()

    table.change(write)
    assert held == [True]


@pytest.fixture
def place(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(kept_table, "_PAUSE_SECONDS", (0.0, 0.001))
    return Location.of(warehouse / NAME)


@pytest.mark.parametrize(("stop_at", "expected"), [(None, ATTEMPTS), (3, 3)], ids=["for ever", "until the job ends"])
def test_a_commit_that_is_always_overtaken_is_tried_a_dozen_times_and_not_once_the_job_ends(
    place: Location, stop_at: int | None, expected: int
) -> None:
    stop, other, attempts = Event(), Fence("other", 1), list[int]()

    def write(_target: DeltaTable, _commit: CommitOptions) -> None:
        attempts.append(1)
        if len(attempts) == stop_at:
            stop.set()
        other.claim([place])
        raise CommitFailedError("overtaken")

    with pytest.raises(OSError, match="Cannot write the table log_ends: overtaken"):
        RustTable(place, "default", Fence("default", 1, stop)).change(write)
    assert len(attempts) == expected


def test_an_error_of_a_commit_that_nobody_overtook_is_raised_at_once(place: Location) -> None:
    attempts = list[int]()

    def write(_target: DeltaTable, _commit: CommitOptions) -> None:
        attempts.append(1)
        raise CommitFailedError("Unsupported table features required")

    with pytest.raises(OSError, match="Unsupported table features"):
        RustTable(place, "default").change(write)
    assert attempts == [1]
