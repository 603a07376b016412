"""Rows of groups that are wrong are replaced by what the records give; the history stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from offsets_decoder import encode
from streaming_app.checks.compare import is_same
from streaming_app.errors import JobError
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.stream.outcome import FoldOptions
from streaming_app.stream.repair import GroupRepair, RepairResult
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.encoded import group_records
from tests.support.frames import Pair, Row, batch, expect_few_records
from tests.support.locks import WatchedLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
G = 'odd "${spark.app.name}" 🎉'


def operation(epoch: int, group: str = G) -> list[Pair]:
    """Return the records of one rebalance of a group with one member."""
    return list(group_records(group, epoch, members=1))


class RepairHarness:
    """A log of one partition, the tables that the job wrote from it, and a repair."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        topics: Callable[[Any], Mapping[str, int] | None],
        *,
        after: RepairHarness | None = None,
    ) -> None:
        """Use the tables in `path`, which are without rows, or a copy of those of the harness `after`."""
        self._spark, self.path = spark, path
        self.log: list[Row] = list(after.log) if after else []
        self.written, self._batches = (after.written, after._batches) if after else (0, 0)
        self.changes: list[str] = []
        self.before_read: Callable[[], None] = lambda: None
        expect_few_records(path)
        tables = TableWriter(spark, str(path), "default")
        self.lock = WatchedLock()
        self.write = GroupsBatchWriter(tables, "default", "topic", lambda *_: None, topics=topics, lock=self.lock)
        self.repair = GroupRepair(
            spark,
            tables,
            self._read,
            FoldOptions("default", "topic"),
            between_batches=self.write.between_batches,
            processed=lambda: CheckpointOffsets("topic", 0, {0: self.written}),
            on_change=lambda: self.changes.append("changed"),
            topics=topics,
        )

    def append(self, *operations: list[Pair]) -> None:
        for records in operations:
            at = START + timedelta(seconds=len(self.log))
            self.log += [(len(self.log) + n, at, key, value) for n, (key, value) in enumerate(records)]

    def run_batch(self) -> None:
        """Write what was appended since the last batch."""
        self.write(batch(self._spark, self.log[self.written :]), self._batches)
        self.written, self._batches = len(self.log), self._batches + 1

    def _read(self, partition: int, stop: int) -> DataFrame:
        assert partition == 0
        self.before_read()
        return batch(self._spark, self.log[:stop])

    def run(self, *group_ids: str) -> dict[str, RepairResult]:
        return self.repair.repair(group_ids or (G,), lambda: {0: len(self.log)}, is_same)

    def run_in_the_middle(self, action: Callable[[], object]) -> None:
        """Run an action the first time that the log is read."""

        def once() -> None:
            self.before_read = lambda: None
            action()

        self.before_read = once

    def row(self, group_id: str = G) -> dict[str, Any] | None:
        rows = [row for row in WarehouseReader(self.path).rows("SELECT * FROM groups") if row["group_id"] == group_id]
        assert len(rows) <= 1
        return rows[0] if rows else None

    def events(self) -> list[dict[str, Any]]:
        return WarehouseReader(self.path).rows('SELECT * FROM group_events ORDER BY "offset", kind, member_id')

    def corrupt(self, *, delete: bool = False, group_id: str = G, **values: Any) -> None:
        """Change values of the stored row behind the back of the job, or copy it to another group, with delta-rs."""
        table = DeltaTable(str(self.path / "groups"))
        schema = pa.schema(table.schema().to_arrow())
        rows = WarehouseReader(self.path).query("SELECT * FROM groups").select(schema.names).cast(schema).to_pylist()
        (own,) = (row for row in rows if row["group_id"] == G)
        kept = [row for row in rows if row["group_id"] != group_id]
        changed = [] if delete else [{**own, "group_id": group_id, **values}]
        write_deltalake(table, pa.Table.from_pylist([*kept, *changed], schema), mode="overwrite")


def other_topic(_names: object) -> dict[str, int]:
    """The topics of a cluster without the one that the groups read."""
    return {"other": 1}


@pytest.fixture(scope="module")
def _written(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, create_warehouse: Callable[[Path], Path]
) -> RepairHarness:
    made = RepairHarness(spark, create_warehouse(tmp_path_factory.mktemp("repair")), other_topic)
    made.append(operation(2), operation(2, "another"))
    made.run_batch()
    made.append(operation(3))
    made.run_batch()
    return made


@pytest.fixture
def harness(spark: SparkSession, _written: RepairHarness, tmp_path: Path) -> RepairHarness:
    """The tables hold two rebalances of a group, of two batches, and another group."""
    return RepairHarness(spark, Path(shutil.copytree(_written.path, tmp_path / "copy")), other_topic, after=_written)


