"""What leaves the JVM: the Kafka source, the SQL that filters and groups its records, and what a batch amounts to.

A small batch is read by one Spark job, straight into this process, see `few_records`. Otherwise its records are counted
first, and kept by Spark until the batch is written. Spark's workers load this module, and nothing here may load
kafka-python for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from offsets_decoder.definitions import records
from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.kafka import GROUP_PREFIX
from streaming_app.stream.slices import LARGE_RECORD, SLICE_BYTES, Boundary, LargeRecord, Offsets, Slice
from streaming_app.tables.arrow import TIMESTAMP
from streaming_app.tables.which_writer import GROUPS, MOST, by_delta_rs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from streaming_app.kafka.offsets_topic import OffsetsTopic


def type_filter(skipped: Iterable[int]) -> str:
    """Return the SQL condition for every record but those of the types `skipped`.

    Keys compare as unsigned bytes, and a key begins with its type as int16, so each range of types is one comparison.
    Records without a key, with a key too short to hold a type and of unknown types pass: Python puts them into
    quarantine.
    """
    ranges = _ranges(skipped)
    outside = " AND ".join(f"(key < X'{first:04X}' OR key >= X'{last + 1:04X}')" for first, last in ranges)
    return f"key IS NULL OR ({outside})" if ranges else "true"


def type_condition(types: Iterable[int]) -> str:
    """Return the SQL condition for the records of these types, one comparison for each range of types."""
    return " OR ".join(f"(key >= X'{first:04X}' AND key < X'{last + 1:04X}')" for first, last in _ranges(types))


def _ranges(types: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of successive numbers."""
    runs = ([number for _, number in run] for _, run in groupby(enumerate(sorted(types)), lambda p: p[1] - p[0]))
    return [(run[0], run[-1]) for run in runs]


_FOLDED = RECORD_TYPES | {CLASSIC_GROUP}
WANTED_RECORDS = type_filter(one.type for one in records().values() if not one.planned and one.type not in _FOLDED)
"""Which records leave the JVM: those that the fold reads, and those that no definition describes.

Offset commits and the records of other groups are most of the topic, and never reach Python.
"""

# The key of every group record begins with its type and the group id, whose length is an int16. The id stays bytes
# here: it may not be valid UTF-8.
RECORD_TYPE = "coalesce(cast(conv(hex(substring(key, 1, 2)), 16, 10) AS int), -1)"  # -1: there is no key
GROUP_BYTES = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) AS int))"


def group_bytes(key: bytes | None) -> bytes | None:
    """Return what `GROUP_BYTES` gives of a key: nothing where there is no length of the id."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")] if key and key[2:] else None


def read_stream(
    spark: SparkSession,
    properties: Mapping[str, str],
    topic: OffsetsTopic,
    max_offsets: int,
    starting: Mapping[int, int] | None = None,
) -> DataFrame:
    """Return the stream of every record of every partition, from the checkpoint, `starting` or the beginning.

    It reads uncommitted, since only offset commits are transactional. Partitions are assigned: with a subscription
    Spark's driver joins a consumer group, which writes into this very topic.
    """
    options = source_options(properties, topic)
    if starting:
        options["startingOffsets"] = _offsets_of(topic, starting)
    return spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=max_offsets).load()


def source_options(properties: Mapping[str, str], topic: OffsetsTopic) -> dict[str, str]:
    """Return the options of Spark's Kafka source, for a stream and for a single read alike."""
    fetching = {
        "max.poll.records": "5000",
        "max.partition.fetch.bytes": str(1 << 20),
        "fetch.max.bytes": str(4 << 20),
        "isolation.level": "read_uncommitted",
        # Spark asks for offsets after every poll, and a broker answers the requests of a connection in order. A fetch
        # that waits for data (500 ms by default) would delay that answer, and Spark fetches only what exists.
        "fetch.max.wait.ms": "1",
    }
    return {
        **{f"kafka.{name}": value for name, value in {**fetching, **properties}.items()},
        "assign": json.dumps({topic.name: list(range(topic.partitions))}),
        "startingOffsets": "earliest",
        "groupIdPrefix": GROUP_PREFIX,
        "includeHeaders": "false",
    }


