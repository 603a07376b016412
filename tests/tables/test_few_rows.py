"""A few rows written by delta-rs give the same table as Spark would, whoever wrote the files before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_app.tables import delta_writer, few_rows, table_creation
from streaming_app.tables.delta_writer import DeltaWriter
from streaming_app.tables.few_rows import FewRowsWriter, FileRange, _plan_commits
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import Batch, RustTable

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
    """Return the groups and their states, doubles included."""
    found = WarehouseReader(path).rows("SELECT group_id, state FROM groups ORDER BY group_id, state")
    return [(row["group_id"], row["state"]) for row in found]


def engines(path: Path) -> list[str]:
    """Return what wrote the versions of the table, the first one first."""
    return [commit["engineInfo"][:8] for commit in DeltaTable(path / "groups").history()[::-1]]


def ranges(path: Path) -> list[tuple[str, str]]:
    """Return the first and the last group id of each file, in order."""
    files = pa.table(DeltaTable(path / "groups").get_add_actions()).to_pylist()
    return sorted((file["min"]["group_id"], file["max"]["group_id"]) for file in files)


def are_separate(found: Sequence[tuple[str, str]]) -> bool:
    return all(last < first for (_, last), (first, _) in pairwise(found))


def leave_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_SMALL_TABLE_BYTES", "_REWRITTEN_BYTES"):
        monkeypatch.setattr(few_rows, limit, 0)


@pytest.fixture
def writer(spark: SparkSession, empty_warehouse: Path) -> DeltaWriter:
    return DeltaWriter(spark, str(empty_warehouse), "default")


def replace(few: FewRowsWriter, path: Path, changes: Mapping[str, str], removed: Sequence[str] = ()) -> None:
    few.replace_groups(rows(path, changes), [*changes, *removed])


def test_rows_that_spark_marked_as_deleted_do_not_come_back(
    writer: DeltaWriter, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = empty_warehouse, FewRowsWriter(writer)
    few.add_groups(rows(path, {f"g{number:02}": "Empty" for number in NUMBERS}))
    with monkeypatch.context() as limited:
        leave_to_spark(limited)
        replace(few, path, {"g03": "Stable", "g05": "Stable"}, removed=["g07"])
    assert list((path / "groups").glob("deletion_vector*.bin"))
    replace(few, path, {"g03": "NotReady", "g04": "NotReady"}, removed=["g08"])
    changed = {"g03": "NotReady", "g04": "NotReady", "g05": "Stable"}
    left = [f"g{number:02}" for number in NUMBERS if number not in {7, 8}]
    assert states(path) == [(group, changed.get(group, "Empty")) for group in left]
    assert engines(path)[-3:] == ["delta-rs", "Apache-S", "delta-rs"]
    assert few.version("groups") == DeltaTable(path / "groups").version()


def test_rows_of_other_clusters_stay(writer: DeltaWriter, empty_warehouse: Path, spark: SparkSession) -> None:
    path, few = empty_warehouse, FewRowsWriter(writer)
    few.add_groups(rows(path, {"g": "Empty"}))
    other = FewRowsWriter(DeltaWriter(spark, str(path), "other"))
    own = rows(path, {"g": "Stable"})
    other.replace_groups(
        own.set_column(own.schema.get_field_index("cluster"), own.field("cluster"), [["other"]]), ["g"]
    )
    replace(few, path, {"g": "Dead"})
    assert states(path) == [("g", "Dead"), ("g", "Stable")]


def test_a_compacted_table_has_small_files_with_ranges_of_group_ids(
    writer: DeltaWriter, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = empty_warehouse, FewRowsWriter(writer)
    for first in range(4):  # files with ids from the whole range
        few.add_groups(rows(path, {f"g{number:02}": "Empty" for number in NUMBERS[first::4]}))
    before = states(path)
    monkeypatch.setattr(delta_writer, "_GROUP_FILE_BYTES", 10 << 10)
    writer.compact("groups")
    assert len(ranges(path)) > 2
    assert are_separate(ranges(path))
    largest = max(pa.table(DeltaTable(path / "groups").get_add_actions())["size_bytes"].to_pylist())
    monkeypatch.setattr(few_rows, "_SMALL_TABLE_BYTES", 0)
    monkeypatch.setattr(few_rows, "_REWRITTEN_BYTES", largest)
    replace(few, path, {"g11": "Stable"})
    assert engines(path)[-1] == "delta-rs"  # as it touches one file only
    assert states(path) == [(group, "Stable" if group == "g11" else state) for group, state in before]


def test_groups_in_several_files_are_replaced_and_each_file_keeps_its_range(
    writer: DeltaWriter, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = empty_warehouse, FewRowsWriter(writer)
    for first in range(0, len(NUMBERS), 10):
        few.add_groups(rows(path, {f"g{number:02}": "Empty" for number in NUMBERS[first : first + 10]}))
    before, versions = ranges(path), len(engines(path))
    monkeypatch.setattr(few_rows, "_SMALL_TABLE_BYTES", 0)
    changes = {"g01": "Stable", "g05": "Stable", "g14": "Dead", "g39": "NotReady"}
    replace(few, path, changes, removed=["g27"])
    left = [f"g{number:02}" for number in NUMBERS if number != 27]
    assert states(path) == [(group, changes.get(group, "Empty")) for group in left]
    assert ranges(path) == [*before[:3], ("g30", "g39")]
    assert are_separate(ranges(path))
    assert engines(path)[versions:] == ["delta-rs"] * 4
    assert few.version("groups") == DeltaTable(path / "groups").version()


@pytest.mark.parametrize(
    ("group_ids", "commits"),
    [
        (["a", "b"], [["a", "b"]]),  # both can only be in the first file
        (["a", "n"], [["a"], ["n"]]),
        (["x", "y"], [["x"], ["y"]]),  # each may be in either of two files: they may be in different ones
        (["~1", "a", "~2"], [["~1", "~2"], ["a"]]),  # new groups
        ([f"w{number}" for number in range(9)], []),
    ],
)
def test_groups_share_a_commit_if_they_share_their_only_file(group_ids: list[str], commits: list[list[str]]) -> None:
    files = [FileRange("a", "m", 300_000), FileRange("n", "z", 300_000), FileRange("w", "z", 1_000)]
    assert _plan_commits(files, group_ids) == commits


def test_a_batch_that_would_rewrite_much_is_left_to_spark() -> None:
    files = [FileRange("a", "m", 600_000), FileRange("n", None, 600_000)]
    assert _plan_commits(files, ["a"]) == [["a"]]
    assert _plan_commits(files, ["a", "n"]) == []
    assert _plan_commits(None, ["a"]) == []


def test_all_groups_of_a_small_table_are_replaced_at_once() -> None:
    files = [FileRange("a", "m", 1_000), FileRange(None, None, 1_000)]
    group_ids = [f"g{number}" for number in range(50)]
    assert _plan_commits(files, group_ids) == [group_ids]


def test_a_table_of_many_groups_keeps_large_files(
    writer: DeltaWriter, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = empty_warehouse, FewRowsWriter(writer)
    for first in range(4):
        few.add_groups(rows(path, {f"g{number:02}": "Empty" for number in NUMBERS[first::4]}))
    monkeypatch.setattr(delta_writer, "_GROUP_FILE_BYTES", 10 << 10)
    monkeypatch.setattr(delta_writer, "_LARGE_TABLE_BYTES", 1)
    writer.compact("groups")
    assert len(DeltaTable(path / "groups").file_uris()) == 1


def test_a_deleted_table_is_not_created_by_a_write(empty_warehouse: Path, writer: DeltaWriter) -> None:
    few, batch = FewRowsWriter(writer), rows(empty_warehouse, {"g": "Empty"})
    (empty_warehouse / "groups").rename(empty_warehouse / "elsewhere")
    for write in (few.add_groups, lambda one: few.replace_groups(one, ["g"])):
        with pytest.raises(Exception, match=r"(?i)no such|not a delta table|no files|not found"):
            write(batch)
    assert not (empty_warehouse / "groups" / "_delta_log").exists()


def test_a_commit_of_another_process_meanwhile_is_no_failure(
    writer: DeltaWriter, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = empty_warehouse, FewRowsWriter(writer)
    few.add_groups(rows(path, {"a": "Empty", "b": "Empty"}))
    open_table, opened = RustTable.open, []

    def overtake(self: RustTable) -> DeltaTable:
        opened.append(open_table(self))
        if len(opened) == 1:
            DeltaTable(path / "groups").update(updates={"state": "'Dead'"}, predicate="group_id = 'b'")
        return opened[-1]

    monkeypatch.setattr(RustTable, "open", overtake)
    replace(few, path, {"a": "Stable"})
    assert len(opened) == 2
    assert states(path) == [("a", "Stable"), ("b", "Dead")]


def test_checkpoints_of_the_log_keep_what_spark_marked_as_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table_creation._PROPERTIES, "delta.checkpointInterval", "2")
    writer = DeltaWriter(spark, str(tmp_path), "default")
    writer.prepare()
    few = FewRowsWriter(writer)
    few.add_groups(rows(tmp_path, {f"g{number:02}": "Empty" for number in NUMBERS}))
    with monkeypatch.context() as limited:
        leave_to_spark(limited)
        replace(few, tmp_path, {}, removed=["g07", "g08"])
    expected = states(tmp_path)
    for number in range(5):
        few.add_groups(rows(tmp_path, {f"h{number}": "Empty"}))
    expected += [(f"h{number}", "Empty") for number in range(5)]
    log = tmp_path / "groups" / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    assert len(checkpoints) >= 2
    last = int(checkpoints[-1].name[:20])
    for commit in log.glob("*.json"):
        if int(commit.name[:20]) < last:
            commit.unlink()  # what is before a checkpoint is read from it
    assert states(tmp_path) == expected
    seen = spark.newSession().read.format("delta").load(str(tmp_path / "groups")).collect()
    assert sorted((row["group_id"], row["state"]) for row in seen) == expected


def test_only_rows_of_the_own_cluster_say_how_far_the_history_reaches(
    spark: SparkSession, empty_warehouse: Path
) -> None:
    schema = pa.schema(DeltaTable(empty_warehouse / "quarantine").schema().to_arrow())
    for number, (cluster, offset) in enumerate((("default", 5), ("other", 70))):
        values = {"cluster": cluster, "topic": "t", "partition": 0, "offset": offset, "error_kind": "LeftoverRecord"}
        row = pa.Table.from_pylist([values], schema)
        RustTable(Location.of(empty_warehouse / "quarantine"), cluster).append(row, Batch(["app"], number))
    own = DeltaWriter(spark, str(empty_warehouse), "default")
    for where in (None, "key IS NULL OR error_kind = 'LeftoverRecord'"):
        assert own.highest_offsets("quarantine", "partition", "timestamp", where=where) == {0: 5}
