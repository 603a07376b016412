"""Divides a batch into slices, so that bytes limit memory, and divides it further when it fails.

Theory of operation
-------------------
Spark limits a batch by its number of offsets, but a record may have a megabyte: 400 of them in one batch once ended a
JVM of 2 GB, again after each restart. So if the large records of a batch exceed `SLICE_BYTES`, the job writes it in
slices, one after the other. Slices are intervals of the records in the order of (partition, offset). The records of a
group are in one partition, so each slice continues the rows that the previous slice wrote.

A repeated batch must write nothing twice. So the ends of the slices are stored before the first slice is written (see
`SlicePlans`), and a repeated batch uses the same slices. Every slice has a version: Delta skips an append whose version
it already has. A batch that fails twice is divided into halves, again at each further failure, down to single records.
The version of a half is between those of its neighbors. So if a slice was written before, both of its halves are
skipped. Each successful batch takes back one halving for the next batch.

A group with very many or large records takes seconds, and other groups would wait for it. So if the other groups have
few records, such a group is `apart`: it comes last in the order. For a moment, the history of the partition is then
ahead of this group. If the job dies at that moment and also loses its checkpoint, it will assume that the events of
this group in this batch were written.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.tables.driver_limits import GROUPS, MOST, fits_driver
from streaming_app.tables.location import Location

LARGE_RECORD = 16 << 10
"""Bytes. Where a number of records is the limit, records up to this size take at most some 100 MB."""
SLICE_BYTES = 8 << 20
"""Bytes of large records in a slice. As Python objects and rows with their events they take many times as much."""
FAILURES_BEFORE_HALVING = 2
_POSITIONS = 1 << 32  # the number of positions in a batch
_MAX_SLICES = 4_096
_END = (1 << 31, 0)  # a place after every record
_APART_RECORDS, _APART_BYTES = 2_000, 128 << 10  # a group with more in a batch may be written after all others
_MOST_APART, _MOST_CUTS = 2_000, 20


@dataclass(frozen=True)
class Slice:
    """A part of a batch: the records from the end of the previous slice to `end`, or to the end of the batch."""

    end: tuple[int, int] | None
    """Partition and offset: the slice ends before it. Lower partitions come before it, too."""
    position: int
    """Orders the slices of a batch; the last one has the highest."""
    is_apart: bool = False
    """It has only the groups that are written apart; earlier slices have all others."""

    def version(self, batch: int) -> int:
        """Return the version of an append of this slice: it increases with each slice and batch."""
        return batch * _POSITIONS + self.position


def batch_of(version: int) -> int:
    """Return the batch of an append's version; -1 for -1, which means that there is none."""
    return version // _POSITIONS


WHOLE = (Slice(None, _POSITIONS - 1),)
"""The slices of a batch that is not divided."""


class Part(NamedTuple):
    """The records of a slice."""

    slice: Slice
    records: pa.Table
    """The columns that `SlicePlans.divide` got."""
    condition: str = "true"
    """SQL condition for these records of the batch."""

    @property
    def is_small(self) -> bool:
        """Whether the driver folds them."""
        return _is_small(self.records) and fits_driver(GROUPS, groups=pc.count_distinct(self.records["hash"]).as_py())


@dataclass(frozen=True)
class Attempt:
    """An attempt to write a batch: the number of attempts including this one, and the slices."""

    writer: str
    batch: int
    number: int = 1
    halvings: int = 0
    slices: tuple[Slice, ...] = ()
    """Empty until the batch was read."""
    apart: tuple[int, ...] = ()
    """The groups that are written apart, each as the hash of its id; a group with the same hash is also apart."""


def next_attempt(last: Attempt | None, writer: str, batch: int) -> Attempt:
    """Return the attempt that follows `last`.

    | last attempt                          | halvings   | slices                   |
    | ------------------------------------- | ---------- | ------------------------ |
    | none, or of another query             | none       | to be chosen             |
    | of an earlier batch, which succeeded  | one less   | to be chosen             |
    | of this batch, the first one          | the same   | the same                 |
    | of this batch, a later one            | one more   | the same, to be halved   |
    | of this batch, halved before          | one more   | the same, to be halved   |
    """
    if last is None or last.writer != writer or last.batch > batch:
        return Attempt(writer, batch)
    if last.batch < batch:
        return Attempt(writer, batch, halvings=max(0, last.halvings - 1))
    is_halved = last.halvings > 0 or last.number >= FAILURES_BEFORE_HALVING
    return Attempt(writer, batch, last.number + 1, last.halvings + is_halved, last.slices, last.apart)


