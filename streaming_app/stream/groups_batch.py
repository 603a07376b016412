"""One micro-batch of streams groups: filter in the JVM, fold in Python, append events, replace the rows of groups.

The order matters. Events and quarantine are written first, with the number of the batch, so that Delta skips a second
append; groups are written last. After a crash in between, Spark repeats the batch from the checkpoint. Then nothing is
lost and nothing is written twice: rows that were already written skip the records that they contain.

The driver folds few records, Spark's workers fold many (see `driver_limits`); the fold is the same code. A batch with
large records, or one that failed repeatedly, is written slice by slice (see `slices`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import SHIPPED
from streaming_app.groups.budget import DEFAULT, Budget
from streaming_app.groups.not_ready import TopicLookup
from streaming_app.groups.state_rules import NOT_READY
from streaming_app.stream.batch_outcome import BatchTimes, GroupListener, Outcome
from streaming_app.stream.batch_records import BatchRecords
from streaming_app.stream.batch_rows import BatchRows, make_in_workers, schema_of
from streaming_app.stream.fold_stage import (
    STORED_OFFSET,
    fold_in_worker,
    fold_stream,
    sort_for_fold,
    stored_as_records,
)
from streaming_app.stream.log_positions import NoPositions, read_whole
from streaming_app.stream.outcome import FoldOptions
from streaming_app.stream.outputs import APPENDED, EVENTS, FOLDED_DDL, RETRACTED, HistoryOffsets, rows_of
from streaming_app.stream.slices import Part, SlicePlans
from streaming_app.stream.source import RAW
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.tables.arrow import arrow_schema
from streaming_app.tables.checkpoint_offsets import BatchOffsets, checkpoint_location
from streaming_app.tables.driver_limits import GROUPS, fits_driver
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.writer import sorted_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streaming_app.kafka.log_reader import LogReader
    from streaming_app.stream.log_positions import LogPositions
    from streaming_app.tables.maintenance import Maintenance
    from streaming_app.tables.writer import TableWriter

_SORTED_RECORDS = 50_000  # records that Spark sorts at a time in each task
_STORED_AS_RECORD = (
    "encode(group_id, 'UTF-8') AS group_bytes",
    f"{STORED_OFFSET}L AS offset",
    "CAST(NULL AS int) AS partition",
    "CAST(NULL AS timestamp) AS timestamp",
    "CAST(NULL AS binary) AS key",
    "CAST(NULL AS binary) AS value",
    "struct(*) AS stored",
)


class _Batch(NamedTuple):
    """Identifies a batch, or a slice of one, to Delta, which skips an append that it has already committed."""

    writers: tuple[str, ...]
    """From `batch_writers`. The first is asked whether it was committed; the commit then notes the batch for all."""
    version: int


class GroupsBatchWriter:
    """Called by Spark with every micro-batch; passes the counts of each to `on_done`."""

    def __init__(  # noqa: PLR0913 - the rest is for the job, not for tests
        self,
        writer: TableWriter,
        cluster: str,
        topic: str,
        on_done: Callable[[int, Outcome], None],
        *,
        history_offsets: HistoryOffsets | None = None,
        partitions: int | None = None,
        partitions_grew: bool = False,
        topics: TopicLookup | None = None,
        open_log: Callable[[], AbstractContextManager[LogReader | None]] = nullcontext,
        positions: LogPositions | None = None,
        maintenance: Maintenance | None = None,
        listener: GroupListener | None = None,
        dialect: str = SHIPPED,
        budget: Budget = DEFAULT,
        free_heap: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare for batches of `topic`.

        `history_offsets`: up to which offsets the history tables hold rows, by table and partition (see `start`).
        `topics` finds the reasons of NotReady. `open_log` opens a reader for large records; None: only Spark can read.
        `positions` are asked before and after the records of a batch are read; they raise if the records may be of
        another log. `free_heap` is called after a batch that Spark kept on disk. The rest is as in `FoldOptions`.
        """
        self._writer = writer
        self._group_rows = GroupRows(writer)
        self._cluster = cluster
        self._on_done = on_done
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
        self._plans = SlicePlans(checkpoint)
        self._versions = TableVersions(writer, checkpoint, version=self._group_rows.version)
        self._free_heap = free_heap
        self._times = BatchTimes()  # of the current batch
        self._is_running = False  # True once a batch was written

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of `source.wanted_records` into the tables."""
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._cluster
        writers = batch_writers(self._cluster, query)
        self._plans.begin(writers[0], batch_id)
        self._times = BatchTimes()
        most = self._offsets.most_records(batch_id)
        # The first batch may be a catch-up, in which most groups have few records: Spark reads it once.
        limit = {"read" if self._is_running else "records": most or 0}
        is_few = most is not None and fits_driver(GROUPS, **limit)
        with BatchRecords(batch, self._read, self._free_heap) as records:
            with self._times.measure("read"):
                index = records.read(most if is_few else None)
            counts = self._write_parts(records, self._plans.divide(index), writers, batch_id)
        written = {what: counts[what] for what in ("decoded", "groups")}
        has_written = any((*written.values(), counts["quarantined"]))
        if has_written:
            with self._times.measure("checkpoint"):
                self._versions.write()
        by_type = {one["values"]: one["counts"] for one in pc.value_counts(index["type"]).to_pylist()}
        others = {name: counts[name] for name in ("quarantined", "drifted")}
        self._on_done(batch_id, Outcome(written=written, **others, by_type=by_type, seconds=self._times.seconds))
        self._is_running = True
        if self._maintenance:
            self._maintenance.after_batch(wrote=has_written)

    def _read(self, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the result of `read`, which reads one log of one topic."""
        return read_whole(self._positions, read, self._offsets.ends)

    def _write_parts(
        self, records: BatchRecords, parts: Sequence[Part], writers: tuple[str, ...], batch_id: int
    ) -> Counter[str]:
        counts = Counter[str]()
        are_large_read = not self._plans.is_repeated and any(one.is_small and records.lacks(one) for one in parts)
        with self._open_log() if are_large_read else nullcontext() as log:
            for part in parts:
                batch = _Batch(writers, part.slice.version(batch_id))
                if part.is_small:
                    with self._times.measure("read"):
                        raw = records.take(part, log.read if log else None)
                    counts.update(self._write_few(raw, batch))
                else:
                    counts.update(self._write_many(records.of_spark(part), part.records.num_rows, batch))
        return counts

    def _write_few(self, records: pa.Table, batch: _Batch) -> Mapping[str, int]:
        stored = None
        if not self._is_first:
            keys = [key for key in pc.unique(records["group_bytes"]).to_pylist() if key is not None]
            with self._times.measure("stored"):
                found = self._group_rows.find("group_id", [key.decode("utf-8", "replace") for key in keys])
                stored = stored_as_records(found)
        return self._fold_here(records, stored, batch)

    def _refresh_reasons(self, batch: _Batch) -> None:
        """Give the NotReady groups their reasons. Workers cannot ask the brokers, so they do not set reasons."""
        if self._topics:
            with self._times.measure("stored"):
                stored = stored_as_records(self._group_rows.find("state", [NOT_READY]))
            no_records = stored.drop_columns("stored").slice(0, 0)
            self._fold_here(no_records, stored, batch._replace(writers=batch.writers[1:]))

    def _fold_here(self, records: pa.Table, stored: pa.Table | None, batch: _Batch) -> Mapping[str, int]:
        with self._times.measure("fold"):
            ordered = sort_for_fold(records, stored)
            folded = pa.Table.from_batches(self._fold(ordered.to_batches(), topics=self._topics), self._schema)
        if not folded.num_rows:  # all records are of groups of other types
            return {}
        rows = rows_of(folded, self._reached)
        self._write(rows, batch)
        if self._listener:
            self._listener.on_rows(folded)
        return rows.counts

    def _write(self, rows: BatchRows, batch: _Batch) -> None:
        with self._times.measure("history"):
            retracted = rows.read(RETRACTED, self._cluster, schema_of(EVENTS.table))
            if retracted.num_rows:
                self._group_rows.delete_history(EVENTS.table, retracted)
            for name in (output.table for output in APPENDED):
                if name in rows.tables:
                    # These rows include reasons, so note the batch for all writers: a repetition in workers must skip
                    # it.
                    self._group_rows.append(name, rows.tables[name], *batch)
                elif name in rows.files:
                    self._writer.append(name, rows.files[name], batch.writers[0], batch.version)
        with self._times.measure("groups"):
            groups = rows.read("groups", self._cluster, schema_of("groups"))
            if groups.num_rows:
                self._is_first = False  # even if the next line fails
                if rows.files:
                    self._writer.replace_groups(self._writer.to_dataframe(groups), groups.num_rows)
                else:
                    self._group_rows.replace(groups, groups["group_id"].to_pylist())

    def _write_many(self, raw: DataFrame, count: int, batch: _Batch) -> Mapping[str, int]:
        """Write the records `raw`, approximately `count` of them."""
        stored, is_first = self._writer.stored_rows("groups"), self._is_first
        records = raw.selectExpr(*RAW, "NULL AS stored")
        if not is_first:
            touched = raw.select("group_bytes").distinct()
            records = records.unionByName(
                stored.selectExpr(*_STORED_AS_RECORD).join(touched, "group_bytes", "left_semi")
            )
        parts = sorted_parts(raw.sparkSession, count, _SORTED_RECORDS)
        ordered = records.repartition(parts, "group_bytes").sortWithinPartitions("group_bytes", "offset")
        with self._times.measure("fold"):  # also reads the stored rows
            rows = make_in_workers(ordered, self._fold_in_worker)
        self._write(rows, batch)
        if self._listener:
            self._listener.on_bulk_change()
        self._group_rows.forget_versions()
        self._refresh_reasons(batch)
        return rows.counts
