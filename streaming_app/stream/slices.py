"""How a batch is divided so that memory is bounded by bytes, and how it is divided further when it fails.

Theory of operation
-------------------
Spark bounds a batch by its number of offsets, and a record may have a megabyte: 400 of them in one batch once ended a
JVM of 2 GB, and the same batch followed after each restart. So a batch whose large records exceed `SLICE_BYTES` is
written in slices, one after the other. Slices end at boundaries in the order of (partition, offset); the records of a
group are in one partition, so each slice continues what the previous one wrote.

What is written once must stay written once when a batch is repeated. So the boundaries are stored before the first
slice is written (see `SlicePlans`), a repeated batch uses them again, and every slice has a version: Delta skips an
append whose version it already has. A batch that fails twice is divided further, into halves at each failure from then
on, down to single offsets. A half gets a version between those of its neighbors, so a slice that was written before is
skipped as both of its halves. Each batch that succeeds takes back one of the halvings for the next one.

A group with very many or large records takes seconds, and the others would wait for it. So where the others are few,
they are written first, and such groups `apart`, in slices of their own over the whole batch. The history of a partition
is then for a moment ahead of a group's: should the job die at that moment, and lose its checkpoint, too, it would take
the events of that group in that batch for written.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from streaming_app.tables.driver_limits import GROUPS, MOST, fits_driver
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from pyspark.sql import Row

    from streaming_app.tables.files import Files

LARGE_RECORD = 16 << 10
"""Bytes. Everything that is bounded by a number of records takes at most some 100 MB with records up to this size."""
SLICE_BYTES = 8 << 20
"""Bytes of large records in a slice. As objects of Python and rows with their events they have many times as many."""
FAILURES_BEFORE_HALVING = 2
_POSITIONS = 1 << 32  # in a batch
_MAX_SLICES = 4_096
_START = (-1, 0)  # before every record
_END = (1 << 31, 0)  # after every record

Boundary = tuple[int, int]
"""Partition and offset: before it are the partitions below, and the offsets below in this partition."""


class LargeRecord(NamedTuple):
    """Where a record of at least `LARGE_RECORD` bytes is."""

    partition: int
    offset: int
    size: int

    @property
    def place(self) -> Boundary:
        """The boundary before it."""
        return self.partition, self.offset


class Offsets(NamedTuple):
    """The offsets of one partition in a batch: the first one, and the one after the last."""

    start: int
    end: int


@dataclass(frozen=True)
class Slice:
    """A part of a batch: the records from the end of the previous slice to `end`, or to the end of the batch."""

    end: Boundary | None
    position: int
    """Orders the slices of a batch; the last one has the highest."""
    is_apart: bool = False
    """It has the groups that are written apart only; the slices before it have all others."""

    def version(self, batch: int) -> int:
        """Return the version of an append of this slice: it increases with each slice and batch."""
        return batch * _POSITIONS + self.position


def batch_of(version: int) -> int:
    """Return the batch of the version of an append; -1 for -1, which stands for none."""
    return version // _POSITIONS


WHOLE = (Slice(None, _POSITIONS - 1),)
"""The slices of a batch that is not divided."""
Place = tuple[Boundary | None, Slice]
"""A slice, and where it starts; None: at the beginning of the batch."""
APART_RECORDS, APART_BYTES = 2_000, 128 << 10
"""Of a group in a batch: with more it may be written after all others."""
MOST_APART, MOST_CUTS = 2_000, 20


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
        return fits_driver(GROUPS, records=self.records, size=self.size)


def choose_apart(heavy: Sequence[Mapping[str, int] | Row], summary: Summary) -> list[int]:
    """Return the hashes of these groups, with their `records` and `size`, if what is left without them is little."""
    left = summary.records - sum(row["records"] for row in heavy), summary.size - sum(row["size"] for row in heavy)
    are_few = left[1] <= SLICE_BYTES and fits_driver(GROUPS, records=left[0])
    return sorted(row["hash"] for row in heavy) if are_few and len(heavy) <= MOST_APART else []


def records_of_a_cut(summary: Summary) -> int:
    """Return how many records are in a part of a batch that is cut by their number; 0 for a batch that is not."""
    most = MOST[GROUPS].records // 2
    return most if summary.records >= most else 0


def slice_numbers(slices: Sequence[Slice], places: Iterable[Boundary], are_apart: Iterable[bool]) -> list[int]:
    """Return the index in `slices` of the one that each record is in, by its place and whether its group is apart."""
    own = {
        is_apart: [(one.end or _END, number) for number, one in enumerate(slices) if one.is_apart == is_apart]
        for is_apart in (False, True)
    }
    ends = {is_apart: [end for end, _ in ordered] for is_apart, ordered in own.items()}
    return [
        own[is_apart][bisect_right(ends[is_apart], place)][1] for place, is_apart in zip(places, are_apart, strict=True)
    ]


@dataclass(frozen=True)
class Attempt:
    """An attempt to write a batch: how often it was tried, this time included, and into what it is divided."""

    writer: str
    batch: int
    number: int = 1
    halvings: int = 0
    slices: tuple[Slice, ...] = ()
    """Empty until the batch was read."""
    apart: tuple[int, ...] = ()
    """The groups that are written apart, as `KeptRecords.groups_apart` names them."""


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


def divide(
    attempt: Attempt,
    earlier: Attempt | None,
    offsets: Mapping[int, Offsets],
    large: Sequence[LargeRecord],
    cuts: Iterable[Boundary] = (),
) -> tuple[Slice, ...]:
    """Return the slices of an attempt, after the `earlier` one at the same batch if there was one.

    `offsets` are those of the batch, which only halving needs, `large` its large records in the order of (partition,
    offset), `cuts` where else to divide it.
    """
    slices, halvings = attempt.slices, attempt.halvings
    if slices and earlier:
        halvings -= earlier.halvings
    else:
        slices = _first_slices(large, cuts, is_apart=bool(attempt.apart))
    for _ in range(halvings):
        slices = _halve(slices, offsets, large)
    return slices


def _first_slices(large: Iterable[LargeRecord], cuts: Iterable[Boundary], *, is_apart: bool) -> tuple[Slice, ...]:
    boundaries: list[Boundary] = []
    size = 0
    for record in large:
        if size and size + record.size > SLICE_BYTES:
            boundaries.append(record.place)
            size = 0
        size += record.size
    boundaries = sorted({*boundaries, *cuts})[: _MAX_SLICES - 2]
    step = (_POSITIONS - 1) // (len(boundaries) + 1)
    slices = (*(Slice(boundary, (n + 1) * step) for n, boundary in enumerate(boundaries)), *WHOLE)
    if not is_apart:
        return slices
    apart = (replace(one, position=(one.position + _POSITIONS - 1) // 2, is_apart=True) for one in slices)
    return Slice(None, _POSITIONS // 3), *apart


def _halve(
    slices: tuple[Slice, ...], offsets: Mapping[int, Offsets], large: Sequence[LargeRecord]
) -> tuple[Slice, ...]:
    if 2 * len(slices) > _MAX_SLICES:
        return slices
    halves: list[Slice] = []
    for before, one in pairwise((Slice(_START, 0), *slices)):
        position = (before.position + one.position) // 2
        middle = _middle(before.end or _START, one.end, offsets, large)
        if middle and before.position < position:
            halves.append(Slice(middle, position, one.is_apart))
        halves.append(one)
    return tuple(halves)


def _middle(
    start: Boundary, end: Boundary | None, offsets: Mapping[int, Offsets], large: Sequence[LargeRecord]
) -> Boundary | None:
    """Return where half of a slice's large bytes end, or half of its offsets; None if it cannot be divided."""
    inside = [one for one in large if start <= one.place and (end is None or one.place < end)]
    if len(inside) > 1:
        sizes = list(accumulate(one.size for one in inside))
        middle = bisect_left(sizes, sizes[-1] / 2, hi=len(sizes) - 2)
        return inside[middle].partition, inside[middle].offset + 1
    ranges = [_clip(partition, one, start, end) for partition, one in sorted(offsets.items())]
    left = sum(last - first for _, first, last in ranges) // 2
    for partition, first, last in ranges:
        if 0 < left <= last - first:
            return partition, first + left
        left -= last - first
    return None


