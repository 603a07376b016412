"""What the job does with one micro-batch: filter in the JVM, fold in Python, append events, replace the rows of groups.

The order matters. Events and quarantine are written first, marked with the batch so that Delta skips a second append;
groups are written last. A crash in between repeats the batch from the checkpoint: nothing is lost, nothing is written
twice, and rows that were written already skip the records that they contain.

A batch of few records is folded in this process, one of many by Spark's workers, by the same code: starting workers, a
shuffle and a merge takes seconds whatever the size, and most batches of a running cluster are small. A batch with large
records, or one that failed repeatedly, is written slice by slice, see `slices`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import SHIPPED
from schemas.table_definitions import history_tables, table
from streaming_app.errors import JobError
from streaming_app.stream.batch_times import BatchTimes
from streaming_app.stream.fold_stage import (
    STORED_OFFSET,
    TopicLookup,
    fold_stream,
    sort_for_fold,
    stored_as_records,
)
from streaming_app.stream.outcome import FoldOptions
from streaming_app.stream.outputs import APPENDED, COUNTS, EVENTS, FOLDED_DDL, RETRACTED, Output
from streaming_app.stream.slice_plans import SlicePlans
from streaming_app.stream.slices import LARGE_RECORD, SLICE_BYTES, WHOLE, Boundary, LargeRecord, Offsets, Slice
from streaming_app.stream.source import GROUP_BYTES, RECORD_TYPE, WANTED_RECORDS
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.tables.checkpoint_offsets import checkpoint_location

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from streaming_app.tables.delta_writer import DeltaWriter
    from streaming_app.tables.maintenance import Maintenance

_FEW_RECORDS = 20_000
_FEW_BYTES = 32 << 20  # of a batch that this process folds: it holds them a few times over, and so does the JVM
_FEW_GROUPS = 2_000  # a small batch names its groups to Delta one by one
_ARROW_BYTES = 8 << 20  # that a worker gets at once; by default Spark limits the records only, to 10,000
_SIZE = "coalesce(length(key), 0) + coalesce(length(value), 0)"
_STORED_AS_RECORD = (
    "encode(group_id, 'UTF-8') AS group_bytes",
    f"{STORED_OFFSET}L AS offset",
    "CAST(NULL AS int) AS partition",
    "CAST(NULL AS timestamp) AS timestamp",
    "CAST(NULL AS binary) AS key",
    "CAST(NULL AS binary) AS value",
    "struct(*) AS stored",
)


@dataclass(frozen=True)
class BatchOutcome:
    """The counts of one batch."""

    decoded: int = 0
    groups: int = 0
    quarantined: int = 0
    drifted: int = 0
    by_type: Mapping[int, int] = field(default_factory=dict)
    """Records that left the JVM, by record type; -1 for those without a key."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase, see `batch_times`."""

    def texts(self) -> list[str]:
        """Return the counts as the line of the batch has them."""
        return [
            f"{self.decoded:,} decoded",
            f"{self.groups:,} groups",
            f"{self.quarantined:,} quarantined",
            *([f"{self.drifted:,} with unknown tags"] if self.drifted else []),
        ]


class GroupListener(Protocol):
    """Receives the groups that changed, once they are in the tables."""

    def on_rows(self, folded: pa.Table) -> None:
        """Receive the rows that were written, with the columns of `FOLDED_DDL`."""

    def on_bulk_change(self) -> None:
        """Learn that many rows were written: reading them from the table is cheaper than passing them here."""


class _Batch(NamedTuple):
    """Identifies a batch, or a slice of one, to Delta, which skips an append that it has already committed."""

    writer: str
    version: int


class _Summary(NamedTuple):
    """What a batch or a slice of it holds."""

    by_type: Mapping[int, int]
    size: int
    """Bytes of keys and values."""
    large_size: int
    """Bytes of large records, see `slices`."""

    @property
    def records(self) -> int:
        return sum(self.by_type.values())

    @property
    def is_small(self) -> bool:
        """Whether this process folds it, unless it is of very many groups."""
        return self.records <= _FEW_RECORDS and self.size <= _FEW_BYTES