EARLIEST = -2
"""In offsets of Spark's source: the first that a partition has."""


def read_range(
    spark: SparkSession,
    properties: Mapping[str, str],
    topic: OffsetsTopic,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> DataFrame:
    """Return the records of these partitions from `starts` up to, and without, `ends`, with the stream's columns."""
    options = {
        **source_options(properties, topic),
        "assign": json.dumps({topic.name: list(ends)}),
        "startingOffsets": _offsets_of(topic, starts),
        "endingOffsets": _offsets_of(topic, ends),
    }
    return spark.read.format("kafka").options(**options).load()


def _offsets_of(topic: OffsetsTopic, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic.name: {str(partition): offset for partition, offset in offsets.items()}})


SIZE = "coalesce(length(key), 0) + coalesce(length(value), 0)"
"""The bytes of a record, in SQL."""
RAW = ("group_bytes", "offset", "partition", "timestamp", "key", "value")
"""The columns of a record that the fold gets."""
MEASURES = ("partition", "offset", "type", "size", "hash")
"""Where a record is, what it amounts to, and the hash of its group: by these a batch is divided."""
_RAW_SCHEMA = pa.schema(
    {
        "group_bytes": pa.binary(),
        "offset": pa.int64(),
        "partition": pa.int32(),
        "timestamp": TIMESTAMP,
        "key": pa.binary(),
        "value": pa.binary(),
    }
)
_CONDITIONS = 100  # in one expression
_SLICES_READ = 20  # at a time: Spark shows no progress meanwhile
Place = tuple[Boundary | None, Slice]
"""A slice, and where it starts; None: at the beginning of the batch."""


class Summary(NamedTuple):
    """What a batch or a slice of it holds."""

    by_type: Mapping[int, int]
    """Records by record type; -1 for those without a key, or with one that is too short to hold a type."""
    size: int
    """Bytes of keys and values."""
    large_size: int
    """Bytes of large records, see `slices`."""

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(self.by_type.values())

    @property
    def is_small(self) -> bool:
        """Whether this process folds it, unless it is of very many groups."""
        return by_delta_rs(GROUPS, records=self.records, size=self.size)


def wanted_records(batch: DataFrame) -> DataFrame:
    """Return the records of a micro-batch of the Kafka source that leave the JVM, as `RAW`, with their `MEASURES`."""
    raw = batch.where(WANTED_RECORDS).selectExpr(f"{GROUP_BYTES} AS group_bytes", *RAW[1:])
    return raw.selectExpr(*RAW, f"{RECORD_TYPE} AS type", f"{SIZE} AS size", "xxhash64(group_bytes) AS hash")


def summarize(sizes: DataFrame) -> Summary:
    """Return what records amount to, of which there are the `MEASURES`, as in the functions that divide a batch."""
    sizes = sizes.selectExpr("type", "size", f"if(size >= {LARGE_RECORD}, size, 0) AS large")
    rows = sizes.groupBy("type").agg({"*": "count", "size": "sum", "large": "sum"}).collect()
    by_type = {row["type"]: row["count(1)"] for row in rows}
    return Summary(by_type, sum(row["sum(size)"] for row in rows), sum(row["sum(large)"] for row in rows))


def summarize_slices(sizes: DataFrame, slices: Sequence[Place], apart: Iterable[int]) -> list[Summary]:
    """Return what is in each of the slices, without the types of records."""
    found = dict[int, Summary]()
    for first in range(0, len(slices), _CONDITIONS):
        some = range(first, min(first + _CONDITIONS, len(slices)))
        sums = _numbered(sizes, ["size"], slices, apart, some).groupBy("number").agg({"*": "count", "size": "sum"})
        found |= {row["number"]: Summary({-1: row["count(1)"]}, row["sum(size)"], 0) for row in sums.collect()}
    return [found.get(number, Summary({}, 0, 0)) for number in range(len(slices))]


