"""Batches through Spark into tables: the path for few records and the path for many give the same tables."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from streaming_app.stream import groups_writer, slices
from streaming_app.stream.batch_records import BatchRecords
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter, sorted_parts
from streaming_app.stream.job_state import CommittedBatch
from streaming_app.stream.log_positions import LogPositions
from streaming_app.tables import group_files, group_rows
from streaming_app.tables.definitions import tables
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.encode import encode
from tests.support.encoded import metadata_record
from tests.support.frames import batch, limit_driver, rows_of, write_offset_log

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
GROUPS = ("one", 'it\'s "two" \\ 🎉', "three")


def history() -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield two rebalances of three groups, an offset commit, undecodable records, and the deletion of one group."""
    for epoch in (2, 3):
        for group in GROUPS:
            at, member = {"group_id": group}, {"group_id": group, "member_id": "m"}
            tasks = [{"subtopology_id": "0", "partitions": list(range(epoch))}]
            yield encode(23, at, {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["in"]}]})
            yield encode(19, member, {"client_id": "c", "client_tags": [{"key": "zone", "value": "a"}]})
            yield metadata_record(at, epoch, validated_topology_epoch=0)
            yield encode(21, member, {"active_tasks": tasks})
            yield encode(20, at, {"assignment_epoch": epoch})
            yield encode(22, member, {"member_epoch": epoch, "state": 1, "active_tasks": tasks})
    yield encode(1, {"group": "one", "topic": "in", "partition": 0}, {"offset": 7})
    yield b"\x00\x18\x00\x01g", b"\x00\x00"
    yield None, b"no key"
    yield encode(17, {"group_id": "three"}, None)


ROWS = [(n, START + timedelta(seconds=n // 6), key, value) for n, (key, value) in enumerate(history())]


class NoPositions(LogPositions):
    """Knows nothing of a log."""

    def __init__(self) -> None:
        """Prepare."""

    def before_read(self) -> None:
        """Do nothing."""

    def after_read(self, ends: Mapping[int, int] | None) -> bool:
        del ends
        return True


def batch_writer(spark: SparkSession, path: Path, **settings: Any) -> GroupsBatchWriter:
    on_done = settings.pop("on_done", lambda *_: None)
    options = FoldOptions("default", "topic")
    return GroupsBatchWriter(TableWriter(spark, str(path), "default"), options, on_done, **settings)


def write_history(spark: SparkSession, path: Path, cuts: list[int], **settings: Any) -> list[CommittedBatch]:
    """Write the history in batches that end at `cuts`."""
    outcomes: list[CommittedBatch] = []
    write = batch_writer(spark, path, on_done=lambda _, outcome: outcomes.append(outcome), **settings)
    for batch_id, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(ROWS)], strict=True)):
        write(batch(spark, ROWS[start:end]), batch_id)
    write(batch(spark, ROWS[start:end]), batch_id)  # as after a crash before the checkpoint
    return outcomes


def content(path: Path) -> dict[str, Any]:
    opened = WarehouseReader(path)
    orders = {one.name: ", ".join(f'"{column}"' for column in one.key) for one in tables()}
    return {name: opened.rows(f"SELECT * FROM {name} ORDER BY {order}") for name, order in orders.items()}


@pytest.fixture(scope="module")
def few(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, create_warehouse: Callable[[Path], Path]
) -> Path:
    """A warehouse whose batches were all small."""
    path = create_warehouse(tmp_path_factory.mktemp("few"))
    outcomes = write_history(spark, path, [8, 25])
    assert sum(outcome.written["decoded"] for outcome in outcomes[:-1]) == 6 * 6 + 1
    assert sum(outcome.quarantined for outcome in outcomes[:-1]) == 1
    assert sum((Counter(outcome.unknown) for outcome in outcomes[:-1]), Counter()) == {24: 1}
    assert outcomes[-1].written["groups"] == 0
    return path


