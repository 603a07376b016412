"""Rows of groups are replaced in files with ranges of group ids, whoever wrote the files."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, TableFeatures
from deltalake.schema import PrimitiveType

from streaming_app.tables import group_files, group_rows
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId, RustTable
from streaming_app.tables.table_files import TableFiles
from tests.support.warehouses import make_warehouse

NUMBERS = range(40)


def rows(path: Path, states: Mapping[str, str], cluster: str = "default") -> pa.Table:
    """Return rows of groups in these states; every other column is null."""
    return group_table(path, cluster).to_table({"group_id": one, "state": state} for one, state in states.items())


def states(path: Path) -> list[tuple[str, str]]:
    found = WarehouseReader(path).rows("SELECT group_id, state FROM groups ORDER BY group_id, state")
    return [(row["group_id"], row["state"]) for row in found]


def ranges(path: Path) -> list[tuple[str, str]]:
    """Return the first and the last group id of each file, in order."""
    files = pa.table(DeltaTable(path / "groups").get_add_actions()).to_pylist()
    return sorted((file["min"]["group_id"], file["max"]["group_id"]) for file in files)


def are_separate(found: Sequence[tuple[str, str]]) -> bool:
    return all(last < first for (_, last), (first, _) in pairwise(found))


def group_table(path: Path, cluster: str = "default") -> RustTable:
    return RustTable(Location.of(path / "groups"), cluster)


@pytest.fixture
def empty_warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path, as_the_job=True)


@pytest.fixture
def few(empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> GroupRows:
    """Files have ten rows at most."""
    monkeypatch.setattr(group_files, "FILE_ROWS", 10)
    return GroupRows(group_table(empty_warehouse))


def replace(few: GroupRows, path: Path, changes: Mapping[str, str], removed: Sequence[str] = ()) -> None:
    few.replace(rows(path, changes), [*changes, *removed])


def numbered(numbers: Iterable[int] = NUMBERS, state: str = "Empty") -> dict[str, str]:
    return {f"g{number:02}": state for number in numbers}


def test_groups_are_replaced_in_one_commit_and_only_their_files_change(few: GroupRows, empty_warehouse: Path) -> None:
    path = empty_warehouse
    replace(few, path, numbered())
    table, before = DeltaTable(path / "groups"), ranges(path)
    assert before == [("g00", "g09"), ("g10", "g19"), ("g20", "g29"), ("g30", "g39")]
    changes = {"g01": "Stable", "g05": "Stable", "g14": "Dead"}
    replace(few, path, changes, removed=["g27"])
    left = [f"g{number:02}" for number in NUMBERS if number != 27]
    assert states(path) == [(group, changes.get(group, "Empty")) for group in left]
    assert ranges(path) == before
    newest = DeltaTable(path / "groups")
    assert len({*table.file_uris()} & {*newest.file_uris()}) == 1
    assert newest.version() == table.version() + 1


@pytest.mark.parametrize("kind", ["large", "lacks a column", "needs a feature", "not sorted", "many at once"])
def test_files_that_pyarrow_does_not_read_as_the_table_says_are_queried(
    kind: str, few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = empty_warehouse
    if kind == "not sorted":
        group_table(path).append(rows(path, dict(reversed(numbered().items()))))
    else:
        replace(few, path, numbered())
    alter = DeltaTable(path / "groups").alter
    if kind == "large":
        monkeypatch.setattr(group_rows, "_AT_A_TIME", 20_000)
        replace(few, path, {}, removed=[*numbered()])
        for first in (0, 1):  # two files with ids from the whole range, each of which is small
            group_table(path).append(rows(path, numbered(NUMBERS[first::2])))
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


@pytest.mark.parametrize("first", [[], [*NUMBERS], [3, 20]], ids=["none", "all", "some"])
@pytest.mark.parametrize("spread", [1, 7], ids=["in order", "in any order"])
def test_very_many_groups_are_replaced_some_at_a_time(
    first: Sequence[int], spread: int, few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = empty_warehouse, sorted(NUMBERS, key=lambda number: number * spread % len(NUMBERS))
    replace(few, path, numbered(first, "Dead"))
    monkeypatch.setattr(group_rows, "_CHANGED", 4)
    parts = [rows(path, numbered(order[start : start + 6], "Stable")) for start in range(0, len(order), 6)]
    few.replace(pa.concat_tables(parts), [*numbered(), "g07b"])
    assert states(path) == [*numbered(state="Stable").items()]
    assert are_separate(ranges(path))
    replace(few, path, numbered(NUMBERS[::2], "Dead"), removed=[*numbered(NUMBERS[1::4])])
    assert states(path) == sorted({**numbered(NUMBERS[::2], "Dead"), **numbered(NUMBERS[3::4], "Stable")}.items())


def test_rows_of_a_cluster_of_any_name_are_replaced_and_those_of_others_stay(
    few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cluster = empty_warehouse, "o'ther a%20b=c:d/é"
    replace(few, path, {"g00": "Empty"})
    other, own = GroupRows(group_table(path, cluster)), rows(path, numbered(range(3), "Stable"), cluster)
    other.replace(own, own["group_id"].to_pylist())
    replace(few, path, {"g00": "NotReady"})
    monkeypatch.setattr(group_rows, "QueryBuilder", Mock(side_effect=AssertionError("a query")))
    found = other.find("group_id", ["g00", "g02"])
    assert found["group_id"].to_pylist() == ["g00", "g02"]
    other.replace(found, ["g00", "g01", "g02"])
    assert states(path) == [("g00", "NotReady"), ("g00", "Stable"), ("g02", "Stable")]


def test_ids_that_begin_alike_or_oddly_are_found_in_their_files(few: GroupRows, empty_warehouse: Path) -> None:
    path, alike = empty_warehouse, "com.example.department.of.streams." * 3
    odd = ["", "'", "\\", "\U0001f600", "\U0010ffff", "a\nb", "%", *(f"{alike}{number:02}" for number in NUMBERS)]
    replace(few, path, dict.fromkeys(odd, "Empty"))
    replace(few, path, {alike: "Empty"})
    assert are_separate(ranges(path))
    assert len(ranges(path)) >= 5
    for group in (*odd, alike):
        replace(few, path, {group: "Stable"})
    assert dict(states(path)) == dict.fromkeys((*odd, alike), "Stable")
    assert len(states(path)) == len(odd) + 1
    assert are_separate(ranges(path))


def compact(groups: GroupRows, path: Path) -> None:
    groups.compact(TableFiles(group_table(path)))


@pytest.mark.parametrize("most", [4 << 20, 1], ids=["few bytes", "many bytes"])
def test_files_whose_ranges_overlap_get_ranges_of_their_own_when_they_are_rewritten_or_compacted(
    most: int, few: GroupRows, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = empty_warehouse, group_table(empty_warehouse)
    monkeypatch.setattr(group_rows, "_AT_A_TIME", most)
    for rewrite in (lambda: replace(few, path, {"g11": "Stable"}), lambda: compact(few, path)):
        replace(few, path, {}, removed=[*numbered()])
        for first in range(4):  # files with ids from the whole range
            own.append(rows(path, numbered(NUMBERS[first::4], "Stable")))
        assert not are_separate(ranges(path))
        rewrite()
        assert are_separate(ranges(path))
        assert states(path) == [*numbered(state="Stable").items()]
    version = DeltaTable(path / "groups").version()
    compact(few, path)  # has nothing to do
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

    new = rows(path, {"a": "Stable"})
    monkeypatch.setattr(Location, "delta_table", overtake)
    few.replace(new, ["a"])
    assert len(opened) == 3, "before each attempt, and to see why the first one failed"
    assert states(path) == [("a", "Stable"), ("b", "Dead")]


def test_only_rows_of_the_own_cluster_say_how_far_the_history_reaches(empty_warehouse: Path) -> None:
    own, other = (RustTable(Location.of(empty_warehouse / "quarantine"), name) for name in ("default", "other"))
    for number, (table, offset) in enumerate(((own, 5), (other, 70))):
        row = {"topic": "t", "partition": 0, "offset": offset, "error_kind": "LeftoverRecord"}
        table.append(table.to_table([row]), BatchId(["app"], number))
    for where in (None, "key IS NULL OR error_kind = 'LeftoverRecord'"):
        assert own.select('max("offset")', where).column(0)[0].as_py() == 5
