"""What the job does with one micro-batch: filter in the JVM, fold in Python, append events, replace the rows of groups.

The order matters. Events and quarantine are written first, marked with the batch so that Delta skips a second append;
groups are written last. A crash in between repeats the batch from the checkpoint: nothing is lost, nothing is written
twice, and rows that were written already skip the records that they contain.

A batch of few records is folded in this process, one of many by Spark's workers, see `driver_limits`: the fold is the
same code. A batch with large records, or one that failed repeatedly, is written slice by slice, see `slices`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import SHIPPED
from streaming_app.errors import JobError
from streaming_app.groups.budget import DEFAULT, Budget
from streaming_app.groups.not_ready import TopicLookup
from streaming_app.groups.state_rules import NOT_READY
from streaming_app.stream.batch_outcome import BatchTimes, GroupListener, GroupsOutcome
from streaming_app.stream.batch_rows import BatchRows, make_in_workers
from streaming_app.stream.few_records import FewRecords, read_few
from streaming_app.stream.fold_stage import (
    STORED_OFFSET,
    fold_in_worker,
    fold_stream,
    sort_for_fold,
    stored_as_records,
)
from streaming_app.stream.kept_records import KeptRecords, between, of_groups
from streaming_app.stream.log_positions import NoPositions, read_again, read_whole
from streaming_app.stream.outcome import FoldOptions
from streaming_app.stream.outputs import APPENDED, EVENTS, FOLDED_DDL, RETRACTED, HistoryOffsets, rows_of
from streaming_app.stream.slices import SLICE_BYTES, WHOLE, Slice, SlicePlans, Summary
from streaming_app.stream.source import MEASURES, RAW, wanted_records
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.tables.arrow import arrow_schema
from streaming_app.tables.checkpoint_offsets import BatchOffsets, checkpoint_location
from streaming_app.tables.definitions import table
from streaming_app.tables.driver_limits import GROUPS, fits_driver
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.writer import sorted_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streaming_app.kafka.log_reader import LogReader
    from streaming_app.stream.log_positions import LogPositions
    from streaming_app.tables.maintenance import Maintenance
    from streaming_app.tables.writer import TableWriter

T = TypeVar("T")

_SORTED_RECORDS = 50_000  # that Spark sorts at a time, in each task
_STORED_AS_RECORD = (
    "encode(group_id, 'UTF-8') AS group_bytes",
    f"{STORED_OFFSET}L AS offset",
    "CAST(NULL AS int) AS partition",
    "CAST(NULL AS timestamp) AS timestamp",
    "CAST(NULL AS binary) AS key",
    "CAST(NULL AS binary) AS value",
    "struct(*) AS stored",
)


_Keep = Callable[["DataFrame"], AbstractContextManager["DataFrame"]]
"""Gives records as Spark keeps them while they are written, since the source may give others when it is read again."""


class _Batch(NamedTuple):
    """Identifies a batch, or a slice of one, to Delta, which skips an append that it has already committed."""

    writers: tuple[str, ...]
    """Of `batch_writers`: the first is asked whether it was committed, and it is then committed for all."""
    version: int


class GroupsBatchWriter:
    """Called by Spark with every micro-batch; passes the counts of each to `on_done`."""

    def __init__(  # noqa: PLR0913 - the rest is for the job, not for tests
        self,
        writer: TableWriter,
        cluster: str,
        topic: str,
        on_done: Callable[[int, GroupsOutcome], None],
        *,
        history_offsets: HistoryOffsets | None = None,
        partitions: int | None = None,
        partitions_grew: bool = False,
        topics: TopicLookup | None = None,
        open_log: Callable[[], AbstractContextManager[LogReader | None]] = nullcontext,
        check_topic: Callable[[], None] = lambda: None,
        positions: LogPositions | None = None,
        maintenance: Maintenance | None = None,
        listener: GroupListener | None = None,
        dialect: str = SHIPPED,
        lock: Lock | None = None,
        budget: Budget = DEFAULT,
        free_heap: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare for batches of `topic`.

        `history_offsets` is what the history tables hold already, by table and partition, see `start`; `topics`
        finds the reasons of NotReady; `open_log` gives what reads large records, or None if only Spark can;
        `check_topic` is called once the records of a batch are read, and raises if they may be of another topic;
        `positions` are asked before and after that; `lock` is held by each batch; `free_heap` is called after one that
        Spark kept; the rest is as in `FoldOptions`.
        """
        self._writer = writer
        self._group_rows = GroupRows(writer)
        self._cluster = cluster
        self._on_done = on_done
        self._check_topic = check_topic
        self._maintenance = maintenance
        self._listener = listener
        self._is_first = writer.is_empty("groups")
        self._reached = history_offsets or {}
        self._schema = arrow_schema(FOLDED_DDL)
        self._positions = positions or NoPositions()
        reached, chains = self._reached.get(EVENTS.table, {}), self._positions.chains
        options = FoldOptions(cluster, topic, dialect, partitions, partitions_grew, reached, chains, budget)
        self._fold = partial(fold_stream, schema=self._schema, options=options)
        self._fold_in_worker = partial(fold_in_worker, schema=self._schema, options=options, reached=self._reached)
        self._topics, self._open_log = topics, open_log
        checkpoint = checkpoint_location(writer.location, cluster)
        self._offsets = BatchOffsets(checkpoint)
        self._plans = SlicePlans(writer.files, checkpoint)
        self._versions = TableVersions(writer, checkpoint, version=self._group_rows.version)
        self._free_heap = free_heap
        self._times = BatchTimes()  # of the batch that is written
        self._is_running = False  # a batch was written
        self._lock = lock or Lock()  # held while the tables are read, folded and written

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of the Kafka source into the tables."""
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
        writers = batch_writers(self._cluster, query)
        self._plans.begin(writers[0], batch_id)
        self._times = BatchTimes()
        records = wanted_records(batch)
        with self._times.measure("read"):
            most = self._offsets.most_records(batch_id)
            # The first batch may be that of a catch-up, in which most groups have few records: Spark reads it once.
            limit = {"read" if self._is_running else "records": most or 0}
            is_few = most is not None and fits_driver(GROUPS, **limit) and self._plans.is_whole
            few = self._read(lambda: read_few(records, most or 0)) if is_few else None
        if few is None:
            summary, counts = self._keep_and_write(records, writers, batch_id)
        else:
            summary = few.summarize()
            counts = self._write_read(few, summary, records, writers, batch_id)
        totals = {name: counts[name] for name in ("decoded", "groups", "quarantined", "drifted")}
        if any(totals.values()):
            with self._times.measure("checkpoint"):
                self._versions.write()
        self._on_done(batch_id, GroupsOutcome(**totals, by_type=summary.by_type, seconds=self._times.seconds))
        self._is_running = True
        if self._maintenance:
            self._maintenance.after_batch(wrote=any(totals.values()))

    def _read(self, read: Callable[[], T]) -> T:
        """Return what was read of one log of one topic."""
        found = read_whole(self._positions, read, self._offsets.ends)
        self._check_topic()
        return found

    def _write_read(
        self, few: FewRecords, summary: Summary, records: DataFrame, writers: tuple[str, str], batch_id: int
    ) -> Counter[str]:
        """Write the records `few`, divided if they are large or many; what cannot be divided is left to Spark."""
        if few.is_whole and summary.is_small:
            whole = _Batch(writers, WHOLE[0].version(batch_id))
            return Counter(self._write_small(few.table.select(list(RAW)), records, whole, self._keep))
        apart = few.groups_apart(summary)
        is_divided = fits_driver(GROUPS, records=summary.records) or apart
        with self._open_log() if is_divided else nullcontext() as log:
            if log is None:
                return self._keep_and_write(records, writers, batch_id)[1]
            few = few._replace(read_log=log.read, checked=self._read, apart=apart)
            return self._write_slices(few, summary, records, writers, batch_id)

    @contextmanager
    def _keep(self, records: DataFrame) -> Iterator[DataFrame]:
        """Give the records of a batch that this process has read, for Spark: read once more, once, of one log."""
        from pyspark import StorageLevel  # noqa: PLC0415 - Spark is loaded by those who need it

        kept = records.persist(StorageLevel.DISK_ONLY)
        try:
            with self._times.measure("read"):
                self._read(lambda: read_again(kept).count())
            yield kept
        finally:
            kept.unpersist()

    def _keep_and_write(
        self, records: DataFrame, writers: tuple[str, str], batch_id: int
    ) -> tuple[Summary, Counter[str]]:
        from pyspark import StorageLevel  # noqa: PLC0415 - Spark is loaded by those who need it

        records = records.persist(StorageLevel.DISK_ONLY)  # in memory it would be garbage of the heap soon
        sizes = records.select(*MEASURES).persist(StorageLevel.DISK_ONLY)
        kept = KeptRecords(records, sizes)
        try:
            with self._times.measure("read"):
                summary = self._read(kept.read_and_summarize)
            return summary, self._write_slices(kept, summary, records, writers, batch_id)
        finally:
            sizes.unpersist()
            records.unpersist()
            self._free_heap()

    def _write_slices(
        self,
        found: FewRecords | KeptRecords,
        summary: Summary,
        records: DataFrame,
        writers: tuple[str, str],
        batch_id: int,
    ) -> Counter[str]:
        counts: Counter[str] = Counter()
        keep: _Keep = self._keep if isinstance(found, FewRecords) else nullcontext
        for one, part, records_of_part, few in self._read_slices(found, summary, records):
            batch = _Batch(writers, one.version(batch_id))
            if few is None:
                with keep(part) as kept:
                    counts.update(self._write_many(kept, records_of_part, batch))
            else:
                counts.update(self._write_small(few, part, batch, keep))
        return counts

    def _divide(self, found: FewRecords | KeptRecords, summary: Summary) -> tuple[Slice, ...]:
        if not summary.records:
            return WHOLE
        apart = found.groups_apart(summary) if self._plans.is_whole else []
        if summary.large_size <= SLICE_BYTES and self._plans.is_whole and not apart:
            return self._plans.keep_whole(large=not summary.is_small)
        cuts = found.record_cuts(apart, summary) if apart else ()
        offsets = found.partition_offsets() if self._plans.is_halved else {}
        return self._plans.divide(offsets, found.large_records(), apart, cuts)

    def _read_slices(
        self, found: FewRecords | KeptRecords, summary: Summary, records: DataFrame
    ) -> Iterator[tuple[Slice, DataFrame, int, pa.Table | None]]:
        """Yield each slice that has records: as Spark has them, how many, and as Arrow if they are few."""
        slices = self._divide(found, summary)
        apart, starts = self._plans.apart, [None, *(one.end for one in slices)]
        places = list(zip(starts, slices, strict=False))
        with self._times.measure("read"):
            summaries = [summary] if slices is WHOLE else found.summarize_slices(places, apart)
        few = found.read_slices(places, apart, [n for n, one in enumerate(summaries) if one.records and one.is_small])
        for (start, one), part in zip(places, summaries, strict=True):
            if part.records:
                condition = f"{between(start, one.end)} AND {of_groups(apart, are_these=one.is_apart)}"
                with self._times.measure("read"):
                    table = next(few) if part.is_small else None
                yield one, records.where(condition), part.records, table

    def _write_small(self, few: pa.Table, records: DataFrame, batch: _Batch, keep: _Keep) -> Mapping[str, int]:
        """Write the records `few`, which are those of `records`; Spark writes what `keep` gives of these."""
        if not few.num_rows:
            return {}
        keys = [key for key in pc.unique(few["group_bytes"]).to_pylist() if key is not None]
        if not fits_driver(GROUPS, groups=len(keys)):
            with keep(records) as kept:
                return self._write_many(kept, few.num_rows, batch)
        return self._write_few(few, [key.decode("utf-8", "replace") for key in keys], batch)

    def _write_few(self, records: pa.Table, group_ids: list[str], batch: _Batch) -> Mapping[str, int]:
        stored = None
        if not self._is_first:
            with self._times.measure("stored"):
                stored = stored_as_records(self._group_rows.find("group_id", group_ids))
        return self._fold_here(records, stored, batch)

    def _refresh_reasons(self, batch: _Batch) -> None:
        """Give the NotReady groups their reasons: workers cannot ask the brokers, so they leave them out."""
        if self._topics:
            with self._times.measure("stored"):
                stored = stored_as_records(self._group_rows.find("state", [NOT_READY]))
            no_records = stored.drop_columns("stored").slice(0, 0)
            self._fold_here(no_records, stored, batch._replace(writers=batch.writers[1:]))

    def _fold_here(self, records: pa.Table, stored: pa.Table | None, batch: _Batch) -> Mapping[str, int]:
        with self._times.measure("fold"):
            ordered = sort_for_fold(records, stored)
            folded = pa.Table.from_batches(self._fold(ordered.to_batches(), topics=self._topics), self._schema)
        if not folded.num_rows:  # only records of groups of other types
            return {}
        rows = rows_of(folded, self._reached)
        self._write(rows, batch)
        if self._listener:
            self._listener.on_rows(folded)
        return rows.counts

    def _write(self, rows: BatchRows, batch: _Batch) -> None:
        with self._times.measure("history"):
            retracted = self._rows(rows, RETRACTED, EVENTS.table)
            if retracted.num_rows:
                self._group_rows.delete_history(EVENTS.table, retracted)
            for name in (output.table for output in APPENDED):
                if name in rows.tables:
                    # With the reasons, so for all writers: where workers repeat it, they must not add them again.
                    self._group_rows.append(name, rows.tables[name], *batch)
                elif name in rows.files:
                    self._writer.append(name, rows.files[name], batch.writers[0], batch.version)
        with self._times.measure("groups"):
            groups = self._rows(rows, "groups", "groups")
            if groups.num_rows:
                self._is_first = False  # from now on, even if the next line fails
                if rows.files:
                    self._writer.replace_groups(self._writer.to_dataframe(groups), groups.num_rows)
                else:
                    self._group_rows.replace(groups, groups["group_id"].to_pylist())

    def _rows(self, rows: BatchRows, name: str, of_table: str) -> pa.Table:
        return rows.read(name, self._cluster, arrow_schema(table(of_table).ddl))

    def _write_many(self, raw: DataFrame, count: int, batch: _Batch) -> Mapping[str, int]:
        """Write the records `raw`, which are about so many."""
        stored, is_first = self._writer.stored_rows("groups"), self._is_first
        records = raw.selectExpr(*RAW, "NULL AS stored")
        if not is_first:
            touched = raw.select("group_bytes").distinct()
            records = records.unionByName(
                stored.selectExpr(*_STORED_AS_RECORD).join(touched, "group_bytes", "left_semi")
            )
        parts = sorted_parts(raw.sparkSession, count, _SORTED_RECORDS)
        ordered = records.repartition(parts, "group_bytes").sortWithinPartitions("group_bytes", "offset")
        with self._times.measure("fold"):  # and the stored rows are read
            rows = make_in_workers(ordered, self._fold_in_worker)
        self._write(rows, batch)
        if self._listener:
            self._listener.on_bulk_change()
        self._group_rows.forget_versions()
        self._refresh_reasons(batch)
        return rows.counts