def _clip(partition: int, offsets: Offsets, start: Boundary, end: Boundary | None) -> tuple[int, int, int]:
    """Return the offsets of a partition that are between two boundaries."""
    first, last = offsets
    if start[0] >= partition:
        first = last if start[0] > partition else max(first, start[1])
    if end is not None and end[0] <= partition:
        last = first if end[0] < partition else min(last, end[1])
    return partition, first, max(first, last)


class SlicePlans:
    """The attempts at the batches of one stream. For each batch: `begin`, then `divide` or `keep_whole`.

    The file is written for batches that are large, and for those that may be repeated: the first one after a start, and
    one that failed while this object lived. So the many small batches of a running job cost nothing.
    """

    def __init__(self, files: Files, checkpoint: Location) -> None:
        self._files, self._file = files, Location(f"{checkpoint}.slices.json")
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
    def is_whole(self) -> bool:
        """Whether nothing but the size of the batch can divide it."""
        return bool(self._current and not self._current.slices and not self._current.halvings)

    @property
    def is_halved(self) -> bool:
        """Whether slices are to be halved, perhaps between offsets."""
        return bool(self._current and self._current.halvings)

    def keep_whole(self, *, large: bool) -> tuple[Slice, ...]:
        """Return the one slice of a batch that is not divided; `large`: it is large enough to take its memory."""
        if large and self._current and not self._earlier:
            self._write(self._current)
        return WHOLE

    @property
    def apart(self) -> tuple[int, ...]:
        """The groups that are written apart, see `Attempt.apart`."""
        return self._current.apart if self._current else ()

    def divide(
        self,
        offsets: Mapping[int, Offsets],
        large: Sequence[LargeRecord],
        apart: Sequence[int] = (),
        cuts: Iterable[Boundary] = (),
    ) -> tuple[Slice, ...]:
        """Return the slices of the batch, once they are stored. The arguments are those of `slices.divide`.

        `apart` are the groups to write apart; a batch that was divided before has those of then.
        """
        assert self._current is not None  # noqa: S101 - `begin` comes first
        if not self._current.slices:
            self._current = replace(self._current, apart=tuple(apart))
        self._current = replace(self._current, slices=divide(self._current, self._earlier, offsets, large, cuts))
        self._write(self._current)
        return self._current.slices

    def _read(self) -> Attempt | None:
        text = self._files.read(self._file)
        try:
            fields = json.loads(text or "")
            slices = tuple(Slice(end and tuple(end), *rest) for end, *rest in fields.pop("slices"))
            return Attempt(**{**fields, "apart": tuple(fields.get("apart", ()))}, slices=slices)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # there is none, or its file is damaged

    def _write(self, attempt: Attempt) -> None:
        slices = [(one.end, one.position, one.is_apart) for one in attempt.slices]
        self._files.write(self._file, json.dumps({**asdict(attempt), "slices": slices}))
