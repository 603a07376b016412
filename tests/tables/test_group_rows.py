"""Rows of groups are replaced in files with ranges of group ids, by delta-rs or Spark, whoever wrote the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, TableFeatures
from deltalake.schema import PrimitiveType

from streaming_app.tables import group_files, group_rows
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import Batch, RustTable
from streaming_app.tables.writer import TableWriter
from tests.support.frames import limit_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = range(40)


def rows(path: Path, states: Mapping[str, str]) -> pa.Table:
    """Return rows of groups in these states; every other column is null."""
    schema = pa.schema(DeltaTable(path / "groups").schema().to_arrow())
    values = {"cluster": ["default"] * len(states), "group_id": list(states), "state": list(states.values())}
    arrays = [pa.array(values.get(f.name, [None] * len(states)), f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def states(path: Path) -> list[tuple[str, str]]:
    found = WarehouseReader(path).rows("SELECT group_id, state FROM groups ORDER BY group_id, state")
    return [(row["group_id"], row["state"]) for row in found]


def modes(path: Path) -> list[str]:
    """Return how the versions of the table were written, the first one first: rows of Spark's replace all others."""
    return [commit["operationParameters"].get("mode", "") for commit in DeltaTable(path / "groups").history()[::-1]]


def ranges(path: Path) -> list[tuple[str, str]]:
    """Return the first and the last group id of each file, in order."""
    files = pa.table(DeltaTable(path / "groups").get_add_actions()).to_pylist()
    return sorted((file["min"]["group_id"], file["max"]["group_id"]) for file in files)


def are_separate(found: Sequence[tuple[str, str]]) -> bool:
    return all(last < first for (_, last), (first, _) in pairwise(found))


@pytest.fixture
def writer(spark: SparkSession, empty_warehouse: Path) -> TableWriter:
    return TableWriter(spark, str(empty_warehouse), "default")


@pytest.fixture
def few(writer: TableWriter, monkeypatch: pytest.MonkeyPatch) -> GroupRows:
    """Files have ten rows at most, and the rows of a few are in memory at a time."""
    monkeypatch.setattr(group_files, "FILE_ROWS", 10)
    monkeypatch.setattr(group_rows, "_AT_A_TIME", 20_000)
    return GroupRows(writer)


def replace(few: GroupRows, path: Path, changes: Mapping[str, str], removed: Sequence[str] = ()) -> None:
    few.replace(rows(path, changes), [*changes, *removed])


def numbered(numbers: Iterable[int] = NUMBERS, state: str = "Empty") -> dict[str, str]:
    return {f"g{number:02}": state for number in numbers}


def leave_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_driver(monkeypatch, rewritten=0)


def test_groups_are_replaced_in_one_commit_and_only_their_files_change(few: GroupRows, empty_warehouse: Path) -> None:
    path = empty_warehouse
    replace(few, path, numbered())
    files, before, versions = set(DeltaTable(path / "groups").file_uris()), ranges(path), len(modes(path))
    assert before == [("g00", "g09"), ("g10", "g19"), ("g20", "g29"), ("g30", "g39")]
    changes = {"g01": "Stable", "g05": "Stable", "g14": "Dead"}
    replace(few, path, changes, removed=["g27"])
    left = [f"g{number:02}" for number in NUMBERS if number != 27]
    assert states(path) == [(group, changes.get(group, "Empty")) for group in left]
    assert ranges(path) == before
    assert len(files & set(DeltaTable(path / "groups").file_uris())) == 1
    assert modes(path)[versions:] == ["Append"]
    assert few.version("groups") == DeltaTable(path / "groups").version()


