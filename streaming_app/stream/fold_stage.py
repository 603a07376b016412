"""The Python stage of a batch: gets raw records and stored rows, returns folded rows. Runs in Spark's workers.

Rows come sorted by group and offset; the stored row of a group comes first (as offset -1). Each group gives its rows of
each table. So no decoded record has to be converted to Arrow.

A record that cannot be folded stops no other record. A record may decode and still fail in the fold (for example with a
time beyond the year 9999), and leave the fold half changed. So the stage keeps the records since a snapshot. When one
fails, it restores the fold, folds the records before it again, and reports the failed record. The first snapshot is the
stored row. For a group with many records in a batch, the stage takes a new snapshot every `_SNAPSHOT_EVERY` records,
which limits memory, and after each failure, so that no record is folded again and again.

A group is set aside if its fold fails as a whole, its row cannot be written, or it exceeds its budget. Its row stays,
with the reason, and its records are skipped until it is released (see `job.read_again`). Other groups continue.

Only what decoding, folding or writing rows raises is an error of a record or a group, and not even there a lack of
memory or a failed read (`NOT_OF_RECORDS`). Everything else fails the batch, above all what the iterators of batches
raise: they are dead afterwards, and a stage that went on would lose the rest. `slices` then finds a single record that
causes it, and `set_record_aside` sets the group of this record aside.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.budget import OverBudgetError
from streaming_app.groups.classic import has_no_members, is_streams
from streaming_app.groups.events import UNKNOWN_STATE
from streaming_app.groups.fold import CLASSIC_GROUP, Fold
from streaming_app.groups.group import CLASSIC, Group, LogRecord
from streaming_app.groups.marked_rows import carry_over, is_marked, known_before
from streaming_app.groups.not_ready import TopicLookup, set_reasons
from streaming_app.groups.partition import partition_of
from streaming_app.groups.row import from_row, to_row
from streaming_app.stream.batch_rows import EVENTS, QUARANTINE, BatchRows, HistoryOffsets, RowsByTable, to_tables
from streaming_app.stream.failures import NOT_OF_RECORDS
from streaming_app.stream.group_result import (
    FoldOptions,
    GroupResult,
    LeftoverRecord,
    LogRow,
    UnfoldableRecord,
    record_type,
)
from streaming_app.tables.arrow import to_datetimes

STORED_OFFSET = -1
_REFUSED = (pa.ArrowException, ValueError, OverflowError, TypeError)  # raised for a value that Arrow cannot hold
_ROWS_PER_BATCH = 200
_COLLECTED_AFTER = 100_000  # new objects before a garbage collection, more than a batch of rows has; by default 700
_SNAPSHOT_EVERY = 2_000  # records of a group
_SNAPSHOT_BYTES = 8 << 20  # of the records since a snapshot
_BYTES_PER_BATCH = 8 << 20  # of rows and undecodable records that are yielded together


def fold_stream(
    batches: Iterable[pa.RecordBatch], options: FoldOptions, topics: TopicLookup | None = None
) -> Iterator[BatchRows]:
    """Fold batches of (group bytes, offset, partition, timestamp, key, value, stored row) into rows by table.

    With `topics`, groups that are NotReady get the reason. A group whose reason changed gives a row even without a
    record.
    """
    topics = topics and _asking(topics)
    options = replace(options, sampled={*options.sampled})  # a batch may fail before its samples are written
    ready: list[Folded] = []
    size = 0
    for _, rows in groupby(_rows(batches), key=itemgetter(0)):
        for folded in fold_group(rows, options, topics):
            ready.append(folded)
            size += folded.size
            if len(ready) >= _ROWS_PER_BATCH or size >= _BYTES_PER_BATCH:
                yield _to_rows(ready, options.history_offsets)
                ready, size = [], 0
    if ready:
        yield _to_rows(ready, options.history_offsets)


def _asking(topics: TopicLookup) -> TopicLookup:
    """Return the same lookup, whose errors are none of the group that asks."""

    def ask(names: Sequence[str]) -> Mapping[str, int] | None:
        try:
            return topics(names)
        except NOT_OF_RECORDS:
            raise
        except Exception as error:
            raise OSError(f"Topics cannot be described: {type(error).__name__}: {error}") from error

    return ask


def fold_in_worker(batches: Iterable[pa.RecordBatch], options: FoldOptions) -> Iterator[BatchRows]:
    """Fold in a Spark worker that does nothing else.

    The garbage collector runs less often: by default it took a fifth of the time and found nothing.
    """
    gc.set_threshold(_COLLECTED_AFTER)
    yield from fold_stream(batches, options)


def set_record_aside(record: pa.Table, stored: pa.Table | None, options: FoldOptions, reason: str) -> BatchRows:
    """Return the rows that set the group of one record aside, which cannot be folded even alone.

    `record` has the columns of a raw record, without key and value: their bytes may be the cause. If its key names no
    group, the record goes to quarantine, as it is here.
    """
    one, error = _FoldedGroup(options), UnfoldableRecord(reason)
    for row in _rows(sort_for_fold(record, stored).to_batches()):
        one.note(row)
        if row[1] != STORED_OFFSET and not row[0]:
            one.outcome.refuse(row, error)
            return _to_rows([one.undecodable()], options.history_offsets)
    return BatchRows({}) if one.is_set_aside else _to_rows([one.set_aside(error)], options.history_offsets)


def stored_as_records(rows: pa.Table) -> pa.Table:
    """Return stored rows with the columns of raw records; each comes before the records of its group."""
    fields, nothing = list(rows.schema), pa.nulls(rows.num_rows)
    return pa.table(
        {
            "group_bytes": rows["group_id"].cast(pa.binary()),
            "offset": pa.array([STORED_OFFSET] * rows.num_rows, pa.int64()),
            **dict.fromkeys(("partition", "timestamp", "key", "value"), nothing),
            "stored": pa.StructArray.from_arrays([rows[f.name].combine_chunks() for f in fields], fields=fields),
        }
    )


def sort_for_fold(records: pa.Table, stored: pa.Table | None) -> pa.Table:
    """Return raw records and stored rows in the order for `fold_stream`. For large batches Spark's shuffle sorts."""
    if stored is None:
        both = records.append_column("stored", pa.nulls(records.num_rows))
    else:
        nothing = pa.nulls(records.num_rows, stored["stored"].type)
        records = records.append_column(stored.schema.field("stored"), nothing)
        both = pa.concat_tables([records, stored.select(records.column_names).cast(records.schema)])
    keys = [("group_bytes", "ascending"), ("offset", "ascending")]
    return both.combine_chunks().take(pc.sort_indices(both.select(["group_bytes", "offset"]), keys))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[LogRow]:
    for batch in batches:
        for part in _parts(batch):
            columns = [
                to_datetimes(one) if pa.types.is_timestamp(one.type) else one.to_pylist() for one in part.columns
            ]
            yield from zip(*columns, strict=True)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of some megabytes, since its Python objects are many times as large.

    Arrow's `nbytes` crashes the process for some batches that Spark sends, so this function counts whole buffers.
    """
    most = max(1, batch.num_rows * _BYTES_PER_BATCH // max(1, batch.get_total_buffer_size()))
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


class Folded(NamedTuple):
    """The rows of a group, or some of its records for quarantine."""

    rows: RowsByTable
    counts: Counter[str]
    """As in `GroupResult`."""
    size: int
    refuse: Callable[[Exception], Folded] | None = None
    """Called with an error if Arrow cannot hold the rows; returns the rows to write instead."""


def fold_group(rows: Iterator[LogRow], options: FoldOptions, topics: TopicLookup | None) -> Iterator[Folded]:
    """Yield the rows of one group. If it has very many undecodable records, yield rows of these first.

    If the fold fails as a whole, the group is set aside, and no other group is affected. What `rows` raises is no error
    of the group, and goes to the caller.
    """
    one = _FoldedGroup(options)
    for row in rows:
        one.read(row)
        if one.has_many_undecodable:
            yield one.undecodable()
    if folded := one.close(topics):
        yield folded


class GroupFold:
    """The fold of one group."""

    def __init__(self, restore: Callable[[], Fold], refuse: Callable[[LogRow, Exception], None]) -> None:
        """Begin with what `restore` returns. `refuse` gets each record that cannot be folded, and the reason."""
        self._restore, self._refuse = restore, refuse
        self.fold = restore()
        self._kept: list[tuple[LogRow, LogRecord]] = []  # since the snapshot
        self._kept_bytes = 0

    def add(self, row: LogRow, record: LogRecord) -> None:
        """Fold one record, or refuse it. Raises OverBudgetError."""
        if len(self._kept) >= _SNAPSHOT_EVERY or self._kept_bytes >= _SNAPSHOT_BYTES:
            self._take_snapshot()
        try:
            self.fold.add([record])
        except (OverBudgetError, *NOT_OF_RECORDS):
            raise
        except Exception as error:  # noqa: BLE001 - whatever error one record causes, the others continue
            self._refuse(row, error)
            self._fold_again()
            self._take_snapshot()  # so that the next failure does not fold more records again
        else:
            self._kept.append((row, record))
            self._kept_bytes += record.size

    def close_operation(self) -> None:
        """End the open operation, as at the end of a batch. Records that cannot give their events are refused."""
        while not self._is_closed():
            self._fold_again()

    def _is_closed(self) -> bool:
        try:
            self.fold.close()
        except (OverBudgetError, *NOT_OF_RECORDS):
            raise
        except Exception as error:
            if not self._kept:
                raise
            self._refuse(self._kept.pop()[0], error)
            return False
        return True

    def _take_snapshot(self) -> None:
        self.fold.count_steps(len(self.fold.group.members))
        snapshot = self.fold.copy()
        self._restore = snapshot.copy
        self._kept, self._kept_bytes = [], 0

    def _fold_again(self) -> None:
        steps = self.fold.steps
        self.fold = self._restore()
        self.fold.steps = steps
        self.fold.add(record for _, record in self._kept)


class _FoldedGroup:
    def __init__(self, options: FoldOptions) -> None:
        self._options = options
        self._group: GroupFold | None = None  # until the first record
        self._partition: int | None = None  # the partition of the topic that holds the group
        self._last_offset = -1
        self._stored: dict[str, Any] | None = None
        self._newest: LogRow | None = None
        self.is_set_aside = False
        self._error: Exception | None = None  # the reason why the fold has failed as a whole
        self.outcome = GroupResult(options)

    def read(self, row: LogRow) -> None:
        """Take the stored row, or a record; a group that is set aside does not change. Raises `NOT_OF_RECORDS`."""
        if self._error is None:
            try:
                self._read(row)
            except NOT_OF_RECORDS:
                raise
            except Exception as error:  # noqa: BLE001 - whatever error one group causes, the others continue
                self._error = error

    def note(self, row: LogRow) -> None:
        """Take the stored row, or a record, without folding it."""
        *_, stored = row
        if stored is None:
            self._newest = row
        else:
            self._stored = stored
            self.is_set_aside = bool(stored.get("set_aside_reason")) and not is_marked(stored)

    def _read(self, row: LogRow) -> None:
        *_, stored = row
        if stored is not None:
            self.note(row)
            self._restore(stored)
        elif not self.is_set_aside:
            self._newest = row
            if record := self.outcome.decode(row):
                self._add(row, record)

    @property
    def has_many_undecodable(self) -> bool:
        """Whether undecodable records must be written before the group is done."""
        outcome = self.outcome
        return len(outcome.undecodable) >= _ROWS_PER_BATCH or outcome.undecodable_bytes >= _BYTES_PER_BATCH

    def undecodable(self) -> Folded:
        """Return the undecodable records and the counts so far, and drop them."""
        outcome, self.outcome = self.outcome, GroupResult(self._options)
        return Folded({QUARANTINE: outcome.undecodable}, outcome.counts, outcome.undecodable_bytes)

    def _restore(self, stored: dict[str, Any]) -> None:
        """Continue from the stored row, unless the group is read again."""
        if is_marked(stored):
            return
        self._partition = stored["source_partition"]
        if not self.is_set_aside:
            self._group = self._fold_of(stored["group_id"], stored["source_partition"], stored)

    def _fold_of(self, group_id: str, partition: int, stored: dict[str, Any] | None) -> GroupFold:
        def restore() -> Fold:
            group = from_row(stored) if stored is not None else None
            fold = Fold.of(group_id, partition, group, self._options.budget)
            fold.was_classic = self._was_classic
            return fold

        return GroupFold(restore, self._refuse)

    @property
    def _was_classic(self) -> bool:
        """Whether the group is read again, and was of Kafka Streams with the classic protocol."""
        return bool(self._stored and is_marked(self._stored) and self._stored.get("protocol") == CLASSIC)

    def _add(self, row: LogRow, record: LogRecord) -> None:
        """Fold one record. Skip it if another partition holds its group, or the group was never of Kafka Streams."""
        partition = row[2] or 0
        group = self._group if partition == self._partition else self._in_other_partition(row, record, partition)
        if group is None:
            return
        if self._options.history_offsets:
            self._close_at_end_of_history(group, partition, record.offset)
        group.add(row, record)

    def _in_other_partition(self, row: LogRow, record: LogRecord, partition: int) -> GroupFold | None:
        """Return the fold for a record in another partition than the group's so far; None to skip the record.

        After partitions were added, a coordinator does not find a group whose partition has changed, and creates it
        again in the other partition. Offsets of two partitions cannot be compared, so the row also starts over.
        """
        options, group = self._options, self._group
        is_classic = record.record_type == CLASSIC_GROUP
        if is_classic and not (is_streams(record.value) or (self._was_classic and has_no_members(record.value))):
            return group
        group_id = record.key["group_id"]
        if options.partitions is not None and (group or options.partitions_grew):
            if partition_of(group_id, options.partitions) != partition:
                if not is_classic:  # else it is in the newest partition, too, or the group is gone
                    self.outcome.refuse(row, LeftoverRecord("another partition of the topic now holds the group"))
                return None
        elif group:
            return group
        self._group = self._fold_of(group_id, partition, None)
        self._partition, self._last_offset = partition, -1
        return self._group

    def _close_at_end_of_history(self, group: GroupFold, partition: int, offset: int) -> None:
        """End the operation where an earlier batch ended, so that its events are replaced and not written twice."""
        cut = self._options.history_offsets.get(EVENTS, {}).get(partition)
        if cut is not None and self._last_offset <= cut < offset:
            group.close_operation()
        self._last_offset = offset

    def close(self, topics: TopicLookup | None) -> Folded | None:
        """End the batch; return the rows to write, if there are any. Raises `NOT_OF_RECORDS`."""
        if self._error is None:
            try:
                return self._close(topics)
            except NOT_OF_RECORDS:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self._error = error
        return self.set_aside(self._error)

    def _close(self, topics: TopicLookup | None) -> Folded | None:
        group, outcome, self._group = self._group, self.outcome, None  # the rows may wait for others to be written
        if group is not None:
            group.close_operation()
            set_reasons(group.fold, topics)
            if group.fold.touched:
                if self._stored and is_marked(self._stored):
                    group.fold.group.known_before = known_before(self._stored)
                carry_over(group.fold.group)
                size = group.fold.size + outcome.undecodable_bytes
                return Folded(outcome.with_group(group.fold), outcome.counts, size, self.set_aside)
        if outcome.counts or outcome.undecodable:
            return self.undecodable()
        return None

    def _refuse(self, row: LogRow, error: Exception) -> None:
        self.outcome.refuse(row, error)

    def set_aside(self, error: Exception) -> Folded:
        """Return the row of the group from before the batch, marked as set aside."""
        outcome, newest, row = self.outcome, self._newest, self._stored
        if newest and row is None:
            group_id, partition = (newest[0] or b"").decode("utf-8", "replace"), newest[2] or 0
            group = Group(group_id, partition, state=UNKNOWN_STATE, first_seen_at=newest[3])
            if record_type(newest[4]) == CLASSIC_GROUP:
                group.group_type = group.protocol = CLASSIC
            row = to_row(self._options.cluster, group)
        elif newest and row and is_marked(row):  # else each batch would set it aside again
            row = {**row, "last_offset": newest[1], "source_partition": newest[2]}
        if row is None:
            raise error
        at = newest[3] if newest else row["updated_at"]
        return Folded(outcome.set_aside(row, at, error), outcome.counts, outcome.undecodable_bytes)


def _to_rows(folded: Sequence[Folded], reached: HistoryOffsets) -> BatchRows:
    """Return the rows of these groups. If Arrow cannot hold the rows of a group, it is set aside."""
    try:
        found = to_tables((one.rows for one in folded), reached)
    except MemoryError:  # Arrow's is also an ArrowException
        raise
    except _REFUSED:
        folded = [_that_fits(one, reached) for one in folded]
        found = to_tables((one.rows for one in folded), reached)
    for one in folded:
        found.counts.update(one.counts)
    return found


def _that_fits(folded: Folded, reached: HistoryOffsets) -> Folded:
    try:
        to_tables([folded.rows], reached)
    except MemoryError:
        raise
    except _REFUSED as error:
        if folded.refuse:
            return folded.refuse(error)
    return folded
