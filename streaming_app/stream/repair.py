"""Replaces the rows of a few groups by what their records give when they are folded from the beginning of the log.

Theory of operation
-------------------
The records are read from the beginning of the group's partition up to the offset that the checkpoint has, by a Spark
job of its own, while batches continue. The rows are then replaced between two batches. Records after that offset belong
to the stream: folding them here would leave their events out of the history, since the batch that reads them would skip
them. So a row that holds any of them is not replaced: a batch has written it meanwhile, and the next attempt reads
further.

Only rows of `groups` are written. What the records say about the past is in the history already. Times that a compacted
log no longer proves become null, as after reading the whole topic from the beginning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.errors import JobError
from streaming_app.groups.not_ready import TopicLookup
from streaming_app.groups.partition import partition_of
from streaming_app.groups.state_rules import NOT_READY
from streaming_app.stream.fold_stage import fold_stream, stored_as_records
from streaming_app.stream.outputs import FOLDED_DDL
from streaming_app.stream.source import EARLIEST, GROUP_BYTES, WANTED_RECORDS, read_range
from streaming_app.tables.arrow import arrow_schema
from streaming_app.tables.definitions import table
from streaming_app.tables.group_rows import GroupRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming_app.kafka.offsets_topic import OffsetsTopic
    from streaming_app.stream.outcome import FoldOptions
    from streaming_app.tables.checkpoint_offsets import CheckpointOffsets
    from streaming_app.tables.writer import TableWriter

_ATTEMPTS = 3  # for a group whose row a batch writes meanwhile
_BATCH_SECONDS = 300.0  # to wait for a running batch
_WRITE_SECONDS = 30.0  # to wait for the end of a write
_JOB_TAG = "streams-groups-repair"

Row = Mapping[str, Any]
"""A row of `groups`, as Arrow gives it."""


class RepairResult(Enum):
    """What came of reading the records of a group again."""

    REPLACED = "its row was replaced by what its records give"
    SAME = "its records give the same row"
    CHANGED = "its row changed each time while its records were read"


class ReadRange(NamedTuple):
    """What was read of a partition: the offsets below `stop`, which batches had processed; `end` is the log's end."""

    partition: int
    stop: int
    end: int


class Repair(Protocol):
    """What the services of the job need of `GroupRepair`."""

    def repair(
        self,
        group_ids: Sequence[str],
        end_offsets: Callable[[], Mapping[int, int]],
        is_same: Callable[[Any, Any], bool],
    ) -> Mapping[str, RepairResult]:
        """Read the records of these groups again, and return what came of each."""

    def close(self) -> None:
        """Wait for a write that has begun, and let no other begin."""