def test_many_records_give_the_same_tables_as_few_and_ask_for_no_topics(
    spark: SparkSession, few: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_driver(monkeypatch, records=0)
    monkeypatch.setattr(groups_writer, "_SORTED_RECORDS", 5)
    monkeypatch.setattr(group_rows, "_CHANGED", 2)
    write_history(spark, empty_warehouse, [8, 25], topics=lambda names: pytest.fail(str(names)))  # no group is NotReady
    assert content(empty_warehouse) == content(few)


def test_the_files_that_workers_make_of_a_first_batch_are_those_of_the_table(
    spark: SparkSession, few: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else this process decodes, sorts and encodes them all once more: minutes for a million groups."""
    limit_driver(monkeypatch, records=0)
    monkeypatch.setattr(groups_writer, "_SORTED_RECORDS", 15)
    monkeypatch.setattr(group_files, "FILE_ROWS", 2)
    with monkeypatch.context() as patched:
        patched.setattr(GroupRows, "replace", lambda *_: pytest.fail("they are not written as they are"))
        batch_writer(spark, empty_warehouse)(batch(spark, ROWS), 0)
    files = group_files.group_files(DeltaTable(empty_warehouse / "groups"), "default")
    assert len(files) > 1
    assert group_files.is_well_divided(files)
    assert max(one.rows for one in files) <= 2
    batch_writer(spark, empty_warehouse)(batch(spark, ROWS), 1)
    assert content(empty_warehouse)["groups"] == content(few)["groups"]


def test_what_spark_sorts_is_divided_where_it_is_much_whatever_the_session_sets(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_writer, "_SORTED_RECORDS", 50)
    session, usual = spark.newSession(), spark.sparkContext.defaultParallelism
    settings = session._jsparkSession.sessionState().conf().settings()  # type: ignore[attr-defined]
    settings.put("spark.sql.shuffle.partitions", "auto")  # as on a platform that decides the number itself
    assert [sorted_parts(session, rows) for rows in (0, 50 * usual, 50 * usual + 1)] == [usual, usual, usual + 1]


@pytest.mark.parametrize("records", [20_000, 0], ids=["few", "many"])
def test_a_batch_whose_reading_an_election_crosses_is_read_again_before_anything_is_written(
    spark: SparkSession, few: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    path = empty_warehouse
    limit_driver(monkeypatch, records=records)
    write_offset_log(path / "_checkpoints" / "default", [100])

    class Crossed(NoPositions):
        """An election during the first reading."""

        def __init__(self) -> None:
            self.written: list[list[int]] = []

        def before_read(self) -> None:
            self.written.append([DeltaTable(path / one.name).version() for one in tables()])

        def after_read(self, ends: Mapping[int, int] | None) -> bool:
            del ends
            return len(self.written) > 1

    positions = Crossed()
    batch_writer(spark, path, positions=positions)(batch(spark, ROWS), 0)
    assert len(positions.written) >= 2  # many records: once more, as the reading of few is given up
    assert all(versions == positions.written[0] for versions in positions.written)
    assert [row["group_id"] for row in content(path)["groups"]] == [row["group_id"] for row in content(few)["groups"]]
    assert len(content(path)["quarantine"]) == 2


class Watched(NoPositions):
    """Notes whether each reading of a batch comes between the questions about elections."""

    def __init__(self, directory: Path) -> None:
        self.asking, self.readings = directory / "asking", directory / "readings"

    def before_read(self) -> None:
        self.asking.touch()

    def after_read(self, ends: Mapping[int, int] | None) -> bool:
        del ends
        self.asking.unlink()
        return True

    def watch(self, records: DataFrame) -> DataFrame:
        asking, readings = self.asking, self.readings

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with readings.open("a", encoding="utf-8") as file:
                file.write("checked\n" if asking.exists() else "unchecked\n")
            return batches

        return records.coalesce(1).mapInArrow(read, records.schema)


@pytest.mark.parametrize(
    "limits", [{"groups": 1, "records": 20}, {"size": 500}], ids=["many groups, in parts", "many bytes"]
)
def test_where_spark_writes_a_batch_that_was_read_as_a_small_one_no_reading_goes_unchecked(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    path, positions, offsets = empty_warehouse, Watched(tmp_path), 36
    write_offset_log(path / "_checkpoints" / "default", [2, offsets])
    write = batch_writer(spark, path, positions=positions)
    write(batch(spark, ROWS[:2]), 0)
    limit_driver(monkeypatch, **limits)
    monkeypatch.setattr(slices, "_APART_RECORDS", 5)
    write(positions.watch(batch(spark, ROWS[2:offsets])), 1)
    assert set(positions.readings.read_text("utf-8").split()) == {"checked"}
    assert len(content(path)["groups"]) == 3


def test_batches_that_one_job_reads_give_the_same_tables(
    spark: SparkSession, few: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = [3, 10, 36, 37]  # the fourth batch holds nothing but an offset commit
    monkeypatch.setattr(GroupsBatchWriter, "_write_many", lambda *_: pytest.fail("the batches are small"))
    monkeypatch.setattr(BatchRecords, "of_spark", lambda *_: pytest.fail("the batches are small"))
    write_offset_log(empty_warehouse / "_checkpoints" / "default", [*cuts, len(list(history()))])
    outcomes = write_history(spark, empty_warehouse, cuts)
    assert content(empty_warehouse) == content(few)
    assert [sum(outcome.by_type.values()) for outcome in outcomes] == [3, 7, 26, 0, 3, 3]
    assert outcomes[-2].by_type == {24: 1, -1: 1, 17: 1}


def test_a_batch_whose_keys_name_no_group_is_set_aside_and_the_job_goes_on(
    spark: SparkSession, empty_warehouse: Path
) -> None:
    """Such records alone in a batch, which whoever may write into the topic can write, ended the job."""
    write_offset_log(empty_warehouse / "_checkpoints" / "default", [1, 3])
    write = batch_writer(spark, empty_warehouse)
    write(batch(spark, [(0, START, *encode(17, {"group_id": "g"}, {"epoch": 2}))]), 0)
    write(batch(spark, [(1, START, b"\x00\x11", b"\x00\x00"), (2, START, b"\x00\x63", b"")]), 1)
    assert len(content(empty_warehouse)["quarantine"]) == 2
    assert [row["group_id"] for row in content(empty_warehouse)["groups"]] == ["g"]


@pytest.mark.parametrize("few_records", [0, 20_000], ids=["workers", "driver"])
def test_records_of_an_unknown_type_are_counted_and_one_is_kept(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch, few_records: int
) -> None:
    """Type 24 (KAFKA-20171) of 1,000 groups, twice, also after a restart: one sample, and no row of a group."""
    limit_driver(monkeypatch, records=few_records)
    keys = [b"\x00\x18" + len(name).to_bytes(2, "big") + name for name in (f"g{n}".encode() for n in range(1_000))]
    outcomes: list[CommittedBatch] = []
    for batch_id in range(3):
        if batch_id != 1:
            write = batch_writer(spark, empty_warehouse, on_done=lambda _, outcome: outcomes.append(outcome))
        write(batch(spark, [(1_000 * batch_id + n, START, key, b"\0\0") for n, key in enumerate(keys)]), batch_id)
    assert [(outcome.unknown, outcome.quarantined) for outcome in outcomes] == [({24: 1_000}, 0)] * 3
    rows = content(empty_warehouse)
    assert 1 <= len(rows["quarantine"]) <= spark.sparkContext.defaultParallelism
    assert {(row["error_kind"], row["value"]) for row in rows["quarantine"]} == {("UnknownRecordType", b"\0\0")}
    assert rows["groups"] == []


def test_groups_that_are_not_ready_get_their_reason_also_where_workers_fold_them(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_driver(monkeypatch, records=0)
    write = batch_writer(spark, empty_warehouse, topics=lambda _names: {"other": 1})
    configs = [{"key": "k", "value": "v"}]
    epochs = [encode(17, {"group_id": one}, {"epoch": 2, "last_assignment_configs": configs}) for one in GROUPS]
    rows = rows_of([*(pair for pair in history() if pair[0] and pair[0][1] in {19, 23}), *epochs])
    for number, part in enumerate((rows[:-1], rows[-1:])):
        write(batch(spark, part), number)
    reason = "MISSING_SOURCE_TOPICS: Source topics in are missing."
    found = content(empty_warehouse)
    assert [(one["state"], one["not_ready_reason"]) for one in found["groups"]] == [("NotReady", reason)] * 3
    assert [one["new"] for one in found["group_events"] if one["kind"] == "not_ready_reason"] == [reason] * 3
