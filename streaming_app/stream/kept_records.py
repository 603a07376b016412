"""A batch that Spark keeps on disk until it is written: SQL tells what it amounts to, and divides it.

What has few records is in this process instead, see `few_records`, which answers the same. Spark's workers load this
module, and nothing here may load kafka-python for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from streaming_app.stream.log_positions import read_again
from streaming_app.stream.slices import (
    APART_BYTES,
    APART_RECORDS,
    LARGE_RECORD,
    MOST_APART,
    MOST_CUTS,
    Boundary,
    LargeRecord,
    Offsets,
    Place,
    Summary,
    choose_apart,
    records_of_a_cut,
)
from streaming_app.stream.source import RAW, raw_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_CONDITIONS = 100  # in one expression
_SLICES_READ = 20  # at a time: Spark shows no progress meanwhile


class KeptRecords(NamedTuple):
    """The records of a batch, as Spark keeps them."""

    records: DataFrame
    """`RAW` and `MEASURES`."""
    sizes: DataFrame
    """The `MEASURES` alone: these are read several times."""

    def read_and_summarize(self) -> Summary:
        """Return what the batch amounts to, after the one reading of the topic, which keeps all columns."""
        read_again(self.records)
        read_again(self.sizes)
        return self.summarize()

    def summarize(self) -> Summary:
        """Return what the batch amounts to."""
        sizes = self.sizes.selectExpr("type", "size", f"if(size >= {LARGE_RECORD}, size, 0) AS large")
        rows = sizes.groupBy("type").agg({"*": "count", "size": "sum", "large": "sum"}).collect()
        by_type = {row["type"]: row["count(1)"] for row in rows}
        return Summary(by_type, sum(row["sum(size)"] for row in rows), sum(row["sum(large)"] for row in rows))

    def large_records(self) -> list[LargeRecord]:
        """Return the large records in the order of (partition, offset): one for 16 kB of the batch at most."""
        rows = self.sizes.where(f"size >= {LARGE_RECORD}").select("partition", "offset", "size")
        return sorted(LargeRecord(*row) for row in rows.collect())

    def partition_offsets(self) -> dict[int, Offsets]:
        """Return the offsets of the records, by partition."""
        ranges = self.sizes.selectExpr("partition", "offset AS first", "offset + 1 AS next").groupBy("partition")
        rows = ranges.agg({"first": "min", "next": "max"}).collect()
        return {row["partition"]: Offsets(row["min(first)"], row["max(next)"]) for row in rows}

    def groups_apart(self, summary: Summary) -> list[int]:
        """Return the groups without which what is left of a batch is little; none if there are none, or too many.

        Each as the hash of its id, which may be long; a group that has the hash of another one goes with it.
        """
        sums = self.sizes.groupBy("hash").agg({"*": "count", "size": "sum"})
        sums = sums.withColumnsRenamed({"count(1)": "records", "sum(size)": "size"})
        heavy = sums.where(f"records >= {APART_RECORDS} OR size >= {APART_BYTES}").limit(MOST_APART + 1).collect()
        return choose_apart(heavy, summary)

    def record_cuts(self, apart: Sequence[int], summary: Summary) -> list[Boundary]:
        """Return where to cut a batch so that few records of these groups are in each part: this process folds them.

        None if there are so many records that Spark's workers take less time.
        """
        most = records_of_a_cut(summary)
        if not most:
            return []
        numbered = self.sizes.where(of_groups(apart, are_these=True)).selectExpr(
            "partition", "offset", "row_number() OVER (PARTITION BY partition ORDER BY offset) AS number"
        )
        rows = numbered.where(f"number % {most} = 0").select("partition", "offset").collect()
        return sorted((row["partition"], row["offset"]) for row in rows) if len(rows) <= MOST_CUTS else []

    def summarize_slices(self, slices: Sequence[Place], apart: Iterable[int]) -> list[Summary]:
        """Return what is in each of the slices, without the types of records."""
        found = dict[int, Summary]()
        for first in range(0, len(slices), _CONDITIONS):
            some = range(first, min(first + _CONDITIONS, len(slices)))
            sums = (
                _numbered(self.sizes, ["size"], slices, apart, some)
                .groupBy("number")
                .agg({"*": "count", "size": "sum"})
            )
            found |= {row["number"]: Summary({-1: row["count(1)"]}, row["sum(size)"], 0) for row in sums.collect()}
        return [found.get(number, Summary({}, 0, 0)) for number in range(len(slices))]

    def read_slices(self, slices: Sequence[Place], apart: Iterable[int], numbers: Sequence[int]) -> Iterator[pa.Table]:
        """Yield the records of the slices that have these numbers, none of which is empty, one slice after the other.

        In few readings of the batch: each takes about as long, however few records it is for. Spark sorts the records
        by slice, on disk, and this process and the JVM hold one slice at a time.
        """
        if len(slices) == 1:  # the whole batch
            if numbers:
                yield self.records.select(*RAW).toArrow()
            return
        columns = [f"unix_micros({name}) AS {name}" if name == "timestamp" else name for name in RAW]
        for first in range(0, len(numbers), _SLICES_READ):
            some = numbers[first : first + _SLICES_READ]
            numbered = _numbered(self.records, columns, slices, apart, some)
            ordered = numbered.repartitionByRange(len(some), "number").sortWithinPartitions(
                "number", "partition", "offset"
            )
            for _, rows in groupby(ordered.toLocalIterator(), key=itemgetter(0)):
                yield raw_table(row[1:] for row in rows)  # nothing else keeps them


def _numbered(
    records: DataFrame, columns: Sequence[str], slices: Sequence[Place], apart: Iterable[int], numbers: Iterable[int]
) -> DataFrame:
    """Return the records of the slices that have these numbers, with the number."""
    in_slice = (
        f"WHEN is_apart = {slices[number][1].is_apart} AND {between(slices[number][0], slices[number][1].end)} "
        f"THEN {number}"
        for number in numbers
    )
    marked = records.selectExpr("*", f"{of_groups(apart, are_these=True)} AS is_apart")
    return marked.selectExpr(f"CASE {' '.join(in_slice)} END AS number", *columns).where("number IS NOT NULL")


def of_groups(hashes: Iterable[int], *, are_these: bool) -> str:
    """Return the SQL condition that a record is, or is not, of one of these groups, see `groups_apart`."""
    found = ", ".join(f"{one}L" for one in hashes) or "NULL"
    is_one = f"coalesce(hash IN ({found}), false)"
    return is_one if are_these else f"NOT {is_one}"


def between(start: Boundary | None, end: Boundary | None) -> str:
    """Return the SQL condition that a record is in the slice between two boundaries."""
    return " AND ".join((f"NOT {_is_before(start)}" if start else "true", _is_before(end) if end else "true"))


def _is_before(boundary: Boundary) -> str:
    partition, offset = boundary
    return f"(partition < {partition} OR (partition = {partition} AND offset < {offset}))"
