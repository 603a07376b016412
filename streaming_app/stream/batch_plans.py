"""Keeps the plan of a batch in the state of the stream, and changes it when a part of the batch fails.

A slice that fails is halved: at once if the process goes on, else when the batch is repeated. So before each slice the
job stores what the next attempt has to do, should the process end: the slices, with this one halved. If the error has
another cause, such as a store that is away, it stores them unhalved again. A single record that has failed `TRIES`
times alone is hopeless, and the job sets its group aside. The next batch may have the same trouble, so it begins with
some halvings, and each batch with one less.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.stream.slices import (
    LARGE_RECORD,
    SLICE_BYTES,
    START,
    WHOLE,
    BatchPlan,
    Ordered,
    Part,
    are_few,
    divide,
    find_heavy,
    halves,
    next_plan,
)
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.checkpoint_offsets import newest_batch
from streaming_app.tables.location import Location

TRIES = 2
"""How often a single record fails alone before it is hopeless: memory may be short for another reason."""


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
        if not (plan.slices or (are_few(records) and large <= SLICE_BYTES)):
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
        before = next((one for one in reversed(slices) if one.position < part.slice.position), START)
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
        pairs = pairwise((START, *(plan.slices or WHOLE)))
        halved = (halves(*pair, self._in_order) if pair[1] == part.slice else pair[1:] for pair in pairs)
        return replace(plan, slices=tuple(chain.from_iterable(halved)), halvings=plan.halvings + 1)

    def _failures(self, part: Part) -> int:
        """Return how often a part has failed as a single record."""
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
