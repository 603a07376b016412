"""Writes by delta-rs: each once, again after a conflict, one at a time in this process."""

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_app.tables import rust_table
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId, CommitOptions, RustTable
from tests.support.locks import WatchedLock
from tests.support.warehouses import arrow_schema, make_warehouse

NAME = "log_ends"


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


def overtaken(monkeypatch: pytest.MonkeyPatch, warehouse: Path) -> list[DeltaTable]:
    """Let another process change all rows between the opening of the table and the first commit."""
    opened: list[DeltaTable] = []
    open_table = Location.delta_table

    def overtake(self: Location) -> DeltaTable:
        opened.append(open_table(self))
        if len(opened) == 1:
            DeltaTable(warehouse / NAME).update(updates={"partition": "7"})
        return opened[-1]

    monkeypatch.setattr(Location, "delta_table", overtake)
    return opened


def test_a_batch_is_appended_once(table: RustTable, warehouse: Path) -> None:
    versions = [table.append(rows(f"batch {number}"), BatchId(["app"], number)) for number in (4, 4, 3, 5)]
    assert versions == [2, 2, 2, 3]
    table.append(rows("a"), BatchId(["first", "second"], 4))  # it is noted for each of its writers
    table.append(rows("b"), BatchId(["second"], 4))
    assert topics(warehouse) == ["a", "batch 4", "batch 5"]


@pytest.mark.parametrize(
    ("write", "left"),
    [
        (lambda table: table.replace(rows("a"), "topic = 'a'"), ["a", "b"]),
        (lambda table: table.delete("topic = 'a'"), ["b"]),
        (lambda table: MaintainedTable(table).maintain(), ["a", "b"]),
    ],
)
def test_a_write_that_another_process_has_overtaken_is_done_again(
    write: Callable[[RustTable], Any],
    left: list[str],
    table: RustTable,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table.append(rows("a", "b"))
    opened = overtaken(monkeypatch, warehouse)
    write(table)
    assert opened
    assert topics(warehouse) == left


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


def test_two_writers_of_a_table_write_one_after_the_other(
    table: RustTable, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = defaultdict[str, WatchedLock](WatchedLock)
    monkeypatch.setattr(rust_table, "_LOCKS", locks)
    began, went_on = threading.Event(), threading.Event()
    order: list[str] = []

    def slow(target: DeltaTable, _: CommitOptions) -> None:
        began.set()
        assert went_on.wait(300)
        order.append("first")
        target.delete("topic = 'a'")

    first = threading.Thread(target=table.change, args=(slow,))
    first.start()
    assert began.wait(300)
    other = RustTable(table.location, "default")
    second = threading.Thread(target=other.change, args=(lambda *_: order.append("second"),))
    assert locks[str(table.location)].holds_up(second)
    RustTable(Location.of(warehouse / "task_copies"), "default").delete()  # another table is free
    assert order == []
    went_on.set()
    first.join()
    second.join()
    assert order == ["first", "second"]
