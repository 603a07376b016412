"""A batch that is written in slices gives the same tables as one that is not, wherever it fails and is repeated.

Groups far larger than usual hold up no others.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_app.stream import batch_records, slices, source
from streaming_app.stream.batch_records import BatchRecords
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.stream.job_state import CommittedBatch
from streaming_app.tables.driver_limits import GROUPS
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from tests.stream.test_groups_writer import batch_writer
from tests.support.encode import encode
from tests.support.encoded import group_records, metadata_record
from tests.support.frames import Pair, batch, rows_of, write_offset_log

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
HISTORIES = ("group_events", "quarantine", "groups")


def history() -> Iterator[Pair]:
    """Yield rebalances of two groups whose topologies are large records, and large records that cannot be decoded."""
    for epoch in range(2, 5):
        for group_id in ("one", "two"):
            group, member = {"group_id": group_id}, {"group_id": group_id, "member_id": f"m{epoch}"}
            topics = [f"{'t' * 200}-{number}" for number in range(400)]
            yield encode(19, member, {"client_id": "c"})
            yield encode(
                23, group, {"epoch": epoch, "subtopologies": [{"subtopology_id": "0", "source_topics": topics}]}
            )
            yield metadata_record(group, epoch, validated_topology_epoch=epoch)
            yield encode(20, group, {"assignment_epoch": epoch})
        yield b"\x00\x14\x00\x01g", bytes(80_000)


ROWS = [(offset, START + timedelta(seconds=offset // 4), *pair) for offset, pair in enumerate(history())]


def write_all(spark: SparkSession, path: Path) -> list[CommittedBatch]:
    """Write everything as batch 3, as a job does that has just started."""
    done: list[CommittedBatch] = []
    batch_writer(spark, path, on_done=lambda _, one: done.append(one))(batch(spark, ROWS), 3)
    return done


def content(path: Path) -> dict[str, list[Any]]:
    """Return the rows without the retained changes of a group, which depend on where batches end."""
    reader = WarehouseReader(path)
    return {name: sorted(map(str, reader.rows(f"SELECT * FROM {name}"))) for name in HISTORIES}


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, create_warehouse: Callable[[Path], Path]
) -> dict[str, list[Any]]:
    """What the tables hold when the batch is written as one."""
    path = create_warehouse(tmp_path_factory.mktemp("whole"))
    write_all(spark, path)
    return content(path)


class KilledError(BaseException):
    """Stands for the end of the process."""


def limit_slices(monkeypatch: pytest.MonkeyPatch, slice_bytes: int) -> None:
    for module in (batch_records, slices):
        monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)


@pytest.mark.parametrize("is_small", [False, True], ids=["a large batch", "a small one, read once more"])
def test_a_batch_with_large_records_is_written_in_slices_and_gives_the_same_tables(
    spark: SparkSession,
    empty_warehouse: Path,
    whole: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_small: bool,
) -> None:
    limit_slices(monkeypatch, 200_000)
    if is_small:
        monkeypatch.setattr(batch_records, "LARGE_RECORD", 40_000)
        write_offset_log(empty_warehouse / "_checkpoints" / "default", range(1_000, 9_000, 1_000))
    written, kept = [], list[Any]()
    few, keep = GroupsBatchWriter._write_few, BatchRecords._keep
    monkeypatch.setattr(GroupsBatchWriter, "_write_few", lambda *a: (written.append(a[-1].number), few(*a))[1])
    monkeypatch.setattr(BatchRecords, "_keep", lambda records: (kept.append(records), keep(records))[1])
    outcomes = write_all(spark, empty_warehouse)
    assert len(set(written)) > 4
    assert len(kept) == 1  # the topic is read once, or once more
    assert content(empty_warehouse) == whole
    assert [(one.written["decoded"], one.quarantined, sum(one.by_type.values())) for one in outcomes] == [(24, 3, 27)]


def test_a_batch_that_is_killed_in_a_slice_and_then_halved_writes_each_event_once(
    spark: SparkSession, empty_warehouse: Path, whole: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_slices(monkeypatch, 300_000)
    calls, kills = 0, 0

    def killed_after(write: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            nonlocal calls, kills
            write(*args)
            calls += 1
            if calls == kills + 2:  # a call later each time
                kills += 1
                raise KilledError

        return call

    with monkeypatch.context() as patched:
        for owner, name in ((RustTable, "append"), (RustTable, "delete_rows"), (GroupRows, "replace")):
            patched.setattr(owner, name, killed_after(getattr(owner, name)))
        for _ in range(3):
            calls = 0
            with suppress(KilledError):
                write_all(spark, empty_warehouse)
    assert kills == 3
    write_all(spark, empty_warehouse)
    assert content(empty_warehouse) == whole


@pytest.mark.parametrize(("count", "is_read"), [(12, False), (8, True)])
def test_large_records_leave_the_jvm_at_once_up_to_the_size_of_a_slice(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, count: int, *, is_read: bool
) -> None:
    size, sent, plans = 900_000, [], []
    to_arrow = type(batch(spark, [])).toArrow

    def read(one: Any) -> Any:
        plans.append(one._jdf.queryExecution().executedPlan().toString())
        return sent.append(to_arrow(one)) or sent[-1]

    monkeypatch.setattr(type(batch(spark, [])), "toArrow", read)
    columns = "X'0011000167' AS key", f"cast(repeat('x', {size}) AS binary) AS value", "0 AS partition", "id AS offset"
    frame = source.wanted_records(spark.range(count).selectExpr(*columns, "now() AS timestamp"))
    found = batch_records.read_small(frame, count, GROUPS)
    assert batch_records.is_whole(found) is is_read
    assert sum(found["size"].to_pylist()) == count * (size + 5)
    assert sum(table.nbytes for table in sent) < 4 * slices.SLICE_BYTES
    assert "Coalesce 2" in plans[0]


def test_a_group_with_very_many_records_does_not_hold_up_the_others_of_its_batch(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = [metadata_record({"group_id": "heavy"}, epoch, metadata_hash=epoch) for epoch in range(2, 20_102)]
    honest = [list(group_records(f"honest-{number}", 2)) for number in range(3)]
    records = batch(spark, rows_of([*honest[0], *epochs[:9_000], *honest[1], *epochs[9_000:], *honest[2]]))
    write = batch_writer(spark, empty_warehouse)
    write_part, written = write._write_few, list[Any]()

    def die_after_the_first(*part: Any) -> object:
        if written:
            raise RuntimeError("the job dies")
        written.append(write_part(*part))
        return written[0]

    monkeypatch.setattr(write, "_write_few", die_after_the_first)
    with pytest.raises(RuntimeError):
        write(records, 0)
    groups = "SELECT group_id, group_epoch FROM groups ORDER BY group_id"
    expected = [{"group_id": f"honest-{number}", "group_epoch": 2} for number in range(3)]
    assert WarehouseReader(empty_warehouse).rows(groups) == expected
    batch_writer(spark, empty_warehouse)(records, 0)
    assert WarehouseReader(empty_warehouse).rows(groups) == [{"group_id": "heavy", "group_epoch": 20_101}, *expected]