class MicroBatchWriter:
    """Called by Spark with every micro-batch; passes the counts of each to `on_done`."""

    def __init__(  # noqa: PLR0913 - the rest is for the job, not for tests
        self,
        writer: DeltaWriter,
        cluster: str,
        topic: str,
        on_done: Callable[[int, BatchOutcome], None],
        *,
        history_offsets: Mapping[str, Mapping[int, int]] | None = None,
        partitions: int | None = None,
        partitions_grew: bool = False,
        topics: TopicLookup | None = None,
        maintenance: Maintenance | None = None,
        listener: GroupListener | None = None,
        dialect: str = SHIPPED,
    ) -> None:
        """Prepare for batches of `topic`.

        `history_offsets` is what the history tables hold already, by table and partition, see `checkpoint`; `topics`
        finds the reasons of NotReady; the rest is as in `FoldOptions`.
        """
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark is loaded by those who need it
        from pyspark.sql.types import StructType  # noqa: PLC0415

        self._writer = writer
        self._few_rows_writer = writer.without_codegen()
        self._cluster = cluster
        self._on_done = on_done
        self._maintenance = maintenance
        self._listener = listener
        self._is_first = writer.is_empty("groups")
        offsets = history_offsets or {}
        self._beyond_history = {
            one.name: _beyond_history(str(one.partition_column), offsets.get(one.name)) for one in history_tables()
        }
        self._schema = to_arrow_schema(StructType.fromDDL(FOLDED_DDL))  # type: ignore[arg-type] # it is a StructType
        options = FoldOptions(cluster, topic, dialect, partitions, partitions_grew, offsets.get(EVENTS.table, {}))
        self._fold = partial(fold_stream, schema=self._schema, options=options)
        self._topics = topics
        checkpoint = checkpoint_location(writer.location, cluster)
        self._plans = SlicePlans(writer.files, checkpoint)
        self._versions = TableVersions(writer, checkpoint)
        self._topics_writer = ""  # of the batch that is written
        self._times = BatchTimes()  # of the same
        self._lock = Lock()  # held while the tables are read, folded and written

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of the Kafka source into the tables, and run the maintenance that is due."""
        with self._lock:
            self._process(batch, batch_id)

    @contextmanager
    def between_batches(self, timeout: float) -> Iterator[None]:
        """Run the block while no batch runs; the next one waits for it. The block may write rows of `groups`.

        Raises JobError if a batch runs for longer than `timeout` seconds.
        """
        if not self._lock.acquire(timeout=timeout):
            raise JobError(f"A batch has been running for more than {timeout:.0f} s")
        try:
            self._is_first = False  # as the block may add the first row
            yield
        finally:
            self._lock.release()

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._cluster
        writer, self._topics_writer = batch_writers(self._cluster, query)
        self._plans.begin(writer, batch_id)
        self._times = BatchTimes()
        raw = batch.where(WANTED_RECORDS).selectExpr(
            f"{GROUP_BYTES} AS group_bytes", "offset", "partition", "timestamp", "key", "value"
        )
        raw = raw.persist()
        try:
            with self._times.measure("read"):
                summary = _summarize(raw)  # the one reading of the topic
            counts: Counter[str] = Counter()
            start: Boundary | None = None
            for one in self._slices(raw, summary):
                is_whole = start is one.end
                part = raw if is_whole else raw.where(_between(start, one.end))
                part_summary = summary if is_whole else _summarize(part)
                counts.update(self._write(part, part_summary, _Batch(writer, one.version(batch_id))))
                start = one.end
        finally:
            raw.unpersist()
        totals = {name: counts[name] for name in ("decoded", "groups", "quarantined", "drifted")}
        if any(totals.values()):
            with self._times.measure("checkpoint"):
                self._versions.write()
        self._on_done(batch_id, BatchOutcome(**totals, by_type=summary.by_type, seconds=self._times.seconds))
        if self._maintenance:
            self._maintenance.after_batch(wrote=any(totals.values()))

    def _slices(self, raw: DataFrame, summary: _Summary) -> tuple[Slice, ...]:
        if not summary.records:
            return WHOLE
        if summary.large_size <= SLICE_BYTES and self._plans.is_whole:
            return self._plans.keep_whole(large=not summary.is_small)
        return self._plans.divide(_offsets(raw), _large_records(raw))

    def _write(self, raw: DataFrame, summary: _Summary, batch: _Batch) -> Mapping[str, int]:
        if not summary.records:
            return {}
        if summary.is_small:
            with self._times.measure("read"):
                table_of_records = raw.toArrow()
            keys = [key for key in pc.unique(table_of_records["group_bytes"]).to_pylist() if key is not None]
            if len(keys) <= _FEW_GROUPS:
                group_ids = [key.decode("utf-8", "replace") for key in keys]
                return self._write_few(table_of_records, group_ids, batch)
        counts = self._write_many(raw, batch)
        self._refresh_reasons(batch)
        return counts

    def _write_few(self, records: pa.Table, group_ids: list[str], batch: _Batch) -> Mapping[str, int]:
        stored = None
        if not self._is_first:
            with self._times.measure("stored"):
                stored = stored_as_records(self._few_rows_writer.find_stored_groups("group_id", group_ids))
        return self._fold_here(records, stored, batch)

    def _refresh_reasons(self, batch: _Batch) -> None:
        """Give the NotReady groups their reasons: workers cannot ask the brokers, so they leave them out."""
        if self._topics:
            with self._times.measure("stored"):
                stored = stored_as_records(self._few_rows_writer.find_stored_groups("state", ["NotReady"]))
            no_records = stored.drop_columns("stored").slice(0, 0)
            self._fold_here(no_records, stored, batch._replace(writer=self._topics_writer))

    def _fold_here(self, records: pa.Table, stored: pa.Table | None, batch: _Batch) -> Mapping[str, int]:
        with self._times.measure("fold"):
            ordered = sort_for_fold(records, stored)
            folded = pa.Table.from_batches(self._fold(ordered.to_batches(), topics=self._topics), self._schema)
        if not folded.num_rows:  # only records of groups of other types
            return {}
        counts = {name: pc.sum(folded[name]).as_py() for name in COUNTS}
        frame = self._few_rows_writer.to_dataframe(folded)
        self._append(self._few_rows_writer, frame, counts, batch)
        with self._times.measure("groups"):
            if counts["groups"] and stored is not None and stored.num_rows:
                group_ids = folded["group_id"].drop_null().to_pylist()
                self._few_rows_writer.replace_groups(_groups(frame), group_ids)
            elif counts["groups"]:
                self._is_first = False  # from now on, even if the next line fails
                self._few_rows_writer.add_groups(_groups(frame))
        if self._listener:
            self._listener.on_rows(folded)
        return counts

    def _write_many(self, raw: DataFrame, batch: _Batch) -> Mapping[str, int]:
        stored, is_first = self._writer.stored_groups(), self._is_first
        records = raw.selectExpr("*", "NULL AS stored")
        if not is_first:
            touched = raw.select("group_bytes").distinct()
            records = records.unionByName(
                stored.selectExpr(*_STORED_AS_RECORD).join(touched, "group_bytes", "left_semi")
            )
        raw.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _ARROW_BYTES)
        ordered = records.repartition("group_bytes").sortWithinPartitions("group_bytes", "offset")
        folded = ordered.mapInArrow(self._fold, FOLDED_DDL).persist()
        try:
            sums = folded.selectExpr(*(f"coalesce(sum({name}), 0) AS {name}" for name in COUNTS))
            with self._times.measure("fold"):  # and the stored rows are read
                counts = sums.collect()[0].asDict()
            self._append(self._writer, folded, counts, batch)
            if counts["groups"]:
                write = self._writer.add_groups if is_first else self._writer.merge_groups
                self._is_first = False
                with self._times.measure("groups"):
                    write(_groups(folded))
            if self._listener:
                self._listener.on_bulk_change()
        finally:
            folded.unpersist()
        return counts

    def _append(self, writer: DeltaWriter, folded: DataFrame, counts: Mapping[str, int], batch: _Batch) -> None:
        with self._times.measure("history"):
            for output in APPENDED:
                rows = _rows_of(folded, output, output.column).where(self._beyond_history[output.table])
                if output is EVENTS and counts["retracted_events"]:
                    writer.rewrite_events(rows, _rows_of(folded, EVENTS, RETRACTED))
                elif counts[output.count_column]:
                    writer.append(output.table, rows, *batch)


def _summarize(raw: DataFrame) -> _Summary:
    sizes = raw.selectExpr(f"{RECORD_TYPE} AS type", f"{_SIZE} AS size").selectExpr(
        "type", "size", f"if(size >= {LARGE_RECORD}, size, 0) AS large"
    )
    rows = sizes.groupBy("type").agg({"*": "count", "size": "sum", "large": "sum"}).collect()
    by_type = {row["type"]: row["count(1)"] for row in rows}
    return _Summary(by_type, sum(row["sum(size)"] for row in rows), sum(row["sum(large)"] for row in rows))


def _offsets(raw: DataFrame) -> dict[int, Offsets]:
    ranges = raw.selectExpr("partition", "offset AS first", "offset + 1 AS next").groupBy("partition")
    rows = ranges.agg({"first": "min", "next": "max"}).collect()
    return {row["partition"]: Offsets(row["min(first)"], row["max(next)"]) for row in rows}


def _large_records(raw: DataFrame) -> list[LargeRecord]:
    """Return the large records in the order of (partition, offset): one for 64 kB of the batch at most."""
    rows = raw.where(f"{_SIZE} >= {LARGE_RECORD}").selectExpr("partition", "offset", f"{_SIZE} AS size")
    return sorted(LargeRecord(*row) for row in rows.collect())


def _between(start: Boundary | None, end: Boundary | None) -> str:
    """Return the SQL condition that a record is in the slice between two boundaries."""
    return " AND ".join((f"NOT {_is_before(start)}" if start else "true", _is_before(end) if end else "true"))


def _is_before(boundary: Boundary) -> str:
    partition, offset = boundary
    return f"(partition < {partition} OR (partition = {partition} AND offset < {offset}))"


def _groups(folded: DataFrame) -> DataFrame:
    return folded.where("group_id IS NOT NULL").select(*table("groups").names)


def _rows_of(folded: DataFrame, output: Output, column: str) -> DataFrame:
    exploded = folded.selectExpr("cluster", "group_id", f"explode({column}) AS row")
    return exploded.select("cluster", "group_id", "row.*").select(*table(output.table).names)


def _beyond_history(partition_column: str, reached: Mapping[int, int] | None) -> str:
    """Return the condition that a row is beyond what the history holds."""
    if not reached:
        return "true"
    pairs = ", ".join(f"{partition}, {offset}L" for partition, offset in reached.items())
    return f"offset > coalesce(map({pairs})[{partition_column}], -1)"
