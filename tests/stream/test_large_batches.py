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
from streaming_app.stream import few_records, groups_batch, kept_records, slices, source
from streaming_app.stream.batch_outcome import GroupsOutcome
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.stream.kept_records import KeptRecords
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
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


def write_all(spark: SparkSession, path: Path, **settings: Any) -> list[GroupsOutcome]:
    """Write everything as batch 3, as a job does that has just started."""
    done: list[GroupsOutcome] = []
    writer = TableWriter(spark, str(path), "default")
    GroupsBatchWriter(writer, "default", "topic", lambda _, one: done.append(one), **settings)(batch(spark, ROWS), 3)
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
    for module in (groups_batch, slices, few_records):
        monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)


def test_a_batch_with_large_records_is_written_in_slices_and_gives_the_same_tables(
    spark: SparkSession, empty_warehouse: Path, whole: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_slices(monkeypatch, 200_000)
    written = []
    small = GroupsBatchWriter._write_small
    monkeypatch.setattr(GroupsBatchWriter, "_write_small", lambda *a: (written.append(a[-2].version), small(*a))[1])
    read, read_alone = [], []
    to_arrow = type(batch(spark, [])).toArrow
    monkeypatch.setattr(type(batch(spark, [])), "toArrow", lambda one: (read_alone.append(one), to_arrow(one))[1])
    count_kept(monkeypatch, read)
    outcomes = write_all(spark, empty_warehouse)
    assert len(set(written)) > 4
    assert len(read) == 1  # of the whole batch: each reading takes as long as that, however few records a slice has
    assert not read_alone
    assert content(empty_warehouse) == whole
    assert [(one.decoded, one.quarantined, sum(one.by_type.values())) for one in outcomes] == [(24, 3, 27)]


def count_kept(monkeypatch: pytest.MonkeyPatch, kept: list[Any]) -> None:
    """Add each batch to `kept` that Spark keeps."""
    summarize = KeptRecords.summarize
    monkeypatch.setattr(KeptRecords, "summarize", lambda records: (kept.append(records), summarize(records))[1])


def divide_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slices have 200 kB, and records of 40 kB stay in the log."""
    limit_slices(monkeypatch, 200_000)
    monkeypatch.setattr(few_records, "LARGE_RECORD", 40_000)


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
    kept, log = [], FakeLog()
    count_kept(monkeypatch, kept)
    outcomes = write_all(spark, empty_warehouse, open_log=lambda: nullcontext(log))
    assert content(empty_warehouse) == whole
    assert [(one.decoded, one.quarantined, sum(one.by_type.values())) for one in outcomes] == [(24, 3, 27)]
    assert not kept
    large = {row[0] for row in ROWS if len(row[3] or b"") >= 50_000}
    reads = [offset for start, end in log.ranges for offset in range(start, end) if offset in large]
    assert set(reads) == large
    assert log.most_held <= 2  # what is between large records, and is not of the slice, may be much
    assert len(reads) <= 2 * len(large)  # once for the groups that are written apart, and once for the others


def test_a_batch_of_few_records_is_divided_as_one_that_spark_keeps(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_driver(monkeypatch, records=12)
    monkeypatch.setattr(kept_records, "_CONDITIONS", 2)
    for module in (few_records, kept_records):
        monkeypatch.setattr(module, "APART_RECORDS", 9)
    records = source.wanted_records(batch(spark, [*ROWS, (len(ROWS), START, None, b"no key")]))
    few = few_records.read_few(records, len(ROWS))._replace(read_log=FakeLog().read)
    kept = KeptRecords(records, records.select(*source.MEASURES))
    summary = few.summarize()
    assert summary == kept.summarize()
    apart = few.groups_apart(summary)
    assert apart == kept.groups_apart(summary)
    assert len(apart) == 3
    assert few.record_cuts(apart, summary) == kept.record_cuts(apart, summary) == [(0, n) for n in (5, 11, 17, 23)]
    assert few.large_records() == kept.large_records()
    assert few.partition_offsets() == kept.partition_offsets() == {0: (0, len(ROWS) + 1)}
    cuts = [(0, 5), (0, 21)]
    ends = [*cuts, None]
    parts = [slices.Slice(None, 1), *(slices.Slice(end, number, is_apart=True) for number, end in enumerate(ends, 2))]
    places = [(None, parts[0]), *zip([None, *cuts], parts[1:], strict=True)]
    sums = few.summarize_slices(places, apart)
    assert sums == kept.summarize_slices(places, apart)
    assert sum(one.records for one in sums) == len(ROWS) + 1
    numbers = [number for number, one in enumerate(sums) if one.records]
    read, again = (list(found.read_slices(places, apart, numbers)) for found in (few, kept))
    assert [one.sort_by("offset") for one in read] == [one.sort_by("offset").cast(read[0].schema) for one in again]
    assert [one.num_rows for one in read] == [sums[number].records for number in numbers]


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
        for name in ("append", "delete_history", "replace"):
            patched.setattr(GroupRows, name, killed_after(getattr(GroupRows, name)))
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
    few = few_records.read_few(
        source.wanted_records(spark.range(count).selectExpr(*columns, "now() AS timestamp")), count
    )
    assert few is not None
    assert few.is_whole is is_read
    assert few.summarize().size == count * (size + 5)
    assert sum(table.nbytes for table in sent) < 4 * slices.SLICE_BYTES


def test_batches_that_spark_writes_leave_no_session_in_the_jvm(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark clones a session for what is persisted; before 4.0.2 it never forgot the clone (SPARK-54753)."""
    limit_driver(monkeypatch, records=0)
    write_all(spark, empty_warehouse)
    assert_leaves_no_session(spark, lambda: write_all(spark, empty_warehouse))
