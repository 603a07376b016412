"""The records of a batch: the driver has an index of all of them, and the bytes of the records that are not large.

If a batch has few offsets, one Spark job reads it into the driver. The driver then reads its large records once more,
without Spark, some megabytes at a time. So neither the driver nor the JVM holds all of them. For any other batch Spark
keeps the records on disk, where its workers read them; the driver holds only the records that it folds itself.
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
"""Reads all records of these ranges, which are by partition, as `LogReader.read` does."""
Checked = Callable[[Callable[[], pa.Table]], pa.Table]
"""Calls a function that reads records, and returns its result; checks that all are from one log of one topic."""


class LogReadError(Exception):
    """The log gives other records than before. The text is one line."""


class BatchRecords(AbstractContextManager["BatchRecords"]):
    """The records of one batch; at the end of the context Spark releases its copy of them."""

    def __init__(self, records: DataFrame, checked: Checked, free_heap: Callable[[], None] = lambda: None) -> None:
        """Take `RAW` with the `MEASURES`; `free_heap` is called when Spark has released its copy."""
        self._records, self._checked, self._free_heap = records, checked, free_heap
        self._kept: DataFrame | None = None
        self._largest = -1  # bytes of a record: the driver has the bytes of records up to this size

    def read(self, most: int | None) -> pa.Table:
        """Return the `MEASURES` of all records, and `RAW` of the records that are not large; null for the others.

        `most` is the maximum number of records. None: there may be very many, so no bytes are read.
        """
        if most is not None:
            return self._checked(partial(self._read_small, self._records, most))
        kept, index = self._keep()
        return self._read_small(kept, index.num_rows) if fits_driver(GROUPS, read=index.num_rows) else index

    def lacks(self, part: Part) -> bool:
        """Return whether a part has large records."""
        return bool(pc.max(part.records["size"]).as_py() > self._largest)

    def take(self, part: Part, read_log: ReadRanges | None = None) -> pa.Table:
        """Return `RAW` of the records of a part; reads the large ones from the log, or from Spark's copy.

        A large record that compaction has removed since, because its key has a newer one, is omitted.
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
        """Return the records of a part from Spark's copy."""
        kept = self._kept or self._keep()[0]
        return kept.where(part.condition)

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._free_heap()

    def _keep(self) -> tuple[DataFrame, pa.Table]:
        """Let Spark read the records once, from one log, and keep them; return them, and the `MEASURES` alone."""
        from pyspark import StorageLevel  # noqa: PLC0415 - Spark is loaded by those who need it

        kept = self._kept = self._records.persist(StorageLevel.DISK_ONLY)  # in memory it would fill the heap
        return kept, self._checked(lambda: read_again(kept).select(*MEASURES).toArrow())

    def _read_small(self, records: DataFrame, most: int) -> pa.Table:
        found, self._largest = read_small(records, most, GROUPS)
        return found


def read_small(records: DataFrame, most: int, kind: str) -> tuple[pa.Table, int]:
    """Read at most `most` records of a kind in `driver_limits`, without the bytes of the large ones.

    Also returns the size in bytes up to which the bytes of a record were read. Bytes of a record leave the JVM in two
    cases: `most` records of its size fit into a slice, or the record is no `LARGE_RECORD` and `most` records of its
    size fit into the driver. The JVM holds five times the bytes that it sends at once.
    """
    largest = max(SLICE_BYTES // max(1, most), min(MOST[kind].size // max(1, most), LARGE_RECORD))
    largest = 1 << largest.bit_length() - 1  # a power of two, since Spark compiles an expression for each value
    columns = [f"if(size <= {largest}, {one}, NULL) AS {one}" if one in _BYTES else one for one in records.columns]
    return records.selectExpr(*columns).toArrow(), largest


def _read_large(read: ReadRanges, large: pa.Table) -> pa.Table:
    """Return `RAW` of these records. Raises LogReadError if the log now has another record at an offset."""
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