def read_slices(
    records: DataFrame, slices: Sequence[Place], apart: Iterable[int], numbers: Sequence[int]
) -> Iterator[pa.Table]:
    """Yield the records of the slices that have these numbers, none of which is empty, one slice after the other.

    In few readings of the batch: each takes about as long, however few records it is for. Spark sorts the records by
    slice, on disk, and this process and the JVM hold one slice at a time.
    """
    if len(slices) == 1:  # the whole batch
        if numbers:
            yield records.select(*RAW).toArrow()
        return
    columns = [f"unix_micros({name}) AS {name}" if name == "timestamp" else name for name in RAW]
    for first in range(0, len(numbers), _SLICES_READ):
        some = numbers[first : first + _SLICES_READ]
        numbered = _numbered(records, columns, slices, apart, some)
        ordered = numbered.repartitionByRange(len(some), "number").sortWithinPartitions("number", "partition", "offset")
        for _, rows in groupby(ordered.toLocalIterator(), key=itemgetter(0)):
            yield raw_table(row[1:] for row in rows)  # nothing else keeps them


def raw_table(rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return rows with what `RAW` names; times are in microseconds since 1970."""
    values = list(zip(*rows, strict=True)) or [()] * len(RAW)
    return pa.table(list(map(pa.array, values, _RAW_SCHEMA.types)), _RAW_SCHEMA)


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


def partition_offsets(sizes: DataFrame) -> dict[int, Offsets]:
    """Return the offsets of the records, by partition."""
    ranges = sizes.selectExpr("partition", "offset AS first", "offset + 1 AS next").groupBy("partition")
    rows = ranges.agg({"first": "min", "next": "max"}).collect()
    return {row["partition"]: Offsets(row["min(first)"], row["max(next)"]) for row in rows}


def large_records(sizes: DataFrame) -> list[LargeRecord]:
    """Return the large records in the order of (partition, offset): one for 16 kB of the batch at most."""
    rows = sizes.where(f"size >= {LARGE_RECORD}").select("partition", "offset", "size")
    return sorted(LargeRecord(*row) for row in rows.collect())


APART_RECORDS, APART_BYTES = 2_000, 128 << 10
"""Of a group in a batch: with more it may be written after all others."""
_MOST_APART, MOST_CUTS = 2_000, 20


def groups_apart(sizes: DataFrame, summary: Summary) -> list[int]:
    """Return the groups without which what is left of a batch is little; none if there are none, or too many.

    Each as the hash of its id, which may be long; a group that has the hash of another one goes with it.
    """
    sums = sizes.groupBy("hash").agg({"*": "count", "size": "sum"})
    sums = sums.withColumnsRenamed({"count(1)": "records", "sum(size)": "size"})
    heavy = sums.where(f"records >= {APART_RECORDS} OR size >= {APART_BYTES}").limit(_MOST_APART + 1).collect()
    return choose_apart(heavy, summary)


def choose_apart(heavy: Sequence[Mapping[str, int] | Row], summary: Summary) -> list[int]:
    """Return the hashes of these groups, with their `records` and `size`, if what is left without them is little."""
    left = summary.records - sum(row["records"] for row in heavy), summary.size - sum(row["size"] for row in heavy)
    are_few = left[1] <= SLICE_BYTES and by_delta_rs(GROUPS, records=left[0])
    return sorted(row["hash"] for row in heavy) if are_few and len(heavy) <= _MOST_APART else []


def record_cuts(sizes: DataFrame, apart: Iterable[int], summary: Summary) -> list[Boundary]:
    """Return where to cut a batch so that few records of these groups are in each part: this process folds them.

    None if there are so many records that Spark's workers take less time.
    """
    most = records_of_a_cut(summary)
    if not most:
        return []
    numbered = sizes.where(of_groups(apart, are_these=True)).selectExpr(
        "partition", "offset", "row_number() OVER (PARTITION BY partition ORDER BY offset) AS number"
    )
    rows = numbered.where(f"number % {most} = 0").select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows) if len(rows) <= MOST_CUTS else []


def records_of_a_cut(summary: Summary) -> int:
    """Return how many records are in a part of a batch that is cut by their number; 0 for a batch that is not."""
    most = MOST[GROUPS].records // 2
    return most if summary.records >= most else 0


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
