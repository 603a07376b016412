"""A batch that is written in slices gives the same tables as one that is not, wherever it fails and is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offsets_decoder import encode
from streaming_app.stream import groups_batch, slices, source
from streaming_app.stream.batch_outcome import GroupsOutcome
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.spark_writer import SparkWriter
from tests.groups.encoded import metadata_record
from tests.stream.frames import Pair, batch

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


def write_all(spark: SparkSession, path: Path, outcomes: list[GroupsOutcome] | None = None) -> None:
    """Write everything as batch 3, as a job does that has just started."""
    done = [] if outcomes is None else outcomes
    write = GroupsBatchWriter(SparkWriter(spark, str(path), "default"), "default", "topic", lambda _, o: done.append(o))
    write(batch(spark, ROWS), 3)


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


def test_a_batch_with_large_records_is_written_in_slices_and_gives_the_same_tables(
    spark: SparkSession, empty_warehouse: Path, whole: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_batch, "SLICE_BYTES", 200_000)
    monkeypatch.setattr(slices, "SLICE_BYTES", 200_000)
    written = []
    write = GroupsBatchWriter._write
    monkeypatch.setattr(GroupsBatchWriter, "_write", lambda *args: (written.append(args[-1].version), write(*args))[1])
    outcomes: list[GroupsOutcome] = []
    read, read_alone = [], []
    to_arrow = type(batch(spark, [])).toArrow
    monkeypatch.setattr(type(batch(spark, [])), "toArrow", lambda one: (read_alone.append(one), to_arrow(one))[1])
    monkeypatch.setattr(groups_batch, "summarize", lambda records: (read.append(records), source.summarize(records))[1])
    write_all(spark, empty_warehouse, outcomes)
    assert len(set(written)) > 4
    assert len(read) == 1  # of the whole batch: each reading takes as long as that, however few records a slice has
    assert not read_alone
    assert content(empty_warehouse) == whole
    assert [(one.decoded, one.quarantined, sum(one.by_type.values())) for one in outcomes] == [(24, 3, 27)]


def test_what_slices_amount_to_is_what_each_of_them_amounts_to_by_itself(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_CONDITIONS", 2)
    records = source.wanted_records(batch(spark, [*ROWS, (len(ROWS), START, None, b"no key")]))
    (apart,) = records.where("group_bytes = 'one'").selectExpr("xxhash64(group_bytes) AS hash").distinct().collect()
    middle = (0, 5)
    places = [
        (None, slices.Slice(None, 1)),
        (None, slices.Slice(middle, 2, is_apart=True)),
        (middle, slices.Slice(None, 3, is_apart=True)),
    ]
    found = source.summarize_slices(records, places, [apart["hash"]])
    for (start, one), summary in zip(places, found, strict=True):
        of_these = source.of_groups([apart["hash"]], are_these=one.is_apart)
        alone = source.summarize(records.where(f"{source.between(start, one.end)} AND {of_these}"))
        assert (summary.records, summary.size) == (alone.records, alone.size)
        assert summary.records
    assert sum(one.records for one in found) == len(ROWS) + 1


@pytest.mark.parametrize(
    ("call", "failing"),
    [(1, "append"), (2, "append"), (2, "delete_history"), (1, "replace"), (2, "replace")],
)
def test_a_batch_that_is_killed_in_any_slice_and_then_halved_writes_each_event_once(
    spark: SparkSession,
    empty_warehouse: Path,
    whole: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    call: int,
) -> None:
    monkeypatch.setattr(groups_batch, "SLICE_BYTES", 300_000)
    monkeypatch.setattr(slices, "SLICE_BYTES", 300_000)
    original, calls, kills = getattr(GroupRows, failing), 0, 0

    def killed_after(*args: Any) -> None:
        nonlocal calls, kills
        original(*args)
        calls += 1
        if calls % call == 0:
            kills += 1
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(GroupRows, failing, killed_after)
        for _ in range(3):
            calls = 0
            with suppress(KilledError):
                write_all(spark, empty_warehouse)
    assert kills
    write_all(spark, empty_warehouse)
    assert content(empty_warehouse) == whole


@pytest.mark.parametrize(
    ("count", "size", "is_read"),
    [(12, 900_000, False), (8, 900_000, True), (1_000, 15_000, True), (600, 30_000, True)],
)
def test_large_records_leave_the_jvm_at_once_up_to_the_size_of_a_slice(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, count: int, size: int, *, is_read: bool
) -> None:
    sent = []
    to_arrow = type(batch(spark, [])).toArrow
    monkeypatch.setattr(type(batch(spark, [])), "toArrow", lambda one: sent.append(to_arrow(one)) or sent[-1])
    rows = spark.range(count).selectExpr(
        "X'0011000167' AS key", f"cast(repeat('x', {size}) AS binary) AS value", "0 AS partition", "id AS offset"
    )
    few = source.read_few(rows, count)
    assert (few is not None) is is_read
    most = 4 if size < source._HUGE else 1
    assert sum(table.nbytes for table in sent) < most * slices.SLICE_BYTES