class GroupRepair:
    """Reads the records of groups again, for one cluster. Safe to use from one thread, and to close from another."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        spark: SparkSession,
        writer: TableWriter,
        read: Callable[[int, int], DataFrame],
        options: FoldOptions,
        *,
        between_batches: Callable[[float], AbstractContextManager[None]],
        processed: Callable[[], CheckpointOffsets | None],
        on_change: Callable[[], None],
        topics: TopicLookup | None = None,
    ) -> None:
        """Prepare. `read` is as `read_partition`, of which it reads everything below an offset.

        `between_batches` holds off the batches for a block; `on_change` is called in it, after rows were replaced.
        """
        self._context = spark.sparkContext
        self._writer = GroupRows(writer)
        self._read, self._between_batches, self._processed = read, between_batches, processed
        self._on_change, self._topics = on_change, topics
        self._schema = arrow_schema(FOLDED_DDL)
        self._fold = partial(fold_stream, schema=self._schema, options=options)
        self._closed = threading.Event()
        self._writing = threading.Lock()

    def repair(
        self,
        group_ids: Sequence[str],
        end_offsets: Callable[[], Mapping[int, int]],
        is_same: Callable[[Row | None, Row | None], bool],
    ) -> dict[str, RepairResult]:
        """Read the records of these groups again, and replace each row that is not the same; return what came of it.

        `end_offsets` returns the end offset of each partition. Raises JobError if there is no checkpoint or a batch
        does not end, and Spark's errors.
        """
        results = dict.fromkeys(group_ids, RepairResult.CHANGED)
        for _ in range(_ATTEMPTS):
            remaining = [group_id for group_id, result in results.items() if result is RepairResult.CHANGED]
            if remaining:
                results |= self._attempt(remaining, end_offsets, is_same)
        return results

    def close(self) -> None:
        """Stop reading, wait for a write that has begun, and let no other begin."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is loaded by those who need it

        self._closed.set()
        with suppress(Py4JError, OSError):  # the JVM may be gone
            self._context.cancelJobsWithTag(_JOB_TAG)
        if self._writing.acquire(timeout=_WRITE_SECONDS):
            self._writing.release()

    def _attempt(
        self,
        group_ids: Sequence[str],
        end_offsets: Callable[[], Mapping[int, int]],
        is_same: Callable[[Row | None, Row | None], bool],
    ) -> dict[str, RepairResult]:
        before = self._stored(group_ids)  # read before the end offsets, which only grow
        ends, processed = end_offsets(), self._processed()
        if processed is None:
            raise JobError("The job has not finished a batch yet")
        results: dict[str, RepairResult] = {}
        for partition, ids in _by_partition(group_ids, len(processed.offsets)).items():
            span = ReadRange(partition, processed.offsets[partition], ends[partition])
            folded = self._fold_again(ids, span)
            with self._between_batches(_BATCH_SECONDS), self._writing:
                if self._closed.is_set():
                    raise JobError("The job ends")
                results |= self._replace(ids, folded, before, span, is_same)
        return results

    def _fold_again(self, group_ids: Sequence[str], span: ReadRange) -> pa.Table:
        """Return the rows that the records of these groups give, without those that have no records."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        ids = [group_id.encode() for group_id in group_ids]
        records = self._read(span.partition, span.stop).where(WANTED_RECORDS)
        records = records.selectExpr(
            f"{GROUP_BYTES} AS group_bytes", "offset", "partition", "timestamp", "key", "value", "NULL AS stored"
        ).where(F.col("group_bytes").isin(ids))
        ordered = records.repartition("group_bytes").sortWithinPartitions("group_bytes", "offset")
        folded = ordered.mapInArrow(self._fold, FOLDED_DDL)
        self._context.addJobTag(_JOB_TAG)
        try:
            rows = folded.where("group_id IS NOT NULL").select(*table("groups").names).toArrow()
        finally:
            self._context.removeJobTag(_JOB_TAG)
        return rows.cast(pa.schema([self._schema.field(name) for name in rows.column_names]))

    def _replace(
        self,
        group_ids: Sequence[str],
        folded: pa.Table,
        before: Mapping[str, Row],
        span: ReadRange,
        is_same: Callable[[Row | None, Row | None], bool],
    ) -> dict[str, RepairResult]:
        now, fresh = self._stored(group_ids), _by_id(folded)
        results = {}
        for group_id in group_ids:
            result = RepairResult.REPLACED
            if not may_replace(before.get(group_id), now.get(group_id), span):
                result = RepairResult.CHANGED
            elif is_same(now.get(group_id), fresh.get(group_id)):
                result = RepairResult.SAME
            results[group_id] = result
        replaced = [group_id for group_id, result in results.items() if result is RepairResult.REPLACED]
        if replaced:
            rows = self._with_reasons(folded.filter(pc.is_in(folded["group_id"], pa.array(replaced, pa.string()))))
            self._writer.replace(rows, replaced)
            self._on_change()
        return results

    def _with_reasons(self, rows: pa.Table) -> pa.Table:
        """Give groups that are NotReady their reasons: Spark's workers cannot ask the brokers for the topics."""
        not_ready = rows.filter(pc.equal(rows["state"], NOT_READY))
        if self._topics is None or not not_ready.num_rows:
            return rows
        batches = self._fold(stored_as_records(not_ready).to_batches(), topics=self._topics)
        found = pa.Table.from_batches(batches, self._schema).select(rows.column_names)
        others = rows.filter(pc.invert(pc.is_in(rows["group_id"], found["group_id"].combine_chunks())))
        return pa.concat_tables([others, found])

    def _stored(self, group_ids: Sequence[str]) -> dict[str, Row]:
        return _by_id(self._writer.find("group_id", group_ids))


def read_partition(
    spark: SparkSession, properties: Mapping[str, str], topic: OffsetsTopic, partition: int, stop: int
) -> DataFrame:
    """Return the records of one partition of the topic below offset `stop`, as a table with the stream's columns."""
    return read_range(spark, properties, topic, {partition: EARLIEST}, {partition: stop})


def may_replace(before: Row | None, now: Row | None, span: ReadRange) -> bool:
    """Return whether a row may be replaced by what was read: it holds no record that was not read.

    `before` is the stored row from before the end of the log was read, `now` the row to be replaced. A row whose
    `last_offset` was beyond the end of the log is wrong, and does not count as holding newer records.
    """
    if now is None or now["source_partition"] != span.partition:
        return True
    offset = now["last_offset"]
    if offset is None or offset < span.stop:
        return True
    return before is not None and before["last_offset"] == offset >= span.end


def _by_partition(group_ids: Iterable[str], partitions: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for group_id in group_ids:
        found.setdefault(partition_of(group_id, partitions), []).append(group_id)
    return found


def _by_id(rows: pa.Table) -> dict[str, Row]:
    """Return the rows by group id; of several rows of a group the one with the highest offset."""
    ordered = sorted(rows.to_pylist(), key=lambda row: -1 if row["last_offset"] is None else row["last_offset"])
    return {row["group_id"]: row for row in ordered}
