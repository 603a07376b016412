"""Logs of tables and Spark's checkpoint: files that a power cut left empty or cut off; which offsets are processed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streaming_app.errors import WarehouseError
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets, find_damage, read_checkpoint_offsets
from streaming_app.tables.location import Location
from streaming_app.tables.log_damage import repair_logs
from streaming_app.tables.reader import WarehouseReader
from tests.support.warehouses import append, make_warehouse

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1795272766190,"conf":{}}'
NAME = "quarantine"
HOUR = 3600


def cut_off(file: Path, content: Callable[[bytes], bytes]) -> None:
    """Let the file have this content, since an hour ago."""
    file.write_bytes(content(file.read_bytes()))
    old = file.stat().st_mtime - HOUR
    os.utime(file, (old, old))


CUT_OFF: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a row of each of three commits, and a checkpoint of the second one."""
    warehouse = make_warehouse(tmp_path / "warehouse")
    for offset in range(3):
        append(warehouse, NAME, {"topic": "t", "partition": 0, "offset": offset})
        if offset == 1:
            DeltaTable(warehouse / NAME).create_checkpoint()
    return warehouse / NAME


def offsets(table: Path) -> list[int]:
    rows = WarehouseReader(table.parent).rows(f'SELECT "offset" AS number FROM {NAME} ORDER BY 1')
    return [row["number"] for row in rows]


def mend(table: Path) -> list[str]:
    lines = list[str]()
    repair_logs([Location.of(table)], lines.append)
    return lines


@pytest.mark.parametrize("content", CUT_OFF.values(), ids=CUT_OFF)
@pytest.mark.parametrize("damaged", ["commit", "checkpoint", "pointer"])
def test_a_file_that_was_cut_off_is_moved_aside_and_the_table_goes_on_as_it_was_before(
    damaged: str, content: Callable[[bytes], bytes], table: Path
) -> None:
    log = table / "_delta_log"
    names = {
        "commit": max(log.glob("*.json")),
        "checkpoint": max(log.glob("*.parquet")),
        "pointer": log / "_last_checkpoint",
    }
    cut_off(names[damaged], content)
    (line,) = mend(table)
    assert line.startswith(f"{NAME}: ")
    assert names[damaged].name in line
    assert "\n" not in line
    assert offsets(table) == ([0, 1] if damaged == "commit" else [0, 1, 2])
    assert names[damaged].with_name(f"{names[damaged].name}.damaged").exists()
    append(table.parent, NAME, {"topic": "t", "partition": 0, "offset": 7})
    assert offsets(table)[-1] == 7
    assert mend(table) == []


def test_a_sound_log_and_a_file_that_somebody_may_be_writing_are_left_alone(table: Path) -> None:
    before = sorted(file.name for file in (table / "_delta_log").iterdir())
    assert mend(table) == []
    max((table / "_delta_log").glob("*.json")).write_bytes(b"")
    assert mend(table) == []
    assert sorted(file.name for file in (table / "_delta_log").iterdir()) == before


def test_a_command_says_which_table_was_cut_off_and_what_to_do(table: Path) -> None:
    cut_off(max((table / "_delta_log").glob("*.json")), CUT_OFF["half"])
    with pytest.raises(WarehouseError, match=rf"^The newest log file of .*{NAME} is incomplete: start the job"):
        offsets(table)


def write_batch(warehouse: Path, number: int, offsets: dict[str, int] | None, *, committed: bool = True) -> None:
    checkpoint = warehouse / "_checkpoints" / "default"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    source = "-" if offsets is None else json.dumps({"__consumer_offsets": offsets})
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{SETTINGS}\n{source}", "utf-8")
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}', "utf-8")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as Spark writes it, of which batch 7 is done."""
    for number in (6, 7):
        write_batch(tmp_path, number, {"0": number})
    return tmp_path / "_checkpoints" / "default"


@pytest.mark.parametrize("content", CUT_OFF.values(), ids=CUT_OFF)
@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_a_checkpoint_whose_newest_file_was_cut_off_is_damaged(
    kind: str, content: Callable[[bytes], bytes], checkpoint: Path
) -> None:
    cut_off(checkpoint / kind / "7", content)
    assert find_damage(Location.of(checkpoint)) == f"{kind}/7 cannot be read"


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("offsets/7", "offsets/7 is missing"), ("commits/7", None), ("commits/6", None), ("offsets/6", None)],
)
def test_a_checkpoint_without_its_newest_offsets_is_damaged_and_a_batch_that_is_not_done_is_repeated(
    missing: str, expected: str | None, checkpoint: Path
) -> None:
    assert find_damage(Location.of(checkpoint)) is None
    (checkpoint / missing).unlink()
    assert find_damage(Location.of(checkpoint)) == expected
    (checkpoint / "offsets" / "7").write_text("v1\n{}\n-")  # a batch without offsets
    assert find_damage(Location.of(checkpoint)) is None


def test_the_last_committed_batch_counts_by_its_number_and_other_files_are_ignored(tmp_path: Path) -> None:
    write_batch(tmp_path, 9, {"0": 1})
    write_batch(tmp_path, 10, {"0": 2})
    write_batch(tmp_path, 11, {"0": 3}, committed=False)
    (tmp_path / "_checkpoints" / "default" / "commits" / ".11.crc").touch()
    (tmp_path / "_checkpoints" / "default" / "commits" / "7.compact").touch()
    assert read_checkpoint_offsets(tmp_path, "default") == CheckpointOffsets("__consumer_offsets", {0: 2})


def test_nothing_is_processed_before_the_first_batch_is_committed(tmp_path: Path) -> None:
    assert read_checkpoint_offsets(tmp_path, "default") is None
    write_batch(tmp_path, 0, {"0": 1}, committed=False)
    assert read_checkpoint_offsets(tmp_path, "default") is None
    write_batch(tmp_path, 0, None)
    assert read_checkpoint_offsets(tmp_path, "default") is None
    write_batch(tmp_path, 1, {"0": 1})
    assert read_checkpoint_offsets(tmp_path, "another") is None


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{}\n[]", 'v1\n{}\n{"a":{},"b":{}}', None])
def test_an_offset_log_that_is_missing_or_has_another_format_is_named_in_the_error(
    tmp_path: Path, text: str | None
) -> None:
    write_batch(tmp_path, 0, {"0": 1})
    file = tmp_path / "_checkpoints" / "default" / "offsets" / "0"
    file.unlink() if text is None else file.write_text(text, "utf-8")
    with pytest.raises(WarehouseError, match=r"offsets/0 is (missing|not a Spark offset log)"):
        read_checkpoint_offsets(tmp_path, "default")


def test_a_partition_that_was_never_read_is_behind_from_its_first_offset() -> None:
    offsets = CheckpointOffsets("t", {0: 5, 1: 7})
    assert offsets.offsets_behind({0: 5, 1: 9, 2: 3}) == {1: 2, 2: 3}
    assert offsets.offsets_behind({0: 4}) == {}
