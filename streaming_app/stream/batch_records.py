"""The records of a batch: this process has an index of all of them, with the bytes of those that are not large.

A batch of few offsets is read by one Spark job into this process, and its large records are read once more, without
Spark, some megabytes at a time: so neither this process nor the JVM holds them all. Of any other batch Spark keeps the
records on disk, where its workers read them, and this process what it folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.stream.log_positions import read_again
from streaming_app.stream.slices import LARGE_RECORD, SLICE_BYTES, Part
from streaming_app.stream.source import MEASURES, RAW, group_bytes, raw_table
from streaming_app.tables.driver_limits import GROUPS, MOST, fits_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streaming_app.kafka.log_reader import Range

T = TypeVar("T")

_BYTES = {"group_bytes", "key", "value"}
_MICROSECONDS = 1_000
ReadRanges = Callable[[Mapping[int, "Range"]], Iterable[Any]]
"""Reads all records of these ranges by partition, as `LogReader.read`."""
Checked = Callable[[Callable[[], pa.Table]], pa.Table]
"""Calls what reads records, and returns what was read of one log of one topic."""


class LogReadError(Exception):
    """The log gives other records than before. The text is one line."""


class BatchRecords(AbstractContextManager["BatchRecords"]):
    """The records of one batch; a context manager, which releases what Spark keeps of them."""

    def __init__(self, records: DataFrame, checked: Checked, free_heap: Callable[[], None] = lambda: None) -> None:
        """Take `RAW` with the `MEASURES`; `free_heap` is called once Spark keeps nothing any more."""
        self._records, self._checked, self._free_heap = records, checked, free_heap
        self._kept: DataFrame | None = None
        self._largest = -1  # bytes of a record that this process has

    def read(self, most: int | None) -> pa.Table:
        """Return the `MEASURES` of all records, and `RAW` of those that are not large, null for the others.

        `most` is how many there are at most; None: they may be very many, and of these there are no bytes at all.
        """
        if most is not None:
            return self._checked(partial(self._read_small, self._records, most))
        kept, index = self._keep()
        return self._read_small(kept, index.num_rows) if fits_driver(GROUPS, read=index.num_rows) else index

    def lacks(self, part: Part) -> bool:
        """Return whether records of a part are large."""
        return bool(pc.max(part.records["size"]).as_py() > self._largest)

    def take(self, part: Part, read_log: ReadRanges | None = None) -> pa.Table:
        """Return `RAW` of the records of a part, the large ones from the log, or from Spark.

        A large record that is no longer in the log, as a newer one of its key is, is left out.
        """
        if not self.lacks(part):
            return part.records.select(list(RAW))
        is_large = pc.greater(part.records["size"], self._largest)
        if read_log and self._kept is None:
            found = self._checked(partial(_read_large, read_log, part.records.filter(is_large)))
        else:
            found = self.of_spark(part).where(f"size > {self._largest}").select(*RAW).toArrow()
        if self._largest < 0:
            return found
        small = part.records.filter(pc.invert(is_large)).select(list(RAW))
        return pa.concat_tables([small, found.cast(small.schema)])

    def of_spark(self, part: Part) -> DataFrame:
        """Return the records of a part as Spark keeps them."""
        kept = self._kept or self._keep()[0]
        return kept.where(part.condition)

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._free_heap()

    def _keep(self) -> tuple[DataFrame, pa.Table]:
        """Let Spark keep the records, read once, of one log; return them, and the `MEASURES` alone."""
        from pyspark import StorageLevel  # noqa: PLC0415 - Spark is loaded by those who need it

        kept = self._kept = self._records.persist(StorageLevel.DISK_ONLY)  # in memory it would be garbage of the heap
        return kept, self._checked(lambda: read_again(kept).select(*MEASURES).toArrow())

    def _read_small(self, records: DataFrame, most: int) -> pa.Table:
        found, self._largest = read_small(records, most, GROUPS)
        return found


def read_small(records: DataFrame, most: int, kind: str) -> tuple[pa.Table, int]:
    """Read records that are `most` at most, of a kind of `driver_limits`, but without the bytes of the large ones.

    Also returns how many bytes those have at most that are not large. Bytes of a record leave the JVM if so many of
    its size are no more than a slice, or if it is no `LARGE_RECORD`, and so many are not too much for this process: the
    JVM holds five times what it sends at once.
    """
    largest = max(SLICE_BYTES // max(1, most), min(MOST[kind].size // max(1, most), LARGE_RECORD))
    largest = 1 << largest.bit_length() - 1  # Spark compiles an expression for each number in it
    columns = [f"if(size <= {largest}, {one}, NULL) AS {one}" if one in _BYTES else one for one in records.columns]
    return records.selectExpr(*columns).toArrow(), largest


def _read_large(read: ReadRanges, large: pa.Table) -> pa.Table:
    """Return `RAW` of these records. Raises LogReadError if one is another one than it was."""
    sizes = {(row["partition"], row["offset"]): row["size"] for row in large.select(list(MEASURES)).to_pylist()}
    ranges: dict[int, Range] = {}
    for partition, offset in sizes:
        start, end = ranges.get(partition, (offset, offset))
        ranges[partition] = min(start, offset), max(end, offset + 1)
    found: list[tuple[Any, ...]] = []
    for record in read(ranges):
        key, value, size = record.key, record.value, sizes.get((record.partition, record.offset))
        if size is None:
            continue
        if size != len(key or b"") + len(value or b""):
            raise LogReadError(f"offset {record.offset} of partition {record.partition} has changed while it was read")
        at = record.timestamp * _MICROSECONDS
        found.append((group_bytes(key), record.offset, record.partition, at, key, value))
    return raw_table(found)
