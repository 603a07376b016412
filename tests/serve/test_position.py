"""What the job has passed, as its checkpoint says: the files are those of Spark 4.0."""

import json
from pathlib import Path

import pytest

from streaming_app.serve.position import Position, position
from streaming_app.serve.warehouse import WarehouseError

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1795272766190,"conf":{}}'


def batch(warehouse: Path, number: int, offsets: dict[str, int] | None, *, committed: bool = True) -> None:
    checkpoint = warehouse / "_checkpoints" / "default"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    source = "-" if offsets is None else json.dumps({"__consumer_offsets": offsets})
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{SETTINGS}\n{source}", "utf-8")
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}', "utf-8")


def test_a_batch_that_is_planned_but_not_done_is_not_passed(tmp_path: Path) -> None:
    batch(tmp_path, 9, {"0": 45, "1": 40})
    batch(tmp_path, 10, {"0": 46, "1": 47}, committed=False)
    assert position(tmp_path, "default") == Position("__consumer_offsets", 9, {0: 45, 1: 40})


def test_batches_are_compared_as_numbers_and_other_files_are_no_batches(tmp_path: Path) -> None:
    batch(tmp_path, 9, {"0": 1})
    batch(tmp_path, 10, {"0": 2})
    (tmp_path / "_checkpoints" / "default" / "commits" / ".11.crc").touch()
    (tmp_path / "_checkpoints" / "default" / "commits" / "7.compact").touch()
    assert position(tmp_path, "default") == Position("__consumer_offsets", 10, {0: 2})


def test_nothing_is_passed_before_the_first_batch_is_done(tmp_path: Path) -> None:
    assert position(tmp_path, "default") is None
    batch(tmp_path, 0, {"0": 1}, committed=False)
    assert position(tmp_path, "default") is None
    batch(tmp_path, 0, None)
    assert position(tmp_path, "default") is None
    batch(tmp_path, 1, {"0": 1})
    assert position(tmp_path, "another") is None


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{}\n[]", "v1\n{}\nnot json", 'v1\n{}\n{"a":{},"b":{}}'])
def test_a_file_that_spark_did_not_write_so_is_named(tmp_path: Path, text: str) -> None:
    batch(tmp_path, 0, {"0": 1})
    (tmp_path / "_checkpoints" / "default" / "offsets" / "0").write_text(text, "utf-8")
    with pytest.raises(WarehouseError, match="offsets/0 is no offset log of Spark"):
        position(tmp_path, "default")


def test_a_commit_without_its_offsets_is_named(tmp_path: Path) -> None:
    batch(tmp_path, 0, {"0": 1})
    (tmp_path / "_checkpoints" / "default" / "offsets" / "0").unlink()
    with pytest.raises(WarehouseError, match="offsets/0 is missing"):
        position(tmp_path, "default")


def test_a_partition_never_read_is_behind_from_its_beginning() -> None:
    passed = Position("t", 0, {0: 5, 1: 7})
    assert passed.behind({0: 5, 1: 9, 2: 3}) == {1: 2, 2: 3}
    assert passed.behind({0: 4}) == {}
