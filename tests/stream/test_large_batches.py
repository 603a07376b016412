"""A batch that is written in slices gives the same tables as one that is not, wherever it fails and is repeated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from offsets_decoder import encode
from streaming_app.kafka.log_reader import LogReader, Range
from streaming_app.stream import batch_records, slices, source
from streaming_app.stream.batch_outcome import Outcome
from streaming_app.stream.batch_records import BatchRecords
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.stream.outcome import FoldOptions
from streaming_app.tables.driver_limits import GROUPS
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.writer import TableWriter
from tests.support.encoded import metadata_record
from tests.support.frames import Pair, assert_leaves_no_session, batch, expect_few_records, limit_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        yield b"\x00\x18\x00\x01g", bytes(80_000)


ROWS = [(offset, START + timedelta(seconds=offset // 4), *pair) for offset, pair in enumerate(history())]


def write_all(spark: SparkSession, path: Path, **settings: Any) -> list[Outcome]:
    """Write everything as batch 3, as a job does that has just started."""
    done: list[Outcome] = []
    writer = TableWriter(spark, str(path), "default")
    GroupsBatchWriter(writer, FoldOptions("default", "topic"), lambda _, one: done.append(one), **settings)(
        batch(spark, ROWS), 3
    )
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


def count_kept(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets each batch that Spark keeps."""
    kept, keep = list[Any](), BatchRecords._keep
    monkeypatch.setattr(BatchRecords, "_keep", lambda records: (kept.append(records), keep(records))[1])
    return kept


def test_a_batch_with_large_records_is_written_in_slices_and_gives_the_same_tables(
    spark: SparkSession, empty_warehouse: Path, whole: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_slices(monkeypatch, 200_000)
    written = []
    few = GroupsBatchWriter._write_few
    monkeypatch.setattr(GroupsBatchWriter, "_write_few", lambda *a: (written.append(a[-1].number), few(*a))[1])
    kept = count_kept(monkeypatch)
    outcomes = write_all(spark, empty_warehouse)
    assert len(set(written)) > 4
    assert len(kept) == 1  # the topic is read once
    assert content(empty_warehouse) == whole
    assert [(one.written["decoded"], one.quarantined, sum(one.by_type.values())) for one in outcomes] == [(24, 3, 27)]


def divide_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slices have 200 kB, and records of 40 kB stay in the log."""
    limit_slices(monkeypatch, 200_000)
    monkeypatch.setattr(batch_records, "LARGE_RECORD", 40_000)


class Record(SimpleNamespace):
    """One of kafka-python's, that is equal to itself only."""

    __hash__ = object.__hash__


class FakeLog(LogReader):
    """Reads `ROWS`."""

    def __init__(self) -> None:
        self.ranges = list[Range]()
        self.most_held = 0
        self._held = weakref.WeakSet[Record]()

    def read(self, ranges: Mapping[int, Range]) -> Iterator[Any]:
        self.ranges.append(ranges[0])
        start, end = ranges[0]
        for offset, at, key, value in ROWS[start:end]:
            record = Record(partition=0, offset=offset, timestamp=int(at.timestamp() * 1_000), key=key, value=value)
            self._held.add(record)
            self.most_held = max(self.most_held, len(self._held))
            yield record


def test_large_records_of_a_small_batch_are_read_once_more_each_from_where_it_is(
    spark: SparkSession, empty_warehouse: Path, whole: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    divide_small_batches(monkeypatch)
    expect_few_records(empty_warehouse)
    kept, log = count_kept(monkeypatch), FakeLog()
    outcomes = write_all(spark, empty_warehouse, open_log=lambda: nullcontext(log))
    assert content(empty_warehouse) == whole
    assert [(one.written["decoded"], one.quarantined, sum(one.by_type.values())) for one in outcomes] == [(24, 3, 27)]
    assert not kept
    large = {row[0] for row in ROWS if len(row[3] or b"") >= 50_000}
    reads = [offset for start, end in log.ranges for offset in range(start, end) if offset in large]
    assert set(reads) == large
    assert log.most_held <= 2  # what is between large records, and is not of the slice, may be much
    assert len(reads) == len(large)


def test_the_records_of_each_part_are_the_same_from_the_log_and_from_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    divide_small_batches(monkeypatch)
    frame = batch(spark, [*ROWS, (len(ROWS), START, None, b"no key")])
    parts = {}
    for most in (len(ROWS) + 1, None):
        with BatchRecords(frame, lambda read: read()) as found:
            index = found.read(most)
            ordered = slices.Ordered(index, slices.find_heavy(index))
            cut = slices.divide(slices.Attempt("w", 3, halvings=1), ordered)
            parts[most] = [
                (part.slice, found.take(part, FakeLog().read).sort_by("offset"), part.records.num_rows)
                for part in ordered.parts(cut)
            ]
    few, kept = parts.values()
    assert len(few) == len(kept) > 4
    assert sum(count for _, _, count in few) == len(ROWS) + 1
    assert few[0][0].is_apart is False
    assert few[-1][0].is_apart is True
    for (one, records, count), (other, again, _) in zip(few, kept, strict=True):
        assert one == other
        assert records == again.cast(records.schema)
        assert records.num_rows == count


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
    size, sent = 900_000, []
    to_arrow = type(batch(spark, [])).toArrow
    monkeypatch.setattr(type(batch(spark, [])), "toArrow", lambda one: sent.append(to_arrow(one)) or sent[-1])
    columns = "X'0011000167' AS key", f"cast(repeat('x', {size}) AS binary) AS value", "0 AS partition", "id AS offset"
    frame = source.wanted_records(spark.range(count).selectExpr(*columns, "now() AS timestamp"))
    found, largest = batch_records.read_small(frame, count, GROUPS)
    assert (largest >= size) is is_read
    assert sum(found["size"].to_pylist()) == count * (size + 5)
    assert sum(table.nbytes for table in sent) < 4 * slices.SLICE_BYTES


def test_batches_that_spark_writes_leave_no_session_in_the_jvm(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark clones a session for what is persisted; before 4.0.2 it never forgot the clone (SPARK-54753)."""
    limit_driver(monkeypatch, records=0)
    write_all(spark, empty_warehouse)
    assert_leaves_no_session(spark, lambda: write_all(spark, empty_warehouse))