def test_a_wrong_row_is_replaced_and_the_history_stays(harness: RepairHarness) -> None:
    good, events = harness.row(), harness.events()
    for last_offset in (3, 10_000):  # the second one is beyond the log
        harness.corrupt(state="Empty", group_epoch=77, members=[], last_offset=last_offset)
        assert harness.run() == {G: RepairResult.REPLACED}
        assert harness.row() == good
    assert harness.events() == events
    assert harness.changes == ["changed"] * 2

    harness.append(operation(4))
    harness.run_batch()
    added = [event for event in harness.events() if event not in events]
    assert [(event["old"], event["new"]) for event in added if event["kind"] == "group_epoch"] == [("3", "4")]


def test_a_missing_row_is_added_and_one_without_records_is_removed(harness: RepairHarness) -> None:
    good, other = harness.row(), harness.row("another")
    harness.corrupt(group_id="ghost", last_offset=5)
    assert harness.run("ghost") == {"ghost": RepairResult.REPLACED}  # none of these groups has records
    harness.corrupt(group_id="ghost", last_offset=5)
    harness.corrupt(delete=True)
    assert harness.run(G, "ghost") == dict.fromkeys((G, "ghost"), RepairResult.REPLACED)
    assert (harness.row(), harness.row("ghost"), harness.row("another")) == (good, None, other)


def test_a_row_that_agrees_with_its_records_is_kept_with_what_only_it_knows(harness: RepairHarness) -> None:
    harness.corrupt(first_seen_at=START - timedelta(days=90), unsolicited_pushes=7)
    before = harness.row()
    assert harness.run(G, "never seen") == dict.fromkeys((G, "never seen"), RepairResult.SAME)
    assert harness.row() == before
    assert harness.changes == []


def test_records_that_no_batch_has_read_are_left_to_the_stream_with_their_events(harness: RepairHarness) -> None:
    harness.corrupt(state="Empty")
    harness.append(operation(4))
    assert harness.run() == {G: RepairResult.REPLACED}
    assert (harness.row() or {})["group_epoch"] == 3
    harness.run_batch()
    assert (harness.row() or {})["group_epoch"] == 4
    epochs = [event["new"] for event in harness.events() if event["kind"] == "group_epoch" and event["group_id"] == G]
    assert epochs == ["2", "3", "4"]


def test_a_batch_that_writes_the_row_meanwhile_wins_and_the_next_attempt_reads_further(
    harness: RepairHarness,
) -> None:
    def write_batch() -> None:
        metadata = {"epoch": 4, "validated_topology_epoch": 0, "last_assignment_configs": []}
        harness.append([encode(17, {"group_id": G}, metadata)])  # the members stay as they are in the row
        harness.run_batch()

    harness.corrupt(member_count=0, members=[])
    harness.run_in_the_middle(write_batch)
    assert harness.run() == {G: RepairResult.REPLACED}
    row = harness.row() or {}
    assert (row["group_epoch"], row["member_count"], len(row["members"])) == (4, 1, 1)


def test_a_row_that_batches_write_all_the_time_is_left_alone(harness: RepairHarness) -> None:
    def write_batch() -> None:
        harness.append(operation(len(harness.log)))
        harness.run_batch()

    harness.before_read = write_batch
    assert harness.run() == {G: RepairResult.CHANGED}
    assert harness.changes == []


def test_a_group_that_is_not_ready_gets_its_reason_and_no_second_event(harness: RepairHarness) -> None:
    configs = [{"key": "k", "value": "v"}]  # without any, a 4.1 broker may have written it
    not_ready = encode(17, {"group_id": G}, {"epoch": 4, "last_assignment_configs": configs})
    harness.append([not_ready])
    harness.run_batch()
    good, events = harness.row() or {}, harness.events()
    assert good["not_ready_reason"] == "MISSING_SOURCE_TOPICS: Source topics in are missing."
    harness.corrupt(state="Stable", not_ready_reason=None)
    assert harness.run() == {G: RepairResult.REPLACED}
    assert harness.row() == good
    assert harness.events() == events


def test_a_repair_waits_for_the_running_batch_and_the_next_batch_for_the_repair(harness: RepairHarness) -> None:
    good = harness.row()
    harness.corrupt(state="Empty")
    with harness.write.between_batches(0):
        repair = Thread(target=harness.run)
        assert harness.lock.holds_up(repair)
        assert (harness.row() or {})["state"] == "Empty"
        with pytest.raises(JobError, match="more than 0 s"), harness.write.between_batches(0):
            pass
    repair.join()
    assert harness.row() == good
    with harness.write.between_batches(0):
        harness.append(operation(4))
        next_batch = Thread(target=harness.run_batch)
        assert harness.lock.holds_up(next_batch)
        assert harness.row() == good
    next_batch.join()
    assert (harness.row() or {})["group_epoch"] == 4


def test_nothing_is_written_once_the_repair_is_closed(harness: RepairHarness) -> None:
    harness.corrupt(state="Empty")
    harness.run_in_the_middle(harness.repair.close)
    with pytest.raises(JobError, match="The job ends"):
        harness.run()
    assert (harness.row() or {})["state"] == "Empty"
