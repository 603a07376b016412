"""Which offsets a job has processed, according to its checkpoint: the files are those of Spark 4.0."""

import json
from pathlib import Path

import pytest

from streaming_app.errors import WarehouseError
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets, read_checkpoint_offsets

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1795272766190,"conf":{}}'


def write_batch(warehouse: Path, number: int, offsets: dict[str, int] | None, *, committed: bool = True) -> None:
    checkpoint = warehouse / "_checkpoints" / "default"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    source = "-" if offsets is None else json.dumps({"__consumer_offsets": offsets})
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{SETTINGS}\n{source}", "utf-8")
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}', "utf-8")


def test_a_batch_that_is_planned_but_not_committed_is_not_processed(tmp_path: Path) -> None:
    write_batch(tmp_path, 9, {"0": 45, "1": 40})
    write_batch(tmp_path, 10, {"0": 46, "1": 47}, committed=False)
    assert read_checkpoint_offsets(tmp_path, "default") == CheckpointOffsets("__consumer_offsets", {0: 45, 1: 40})


def test_batches_are_compared_as_numbers_and_other_files_are_ignored(tmp_path: Path) -> None:
    write_batch(tmp_path, 9, {"0": 1})
    write_batch(tmp_path, 10, {"0": 2})
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
