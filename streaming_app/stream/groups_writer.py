"""One micro-batch of streams groups: filter in the JVM, fold in Python, append events, replace the rows of groups.

The order matters. Events and quarantine are written first, with the number of the batch, so that Delta skips a second
append; groups are written last. After a crash in between, Spark repeats the batch from the checkpoint. Then nothing is
lost and nothing is written twice: rows that were already written skip the records that they contain.

The driver folds few records, Spark's workers fold many (see `driver_limits`); the fold is the same code. What workers
make of the first batch are files of `groups` as they are, each with a range of group ids of its own. A batch with
large records, or one that failed, is written slice by slice (see `slices`). A part that fails for lack of memory, or
because of a single record, is written in halves (see `failures`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import UnknownRecordType
from streaming_app.errors import OtherOwnerError
from streaming_app.groups.not_ready import TopicLookup
from streaming_app.groups.state_rules import NOT_READY
from streaming_app.stream.batch_records import BatchRecords
from streaming_app.stream.batch_rows import (
    APPENDED,
    EVENTS,
    QUARANTINE,
    RETRACTED,
    BatchRows,
    join,
    make_in_workers,
    schema_of,
)
from streaming_app.stream.failures import NOT_OF_RECORDS, FoldError, is_lost_jvm, may_fit_in_parts, one_line
from streaming_app.stream.fold_stage import (
    STORED_OFFSET,
    fold_in_worker,
    fold_stream,
    set_record_aside,
    sort_for_fold,
    stored_as_records,
)
from streaming_app.stream.group_result import FoldOptions, record_type
from streaming_app.stream.job_state import CommittedBatch
from streaming_app.stream.log_positions import LogPositions, read_whole
from streaming_app.stream.progress import GroupListener
from streaming_app.stream.slices import BatchPlans, Part
from streaming_app.stream.source import KNOWN_TYPES, RAW
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.stream.truncation import NOT_VOID
from streaming_app.tables.checkpoint_offsets import BatchOffsets, checkpoint_location
from streaming_app.tables.definitions import table
from streaming_app.tables.driver_limits import GROUPS, fits_driver
from streaming_app.tables.group_files import file_rows
from streaming_app.tables.rust_table import BatchId
from streaming_app.tables.writer import TableWriter
from streaming_app.text import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SORTED_RECORDS = 50_000  # records that Spark sorts at a time in each task
_UNKNOWN = UnknownRecordType.__name__
_SAMPLE = pa.schema([schema_of(QUARANTINE).field(name) for name in ("key", "error_kind")])
_NO_BYTES = ("CAST(NULL AS binary) AS key", "CAST(NULL AS binary) AS value")
_STORED_AS_RECORD = (
    "encode(group_id, 'UTF-8') AS group_bytes",
    f"{STORED_OFFSET}L AS offset",
    "CAST(NULL AS int) AS partition",
    "CAST(NULL AS timestamp) AS timestamp",
    *_NO_BYTES,
    "struct(*) AS stored",
)


class GroupsBatchWriter:
    """Called by Spark with every micro-batch; passes the counts of each to `on_done`."""

    def __init__(  # noqa: PLR0913 - the rest is for the job, not for tests
        self,
        writer: TableWriter,
        options: FoldOptions,
        on_done: Callable[[int, CommittedBatch], None],
        *,
        topics: TopicLookup | None = None,
        state: StateFile | None = None,
        positions: LogPositions | None = None,
        listener: GroupListener | None = None,
        free_heap: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare for batches of the topic of `options`.

        `topics` finds the reasons of NotReady; `state` is the state of the stream, by default what is stored of it;
        `positions` are asked before and after the records of a batch are read; they raise if the records may be of
        two logs. `free_heap` is called after a batch of which Spark kept a copy.
        """
        self._writer = writer
        self._options, self._cluster = options, options.cluster
        self._note_samples(
            writer.table(QUARANTINE).select("key, error_kind", f"error_kind = '{_UNKNOWN}' AND {NOT_VOID}")
        )
        self._on_done = on_done
        self._listener = listener
        self._is_first = writer.table("groups").is_empty()
        self._positions = positions
        self._topics = topics
        checkpoint = checkpoint_location(writer.location, self._cluster)
        self._offsets = BatchOffsets(checkpoint)
        state = state or StateFile(checkpoint).read()
        self._plans = BatchPlans(checkpoint, state)
        self._versions = TableVersions(writer, checkpoint, state)
        self._free_heap = free_heap
        self._is_running = False  # True once a batch was written

    def __call__(self, batch: DataFrame, batch_id: int) -> bool:
        """Write one micro-batch of `source.wanted_records` into the tables. Return whether it has any."""
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._cluster
        writers = batch_writers(self._cluster, query)
        self._plans.begin(writers[0], batch_id)
        most = self._offsets.most_records(batch_id)
        # The first batch may be a catch-up, in which most groups have few records: Spark reads it once.
        limit = {"read" if self._is_running else "records": most or 0}
        is_few = most is not None and fits_driver(GROUPS, **limit)
        read = partial(read_whole, self._positions, ends=self._offsets.ends)  # from one log of one topic
        with BatchRecords(batch, read, self._free_heap) as records:
            index = records.read(most if is_few else None)
            counts = self._write_parts(records, self._plans.divide(index), writers, batch_id)
        written = {what: counts[what] for what in ("decoded", "groups")}
        has_written = any((*written.values(), counts[QUARANTINE]))
        if has_written:
            self._versions.write()
        by_type = {one["values"]: one["counts"] for one in pc.value_counts(index["type"]).to_pylist()}
        outcome = CommittedBatch(
            written=written,
            quarantined=counts[QUARANTINE] - counts["samples"],
            drifted=counts["drifted"],
            by_type=by_type,
            unknown={kind: number for kind, number in by_type.items() if kind >= 0 and kind not in KNOWN_TYPES},
            ends=self._offsets.ends,
        )
        self._on_done(batch_id, outcome)
        self._is_running = True
        return bool(by_type)

    def _write_parts(
        self, records: BatchRecords, parts: Sequence[Part], writers: tuple[str, ...], batch_id: int
    ) -> Counter[str]:
        counts = Counter[str]()
        left = deque(parts)
        while left:
            part = left.popleft()
            batch, reason = BatchId(writers, part.slice.version(batch_id)), "the job has ended each time"
            if not self._plans.is_hopeless(part):
                self._plans.trying(part)
                try:
                    counts.update(self._write_part(records, part, batch))
                    continue
                except Exception as error:  # noqa: BLE001 - it is raised again, unless fewer records may cure it
                    halves = self._halves(part, error)
                    reason = one_line(error)
                if halves:  # written outside of `except`, where the error would hold the memory of the attempt
                    left.extendleft(reversed(halves))
                    continue
            counts.update(self._set_aside(records, part, reason, batch))
        return counts

    def _write_part(self, records: BatchRecords, part: Part, batch: BatchId) -> Mapping[str, int]:
        if not part.is_small:
            return self._write_many(records.of_spark(part), part.records, batch)
        return self._write_few(records.raw(part), batch)

    def _halves(self, part: Part, error: Exception) -> Sequence[Part]:
        """Return what to write instead of a part that failed; nothing if its only record is hopeless, else raises."""
        if not may_fit_in_parts(error):
            if not (is_lost_jvm(error) or isinstance(error, OtherOwnerError)):
                self._plans.failed_otherwise()
            raise error
        halves = self._plans.failed(part)
        if not halves and not self._plans.is_hopeless(part):
            raise error
        return halves

    def _set_aside(self, records: BatchRecords, part: Part, reason: str, batch: BatchId) -> Mapping[str, int]:
        partition, offset = part.first
        size = part.records["size"][0].as_py()
        text = f"offset {offset} of partition {partition}, {count(size, 'byte')}, cannot be folded alone: {reason}"
        record = records.of_spark(part).selectExpr(*RAW[:4], *_NO_BYTES).toArrow()
        if not record.num_rows:
            return {}  # compaction has removed it meanwhile
        rows = set_record_aside(record, self._stored(record), self._options, text)
        self._write_here(rows, batch)
        return rows.counts

    def _stored(self, records: pa.Table) -> pa.Table | None:
        """Return the stored rows of the groups of these records; None if the table had no rows before this batch."""
        if self._is_first:
            return None
        keys = [key for key in pc.unique(records["group_bytes"]).to_pylist() if key is not None]
        return stored_as_records(self._writer.groups.find("group_id", [key.decode("utf-8", "replace") for key in keys]))

    def _write_few(self, records: pa.Table, batch: BatchId) -> Mapping[str, int]:
        return self._fold_here(records, self._stored(records), batch)

    def _refresh_reasons(self, batch: BatchId) -> None:
        """Give the NotReady groups their reasons. Workers cannot ask the brokers, so they do not set reasons."""
        if self._topics:
            stored = stored_as_records(self._writer.groups.find("state", [NOT_READY]))
            no_records = stored.drop_columns("stored").slice(0, 0)
            self._fold_here(no_records, stored, batch._replace(writers=batch.writers[1:]))

    def _fold_here(self, records: pa.Table, stored: pa.Table | None, batch: BatchId) -> Mapping[str, int]:
        try:
            ordered = sort_for_fold(records, stored)
            rows = join(fold_stream(ordered.to_batches(), self._options, self._topics))
        except NOT_OF_RECORDS:
            raise
        except Exception as error:
            raise FoldError(one_line(error)) from error
        self._write_here(rows, batch)
        return rows.counts

    def _note_samples(self, quarantined: pa.Table) -> None:
        """Note the unknown record types of which `quarantine` has these records."""
        kinds = zip(*(quarantined[name].to_pylist() for name in _SAMPLE.names), strict=True)
        self._options.sampled.update(record_type(key) for key, kind in kinds if kind == _UNKNOWN)

    def _write_here(self, rows: BatchRows, batch: BatchId) -> None:
        """Write rows that this process holds, and pass them on."""
        self._write(rows, batch)
        if self._listener and "groups" in rows.tables:
            self._listener.on_rows(rows)

    def _write(self, rows: BatchRows, batch: BatchId) -> None:
        retracted = rows.read(RETRACTED, self._cluster, schema_of(EVENTS))
        if retracted.num_rows:
            self._writer.table(EVENTS).delete_rows(retracted, table(EVENTS).key)
        for name in APPENDED:
            if name in rows.tables:
                self._writer.table(name).append(rows.tables[name], batch.of_table(name))
        self._note_samples(rows.read(QUARANTINE, self._cluster, _SAMPLE))
        files, is_first = rows.tables.get("groups", ()), self._is_first
        self._is_first &= not files  # even if what follows fails
        if is_first and files and not isinstance(files, pa.Table):
            self._writer.table("groups").append(files)
        elif files:
            groups = rows.read("groups", self._cluster, schema_of("groups"))
            self._writer.groups.replace(groups, groups["group_id"].to_pylist())

    def _write_many(self, raw: DataFrame, measures: pa.Table, batch: BatchId) -> Mapping[str, int]:
        stored, is_first = self._writer.stored_rows("groups"), self._is_first
        records = raw.selectExpr(*RAW, "NULL AS stored")
        if is_first:
            # The table takes the files of workers as they are: each has a range of group ids of its own. For ranges
            # Spark computes all records once more.
            most_rows = {"groups": file_rows(pc.count_distinct(measures["hash"]).as_py())}
            divide = records.repartitionByRange
        else:
            touched = raw.select("group_bytes").distinct()
            of_stored = stored.selectExpr(*_STORED_AS_RECORD).join(touched, "group_bytes", "left_semi")
            most_rows, divide = {}, records.unionByName(of_stored).repartition
        parts = sorted_parts(raw.sparkSession, measures.num_rows)
        ordered = divide(parts, "group_bytes").sortWithinPartitions("group_bytes", "offset")
        rows = make_in_workers(ordered, partial(fold_in_worker, options=self._options), most_rows)
        # The reasons have a writer of their own. What this process folds has them, too, and is noted for both writers:
        # where workers repeat it, nobody adds the reasons again.
        self._write(rows, batch._replace(writers=batch.writers[:1]))
        if self._listener:
            self._listener.on_bulk_change()
        self._refresh_reasons(batch)
        return rows.counts


def sorted_parts(spark: SparkSession, records: int) -> int:
    """Return into how many parts to divide so many records that are sorted.

    A task sorts the whole of its part in the heap. As many parts as there are cores took more than a third of the heap
    at a catch-up of 30,000 groups. The session's setting is not asked: it may be `auto`.
    """
    return max(spark.sparkContext.defaultParallelism, -(-records // _SORTED_RECORDS))
