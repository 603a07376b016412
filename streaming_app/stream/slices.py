"""Divides a batch into slices, so that bytes limit memory, and halves what fails, down to a single record.

Theory of operation
-------------------
Spark limits a batch by its number of offsets, but a record may have a megabyte: 400 of them in one batch once ended a
JVM of 2 GB, again after each restart. So if the large records of a batch exceed `SLICE_BYTES`, the job writes it in
slices, one after the other. Slices are intervals of the records in the order of (partition, offset). The records of a
group are in one partition, so each slice continues the rows that the previous slice wrote.

A repeated batch must write nothing twice. So the ends of the slices are stored before the first slice is written (see
`BatchPlans`), and a repeated batch uses the same slices. Every slice has a version: Delta skips an append whose
version it already has. The version of a half is between those of its neighbors. So if a slice was written before, both
of its halves are skipped.

A slice that fails is halved: at once if the process goes on, else when the batch is repeated. So before each slice the
job stores what the next attempt has to do, should the process end: the slices, with this one halved. If the error has
another cause, such as a store that is away, it stores them unhalved again. A single record that has failed `TRIES`
times alone is hopeless, and the job sets its group aside. The next batch may have the same trouble, so it begins with
some halvings, and each batch with one less.

A group with very many or large records takes seconds, and other groups would wait for it. So if the other groups have
few records, such a group is `apart`: it comes last in the order. For a moment, the history of the partition is then
ahead of this group. If the job dies at that moment and also loses its checkpoint, it will assume that the events of
this group in this batch were written.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.stream.stream_state import POSITIONS, BatchPlan, Slice, StateFile
from streaming_app.tables.checkpoint_offsets import newest_batch
from streaming_app.tables.driver_limits import GROUPS, MOST, fits_driver
from streaming_app.tables.location import Location

LARGE_RECORD = 16 << 10
"""Bytes. Where a number of records is the limit, records up to this size take at most some 100 MB."""
SLICE_BYTES = 8 << 20
"""Bytes of large records in a slice. As Python objects and rows with their events they take many times as much."""
TRIES = 2
"""How often a single record fails alone before it is hopeless: memory may be short for another reason."""
_MOST_HALVINGS = 4  # of a whole batch, because of failures in the one before
_MAX_SLICES = 4_096
_END = (1 << 31, 0)  # a place after every record
_APART_RECORDS, _APART_BYTES = 2_000, 128 << 10  # a group with more in a batch may be written after all others
_MOST_APART, _MOST_CUTS = 2_000, 20

WHOLE = (Slice(None, POSITIONS - 1),)
"""The slices of a batch that is not divided."""
_START = Slice((-1, 0), 0)
"""Ends before every record."""


class Part(NamedTuple):
    """The records of a slice."""

    slice: Slice
    records: pa.Table
    """The columns that `BatchPlans.divide` got."""
    condition: str = "true"
    """SQL condition for these records of the batch."""

    @property
    def first(self) -> tuple[int, int]:
        """Partition and offset of the first record."""
        return self.records["partition"][0].as_py(), self.records["offset"][0].as_py()

    @property
    def is_small(self) -> bool:
        """Whether the driver folds them."""
        return _are_few(self.records) and fits_driver(GROUPS, groups=pc.count_distinct(self.records["hash"]).as_py())


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


def next_plan(last: BatchPlan | None, writer: str, batch: int, *, begun: bool = False) -> BatchPlan:
    """Return the plan of a batch after `last`, which is stored; `begun`: the checkpoint has begun the batch before.

    A batch that has slices keeps them. Any other is halved as often as the one before it, less once for its success;
    and from its first repetition on once more.
    """
    if last is None or last.writer != writer or last.batch > batch:
        return BatchPlan(writer, batch, int(begun))
    if last.batch == batch and last.slices:
        return last
    return BatchPlan(writer, batch, max(0, min(last.halvings, _MOST_HALVINGS) - 1) + begun)


def divide(plan: BatchPlan, records: Ordered) -> tuple[Slice, ...]:
    """Return the slices of a plan.

    The first ones are by the bytes of large records; of groups apart by the number of records if that makes few parts.
    """
    if plan.slices:
        return plan.slices
    light, count, most = records.light, len(records), MOST[GROUPS].records // 2
    rows = [*records.cuts(0, light, light or 1)]
    if light < count:
        is_few = count - light <= _MOST_CUTS * most
        rows += [light, *records.cuts(light, count, most if is_few else count)]
    rows = rows[: _MAX_SLICES - 2]
    step = (POSITIONS - 1) // (len(rows) + 1)
    ending = (records.ending(row, (number + 1) * step) for number, row in enumerate(rows))
    slices: tuple[Slice, ...] = (*ending, WHOLE[0]._replace(is_apart=light < count))
    for _ in range(plan.halvings):
        if 2 * len(slices) <= _MAX_SLICES:
            slices = tuple(half for pair in pairwise((_START, *slices)) for half in _halves(*pair, records))
    return slices


def find_heavy(records: pa.Table) -> tuple[int, ...]:
    """Return the groups to write apart: if they are few, and the rest of the batch is small without them."""
    sums = records.group_by("hash").aggregate([("size", "sum"), ("size", "count")])
    is_heavy = pc.or_(
        pc.greater_equal(sums["size_count"], _APART_RECORDS), pc.greater_equal(sums["size_sum"], _APART_BYTES)
    )
    left, heavy = sums.filter(pc.invert(is_heavy)), sums.filter(is_heavy)["hash"].to_pylist()
    count, size = (pc.sum(left[name]).as_py() or 0 for name in ("size_count", "size_sum"))
    is_little = size <= SLICE_BYTES and fits_driver(GROUPS, records=count)
    return tuple(sorted(heavy)) if is_little and len(heavy) <= _MOST_APART else ()


def _place_of(one: Slice) -> tuple[int, int, int]:
    partition, offset = one.end or _END
    return one.is_apart, partition, offset


def _halves(before: Slice, one: Slice, records: Ordered) -> tuple[Slice, ...]:
    """Return both halves of the slice after `before`; only the slice itself if it has a single record."""
    start, end = (records.first_not_before(_place_of(each)) for each in (before, one))
    middle, position = records.middle(start, end), (before.position + one.position) // 2
    return (records.ending(middle, position), one) if middle and before.position < position else (one,)


def _are_few(records: pa.Table) -> bool:
    return fits_driver(GROUPS, records=records.num_rows, size=pc.sum(records["size"]).as_py() or 0)


class BatchPlans:
    """The plans of the batches of one stream. For each batch: `begin`, `divide`, and for each part `trying`.

    A plan is stored for batches that are large, repeated, or divided. The many small batches of a running job have
    none: that one was begun before, is in the checkpoint.
    """

    def __init__(self, checkpoint: Location, state: StateFile) -> None:
        """Take the checkpoint before its query starts. Raises OSError."""
        self._state = state
        begun, done = (newest_batch(checkpoint / name) for name in ("offsets", "commits"))
        self._begun = begun if begun > done else None
        self._current: BatchPlan | None = None
        self._records: pa.Table | None = None  # of the current batch
        self._ordered: Ordered | None = None
        self._is_stored = False  # whether the state has a plan of the current batch

    def begin(self, writer: str, batch: int) -> None:
        """Note that an attempt at a batch of the query `writer` starts."""
        is_first, last = self._current is None, self._current or self._state.state.plan
        self._current = next_plan(last, writer, batch, begun=is_first and batch == self._begun)
        self._records = self._ordered = None
        self._is_stored = False
        if last and last.batch < batch:  # it is done: of its plan only the number of halvings still counts
            self._state.note(plan=replace(last, slices=(), apart=(), alone=None) if last.halvings else None)

    def divide(self, records: pa.Table) -> list[Part]:
        """Return the parts of the batch. A batch is divided if it is large, was begun before, or others have failed.

        Raises OSError.
        """
        self._records, plan = records, self._plan
        if not records.num_rows:
            return []
        large = pc.sum(records["size"].filter(pc.greater_equal(records["size"], LARGE_RECORD))).as_py() or 0
        if not (plan.slices or (_are_few(records) and large <= SLICE_BYTES)):
            plan = replace(plan, apart=find_heavy(records))
        if large <= SLICE_BYTES and not (plan.slices or plan.halvings or plan.apart):
            return [Part(WHOLE[0], records)]
        self._current = plan
        self._current = replace(plan, slices=divide(plan, self._in_order))
        self._is_stored = True
        self._state.write(plan=self._current)  # and once more by `trying`: then both copies of the state have it
        return list(self._in_order.parts(self._current.slices))

    def trying(self, part: Part) -> None:
        """Store what the next attempt has to do, should the process end while this part is written. Raises OSError."""
        if self._is_stored:
            self._state.write(plan=self._without(part))

    def failed(self, part: Part) -> list[Part]:
        """Return the halves to write instead of a part that failed; none for a single record. Raises OSError."""
        slices = self._plan.slices or WHOLE
        before = next((one for one in reversed(slices) if one.position < part.slice.position), _START)
        self._current = self._without(part)
        self._is_stored = True
        self._state.write(plan=self._current)
        found = self._in_order.parts(self._current.slices)
        parts = [one for one in found if before.position < one.slice.position <= part.slice.position]
        return parts if len(parts) > 1 else []

    def failed_otherwise(self) -> None:
        """Note that an attempt has failed for a reason that fewer records do not cure."""
        if self._is_stored:
            with suppress(OSError):  # perhaps just this was the reason; then the next attempt has a slice more
                self._state.write(plan=self._plan)

    def is_hopeless(self, part: Part) -> bool:
        """Return whether a part is a single record that has failed alone too often."""
        return self._failures(part) >= TRIES

    def _without(self, part: Part) -> BatchPlan:
        """Return what the next attempt does if this part fails: it has halves instead, or knows the single record."""
        plan = self._plan
        if part.records.num_rows == 1:
            plan = replace(plan, alone=(*part.first, self._failures(part) + 1))
        pairs = pairwise((_START, *(plan.slices or WHOLE)))
        halved = (_halves(*pair, self._in_order) if pair[1] == part.slice else pair[1:] for pair in pairs)
        return replace(plan, slices=tuple(chain.from_iterable(halved)), halvings=plan.halvings + 1)

    def _failures(self, part: Part) -> int:
        alone = self._plan.alone
        return alone[2] if alone and part.records.num_rows == 1 and part.first == alone[:2] else 0

    @property
    def _plan(self) -> BatchPlan:
        assert self._current is not None  # noqa: S101 - `begin` comes first
        return self._current

    @property
    def _in_order(self) -> Ordered:
        if self._ordered is None:
            self._ordered = Ordered(self._records, self._plan.apart)
        return self._ordered