def test_rows_are_found_and_replaced_without_a_query_and_each_file_is_read_once(
    few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = empty_warehouse, list[str]()
    replace(few, path, numbered())
    original = pq.ParquetFile.read

    def counted(self: pq.ParquetFile, **options: bool) -> pa.Table:
        found = original(self, **options)
        read.append(found["group_id"][0].as_py())
        return found

    with monkeypatch.context() as patched:
        patched.setattr(group_rows, "QueryBuilder", Mock(side_effect=AssertionError("a query")))
        patched.setattr(pq.ParquetFile, "read", counted)
        found = few.find("group_id", ["g01", "g05", "g14", "new"])
        replace(few, path, {"g01": "Stable", "g05": "Stable", "g14": "Dead", "new": "Empty"})
    assert sorted(found["group_id"].to_pylist()) == ["g01", "g05", "g14"]
    assert sorted(read) == ["g00", "g10", "g30"]
    changes = {"g01": "Stable", "g05": "Stable", "g14": "Dead"}
    assert states(path) == [*((group, changes.get(group, "Empty")) for group in numbered()), ("new", "Empty")]


@pytest.mark.parametrize("kind", ["large", "lacks a column", "needs a feature", "not sorted", "many at once"])
def test_files_that_pyarrow_does_not_read_as_the_table_says_are_queried(
    kind: str, few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = empty_warehouse
    if kind == "not sorted":
        RustTable(Location.of(path / "groups"), "default").append(rows(path, dict(reversed(numbered().items()))))
    else:
        replace(few, path, numbered())
    alter = DeltaTable(path / "groups").alter
    if kind == "large":
        monkeypatch.setattr(group_rows, "_AT_A_TIME", 1)
    elif kind == "many at once":
        monkeypatch.setattr(group_rows, "_KEPT_BYTES", 1)
    elif kind == "lacks a column":
        alter.add_columns(Field("later", PrimitiveType("string")))
    elif kind == "needs a feature":
        alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    changes = {"g01": "Stable", "g05": "Stable", "g14": "Dead", "g27b": "Empty"}
    found = few.find("group_id", [*changes])
    assert sorted(found["group_id"].to_pylist()) == ["g01", "g05", "g14"]
    assert found.schema == pa.schema(DeltaTable(path / "groups").schema().to_arrow())
    replace(few, path, changes, removed=["g02"])
    assert states(path) == sorted({**numbered(), **changes}.items() - {("g02", "Empty")})
    assert are_separate(ranges(path))


def test_new_groups_go_into_the_files_next_to_them_which_are_divided(few: GroupRows, empty_warehouse: Path) -> None:
    path = empty_warehouse
    replace(few, path, numbered(range(10, 30)))
    replace(few, path, {"a": "Empty", "g15b": "Empty", "z": "Empty"})
    assert ranges(path) == [("a", "g14"), ("g15", "g19"), ("g20", "g25"), ("g26", "z")]
    assert len(states(path)) == 23
    for number in range(100):  # one by one, in an order that only fills the last file
        replace(few, path, {f"h{number:03}": "Empty"})
    found = ranges(path)
    assert are_separate(found)
    assert len(found) < 30
    assert len(states(path)) == 123


def test_spark_replaces_what_would_rewrite_much_and_leaves_such_files_too(
    few: GroupRows, empty_warehouse: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = empty_warehouse
    replace(few, path, numbered())
    with monkeypatch.context() as limited:
        leave_to_spark(limited)
        replace(few, path, {"g03": "Stable", "g05": "Stable", "new": "Empty"}, removed=["g07"])
    replace(few, path, {"g03": "NotReady", "g04": "NotReady"}, removed=["g08"])
    changed = {"g03": "NotReady", "g04": "NotReady", "g05": "Stable"}
    left = [*(f"g{number:02}" for number in NUMBERS if number not in {7, 8}), "new"]
    assert states(path) == [(group, changed.get(group, "Empty")) for group in left]
    assert modes(path)[-3:] == ["Append", "Overwrite", "Append"]
    assert are_separate(ranges(path))
    assert len(ranges(path)) >= 4
    assert not list((path / "groups").glob("deletion_vector*.bin"))
    assert few.version("groups") == DeltaTable(path / "groups").version()
    seen = spark.newSession().read.format("delta").load(str(path / "groups")).collect()
    assert sorted((row["group_id"], row["state"]) for row in seen) == states(path)


def test_rows_of_a_cluster_of_any_name_are_replaced_by_both_writers_and_those_of_others_stay(
    writer: TableWriter, empty_warehouse: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cluster, few = empty_warehouse, "o'ther a%20b=c:d/é", GroupRows(writer)
    replace(few, path, {"g00": "Empty"})
    other, own = GroupRows(TableWriter(spark, str(path), cluster)), rows(path, numbered(range(3), "Stable"))
    own = own.set_column(own.schema.get_field_index("cluster"), own.field("cluster"), [[cluster] * 3])
    other.replace(own, own["group_id"].to_pylist())
    with monkeypatch.context() as limited:
        leave_to_spark(limited)
        other.replace(own, own["group_id"].to_pylist())
        replace(few, path, {"g00": "NotReady"})
    assert modes(path)[-2:] == ["Overwrite"] * 2
    monkeypatch.setattr(group_rows, "QueryBuilder", Mock(side_effect=AssertionError("a query")))
    found = other.find("group_id", ["g00", "g02"])
    assert found["group_id"].to_pylist() == ["g00", "g02"]
    other.replace(found, ["g00", "g01", "g02"])
    assert states(path) == [("g00", "NotReady"), ("g00", "Stable"), ("g02", "Stable")]


def test_ids_that_begin_alike_or_oddly_are_found_in_their_files(
    few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, alike = empty_warehouse, "com.example.department.of.streams." * 3
    odd = ["", "'", "\\", "\U0001f600", "\U0010ffff", "a\nb", "%", *(f"{alike}{number:02}" for number in NUMBERS)]
    replace(few, path, dict.fromkeys(odd, "Empty"))
    with monkeypatch.context() as limited:
        leave_to_spark(limited)
        replace(few, path, {alike: "Empty"})
    assert are_separate(ranges(path))
    assert len(ranges(path)) >= 5
    for group in (*odd, alike):
        replace(few, path, {group: "Stable"})
    assert dict(states(path)) == dict.fromkeys((*odd, alike), "Stable")
    assert len(states(path)) == len(odd) + 1
    assert are_separate(ranges(path))


def test_files_whose_ranges_overlap_get_ranges_of_their_own_when_they_are_rewritten_or_compacted(
    few: GroupRows, empty_warehouse: Path, writer: TableWriter
) -> None:
    path, own = empty_warehouse, RustTable(Location.of(empty_warehouse / "groups"), "default")
    for rewrite in (lambda: replace(few, path, {"g11": "Stable"}), lambda: writer.compact("groups")):
        replace(few, path, {}, removed=[*numbered()])
        for first in range(4):  # files with ids from the whole range
            own.append(rows(path, numbered(NUMBERS[first::4], "Stable")))
        assert not are_separate(ranges(path))
        rewrite()
        assert are_separate(ranges(path))
        assert states(path) == [*numbered(state="Stable").items()]
    version = DeltaTable(path / "groups").version()
    writer.compact("groups")  # has nothing to do
    assert DeltaTable(path / "groups").version() == version


def test_a_commit_of_another_process_meanwhile_is_no_failure(
    few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = empty_warehouse
    replace(few, path, {"a": "Empty", "b": "Empty"})
    open_table, opened = Location.delta_table, []

    def overtake(self: Location) -> DeltaTable:
        opened.append(open_table(self))
        if len(opened) == 1:
            DeltaTable(path / "groups").update(updates={"state": "'Dead'"}, predicate="group_id = 'b'")
        return opened[-1]

    monkeypatch.setattr(Location, "delta_table", overtake)
    replace(few, path, {"a": "Stable"})
    assert len(opened) == 2
    assert states(path) == [("a", "Stable"), ("b", "Dead")]


def test_only_rows_of_the_own_cluster_say_how_far_the_history_reaches(
    spark: SparkSession, empty_warehouse: Path
) -> None:
    schema = pa.schema(DeltaTable(empty_warehouse / "quarantine").schema().to_arrow())
    for number, (cluster, offset) in enumerate((("default", 5), ("other", 70))):
        values = {"cluster": cluster, "topic": "t", "partition": 0, "offset": offset, "error_kind": "LeftoverRecord"}
        row = pa.Table.from_pylist([values], schema)
        RustTable(Location.of(empty_warehouse / "quarantine"), cluster).append(row, Batch(["app"], number))
    own = TableWriter(spark, str(empty_warehouse), "default")
    for where in (None, "key IS NULL OR error_kind = 'LeftoverRecord'"):
        assert own.table("quarantine").select('max("offset")', where).column(0)[0].as_py() == 5