def divide(attempt: Attempt, earlier: Attempt | None, records: Ordered) -> tuple[Slice, ...]:
    """Return the slices of an attempt; `earlier` is the previous attempt at the same batch, if there was one."""
    slices, halvings = attempt.slices, attempt.halvings
    if slices and earlier:
        halvings -= earlier.halvings
    else:
        slices = _first_slices(records)
    for _ in range(halvings):
        slices = _halve(slices, records)
    return slices


def find_heavy(records: pa.Table) -> tuple[int, ...]:
    """Return the groups to write apart: if they are few, and the rest of the batch is small without them."""
    sums = records.group_by("hash").aggregate([("size", "sum"), ("size", "count")])
    is_heavy = pc.or_(
        pc.greater_equal(sums["size_count"], _APART_RECORDS), pc.greater_equal(sums["size_sum"], _APART_BYTES)
    )
    left, heavy = sums.filter(pc.invert(is_heavy)), sums.filter(is_heavy)["hash"].to_pylist()
    count, size = (pc.sum(left[name]).as_py() or 0 for name in ("size_count", "size_sum"))
    are_few = size <= SLICE_BYTES and fits_driver(GROUPS, records=count)
    return tuple(sorted(heavy)) if are_few and len(heavy) <= _MOST_APART else ()


class Ordered:
    """The records of a batch in the order in which they are written; groups that are `apart` come last."""

    def __init__(self, records: pa.Table, apart: Sequence[int] = ()) -> None:
        """Take records with `source.MEASURES`, and maybe other columns."""
        self._apart = apart
        is_apart = pc.is_in(records["hash"], value_set=pa.array(apart, pa.int64())).cast(pa.int8())
        marked = records.append_column("is_apart", is_apart)
        keys = [(name, "ascending") for name in ("is_apart", "partition", "offset")]
        self._table = marked.take(pc.sort_indices(marked, keys)).combine_chunks()
        self._columns = [self._table[name] for name, _ in keys]
        sizes = self._table["size"]
        self._large = pc.cumulative_sum(pc.if_else(pc.greater_equal(sizes, LARGE_RECORD), sizes, 0).cast(pa.int64()))
        self.light = self.first_not_before((True, -1, 0))
        """The number of records of groups that are not apart."""

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self._table.num_rows)

    def first_not_before(self, place: tuple[int, int, int]) -> int:
        """Return the index of the first record at or after a place: (is apart, partition, offset)."""
        return bisect_left(range(len(self)), place, key=self._place)

    def cuts(self, start: int, end: int, most: int) -> Iterator[int]:
        """Yield indexes that cut these records into parts of at most `most` records and `SLICE_BYTES` of large ones."""
        while True:
            stop = bisect_right(range(end), self._large_before(start) + SLICE_BYTES, lo=start, key=self._large_up_to)
            start = min(max(stop, start + 1), start + most)
            if start >= end:
                return
            yield start

    def middle(self, start: int, end: int) -> int | None:
        """Return the index that halves the large bytes of these records, or their number; None for a single record."""
        before, after = self._large_before(start), self._large_before(end)
        middle = 1 + bisect_left(range(end), (before + after) / 2, lo=start, key=self._large_up_to)
        if before == after or middle >= end:
            middle = (start + end) // 2
        return middle if start < middle < end else None

    def ending(self, row: int, position: int) -> Slice:
        """Return the slice that ends before a record; the slice has no groups apart if the record is their first."""
        is_apart, partition, offset = self._place(row)
        return Slice(None if row == self.light else (partition, offset), position, bool(is_apart) and row > self.light)

    def parts(self, slices: Sequence[Slice]) -> Iterator[Part]:
        """Yield a part for each slice that has records."""
        start = 0
        for one in slices:
            end = self.first_not_before(_place_of(one))
            if start < end:
                yield Part(one, self._table.slice(start, end - start), self._condition(start, end - 1))
            start = end

    def _condition(self, first: int, last: int) -> str:
        is_apart, partition, offset = self._place(first)
        _, last_partition, last_offset = self._place(last)
        hashes = ", ".join(f"{one}L" for one in self._apart) or "NULL"
        return (
            f"coalesce(hash IN ({hashes}), false) = {bool(is_apart)}"
            f" AND (partition > {partition} OR (partition = {partition} AND offset >= {offset}))"
            f" AND (partition < {last_partition} OR (partition = {last_partition} AND offset <= {last_offset}))"
        )

    def _place(self, row: int) -> tuple[int, int, int]:
        is_apart, partition, offset = (column[row].as_py() for column in self._columns)
        return is_apart, partition, offset

    def _large_up_to(self, row: int) -> int:
        return int(self._large[row].as_py())

    def _large_before(self, row: int) -> int:
        return self._large_up_to(row - 1) if row else 0


