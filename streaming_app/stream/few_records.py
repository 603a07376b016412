"""A batch of few records, as this process holds it: one Spark job reads it, and leaves the large records in the log.

That reading tells where each record is, how large, and of which group. By that a batch with large ones is divided,
see `slices`, and of each slice only the large records are read once more, without Spark. This process holds those of
one slice at a time, and the JVM none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.kafka.log_reader import Range
from streaming_app.stream.slices import (
    APART_BYTES,
    APART_RECORDS,
    LARGE_RECORD,
    MOST_CUTS,
    SLICE_BYTES,
    Boundary,
    LargeRecord,
    Offsets,
    Place,
    Summary,
    choose_apart,
    records_of_a_cut,
    slice_numbers,
)
from streaming_app.stream.source import RAW, group_bytes, raw_table
from streaming_app.tables.driver_limits import GROUPS, MOST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTES = {"group_bytes", "key", "value"}
_MICROSECONDS = 1_000
ReadRanges = Callable[[Mapping[int, Range]], Iterable[Any]]
"""Reads all records of these ranges by partition, as `LogReader.read`."""


class LogReadError(Exception):
    """The log gives other records than before. The text is one line."""


def _no_log(_: Mapping[int, Range]) -> Iterable[Any]:
    raise LogReadError("there is no connection to read the large records of the batch")


class FewRecords(NamedTuple):
    """The records of a batch: all of them, but without the bytes of the large ones."""

    table: pa.Table
    """What was asked for. Of records that are larger than `largest`, id, key and value are null."""
    largest: int
    """Bytes of a record."""
    read_log: ReadRanges = _no_log
    """Reads the large records; only `read_slices` needs it, unless this `is_whole`."""
    checked: Callable[[Callable[[], pa.Table]], pa.Table] = lambda read: read()
    """Calls what reads the large records of a slice, and returns what was read of one log."""
    apart: list[int] | None = None
    """What `groups_apart` has returned before."""

    @property
    def is_whole(self) -> bool:
        """Whether all records are here."""
        return not self.table.num_rows or pc.max(self.table["size"]).as_py() <= self.largest

    def summarize(self) -> Summary:
        """Return what the batch amounts to. This, and what follows, need the `MEASURES`, and is as in `KeptRecords`."""
        sizes = self.table["size"].to_pylist()
        by_type = Counter(self.table["type"].to_pylist())
        return Summary(by_type, sum(sizes), sum(size for size in sizes if size >= LARGE_RECORD))

    def large_records(self) -> list[LargeRecord]:
        """Return the large records in the order of (partition, offset)."""
        found = self.table.filter(pc.greater_equal(self.table["size"], LARGE_RECORD)).select(LargeRecord._fields)
        return sorted(LargeRecord(**row) for row in found.to_pylist())

    def partition_offsets(self) -> dict[int, Offsets]:
        """Return the offsets of the records, by partition."""
        ranges = self.table.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        return {row["partition"]: Offsets(row["offset_min"], row["offset_max"] + 1) for row in ranges}

    def groups_apart(self, summary: Summary) -> list[int]:
        """Return the groups without which what is left of a batch is little; none if there are none, or too many."""
        if self.apart is not None:
            return self.apart
        sums = (
            self.table.group_by("hash")
            .aggregate([("size", "sum"), ("size", "count")])
            .rename_columns({"size_sum": "size", "size_count": "records"})
        )
        is_heavy = pc.or_(pc.greater_equal(sums["records"], APART_RECORDS), pc.greater_equal(sums["size"], APART_BYTES))
        return choose_apart(sums.filter(is_heavy).to_pylist(), summary)

    def record_cuts(self, apart: Sequence[int], summary: Summary) -> list[Boundary]:
        """Return where to cut a batch so that few records of these groups are in each part, if it is by few cuts."""
        most = records_of_a_cut(summary)
        if not most:
            return []
        of_these = self.table.filter(pc.is_in(self.table["hash"], value_set=pa.array(apart, pa.int64())))
        places = of_these.select(["partition", "offset"]).sort_by([("partition", "ascending"), ("offset", "ascending")])
        cuts = list[Boundary]()
        for _, some in groupby(map(tuple, zip(*places.to_pydict().values(), strict=True)), key=itemgetter(0)):
            cuts += islice(some, most - 1, None, most)
        return cuts if len(cuts) <= MOST_CUTS else []

    def summarize_slices(self, slices: Sequence[Place], apart: Iterable[int]) -> list[Summary]:
        """Return what is in each of the slices, without the types of records."""
        records, sizes = Counter[int](), Counter[int]()
        for number, size in zip(self._numbers(slices, apart), self.table["size"].to_pylist(), strict=True):
            records[number] += 1
            sizes[number] += size
        return [Summary({-1: records[number]}, sizes[number], 0) for number in range(len(slices))]

    def read_slices(self, slices: Sequence[Place], apart: Iterable[int], numbers: Sequence[int]) -> Iterator[pa.Table]:
        """Yield the records of the slices that have these numbers, one slice after the other.

        A large record that is no longer in the log, as a newer one of its key is, is left out.
        """
        numbered = pa.array(self._numbers(slices, apart), pa.int32())
        for number in numbers:
            records = self.table.filter(pc.equal(numbered, number))
            is_large = pc.greater(records["size"], self.largest)
            large = records.filter(is_large).select(["partition", "offset", "size"]).to_pylist()
            few = records.filter(pc.invert(is_large)).select(list(RAW))
            if large:
                found = self.checked(partial(_read_large, self.read_log, large))
                few = pa.concat_tables([few, found.cast(few.schema)])
            yield few

    def _numbers(self, slices: Sequence[Place], apart: Iterable[int]) -> list[int]:
        hashes, (partitions, offsets, of) = set(apart), (self.table[name] for name in ("partition", "offset", "hash"))
        places = zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        return slice_numbers([one for _, one in slices], places, [one in hashes for one in of.to_pylist()])


def _read_large(read: ReadRanges, large: Sequence[Mapping[str, int]]) -> pa.Table:
    """Return `RAW` of these records. Raises LogReadError if one is another one than it was."""
    sizes = {(row["partition"], row["offset"]): row["size"] for row in large}
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


def read_few(records: DataFrame, most: int) -> FewRecords:
    """Read records that are `most` at most, and have a `size`, in one Spark job.

    A record leaves the JVM if so many of its size are no more than a slice, or if it is not large, and so many are not
    too much for this process: the JVM holds five times what it sends at once.
    """
    largest = max(SLICE_BYTES // max(1, most), min(MOST[GROUPS].size // max(1, most), LARGE_RECORD))
    largest = 1 << largest.bit_length() - 1  # Spark compiles an expression for each number in it
    columns = [f"if(size <= {largest}, {name}, NULL) AS {name}" if name in _BYTES else name for name in records.columns]
    return FewRecords(records.selectExpr(*columns).toArrow(), largest)