def _place_of(one: Slice) -> tuple[int, int, int]:
    partition, offset = one.end or _END
    return one.is_apart, partition, offset


def _first_slices(records: Ordered) -> tuple[Slice, ...]:
    """Divide by the bytes of large records; divide groups apart by the number of records if that makes few parts."""
    light, count, most = records.light, len(records), MOST[GROUPS].records // 2
    rows = [*records.cuts(0, light, light or 1)]
    if light < count:
        is_few = count - light <= _MOST_CUTS * most
        rows += [light, *records.cuts(light, count, most if is_few else count)]
    rows = rows[: _MAX_SLICES - 2]
    step = (_POSITIONS - 1) // (len(rows) + 1)
    ending = (records.ending(row, (number + 1) * step) for number, row in enumerate(rows))
    return *ending, replace(WHOLE[0], is_apart=light < count)


def _halve(slices: tuple[Slice, ...], records: Ordered) -> tuple[Slice, ...]:
    if 2 * len(slices) > _MAX_SLICES:
        return slices
    halves, start = list[Slice](), 0
    for before, one in pairwise((Slice((-1, 0), 0), *slices)):
        end, position = records.first_not_before(_place_of(one)), (before.position + one.position) // 2
        middle = records.middle(start, end) if start < end else None
        if middle and before.position < position:
            halves.append(records.ending(middle, position))
        halves.append(one)
        start = end
    return tuple(halves)


def _is_small(records: pa.Table) -> bool:
    return fits_driver(GROUPS, records=records.num_rows, size=pc.sum(records["size"]).as_py() or 0)


class SlicePlans:
    """The attempts at the batches of one stream. For each batch: `begin`, then `divide`.

    The file is written for large batches, and for batches that may be repeated: the first one after a start, and one
    that failed while this object lived. So the many small batches of a running job cost nothing.
    """

    def __init__(self, checkpoint: Location) -> None:
        self._file = Location(f"{checkpoint}.slices.json")
        self._earlier: Attempt | None = None
        self._current: Attempt | None = None

    def begin(self, writer: str, batch: int) -> None:
        """Note that an attempt at a batch of the query `writer` starts."""
        is_first = self._current is None
        last = self._read() if is_first else self._current
        current = next_attempt(last, writer, batch)
        earlier = last if current.number > 1 else None
        if is_first or earlier:
            self._write(current)
        self._current, self._earlier = current, earlier

    @property
    def is_repeated(self) -> bool:
        """Whether this batch was started before, or others have failed recently."""
        return bool(self._current and (self._current.number > 1 or self._current.halvings))

    def divide(self, records: pa.Table) -> list[Part]:
        """Store and return the parts of the batch. A batch is divided if it is large, or was divided before."""
        assert self._current is not None  # noqa: S101 - `begin` comes first
        if not records.num_rows:
            return []
        large = pc.sum(records["size"].filter(pc.greater_equal(records["size"], LARGE_RECORD))).as_py() or 0
        is_small = _is_small(records) and large <= SLICE_BYTES
        if not (self._current.slices or is_small):
            self._current = replace(self._current, apart=find_heavy(records))
        if large <= SLICE_BYTES and not (self._current.slices or self._current.halvings or self._current.apart):
            if not is_small:
                self._write(self._current)
            return [Part(WHOLE[0], records)]
        ordered = Ordered(records, self._current.apart)
        self._current = replace(self._current, slices=divide(self._current, self._earlier, ordered))
        self._write(self._current)
        return list(ordered.parts(self._current.slices))

    def _read(self) -> Attempt | None:
        text = self._file.find_text()
        try:
            fields = json.loads(text or "")
            slices = tuple(Slice(end and tuple(end), *rest) for end, *rest in fields.pop("slices"))
            return Attempt(**{**fields, "apart": tuple(fields.get("apart", ()))}, slices=slices)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # the file is missing or damaged

    def _write(self, attempt: Attempt) -> None:
        slices = [(one.end, one.position, one.is_apart) for one in attempt.slices]
        self._file.write_text(json.dumps({**asdict(attempt), "slices": slices}))
