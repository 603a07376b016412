"""How many records a micro-batch has at most, as Spark's checkpoint says before the batch begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streaming_app.tables.checkpoint_offsets import read_batch_ends

if TYPE_CHECKING:
    from streaming_app.tables.location import Location


class BatchOffsets:
    """The offsets of the batches of one query."""

    def __init__(self, checkpoint: Location) -> None:
        self._checkpoint = checkpoint
        self._last = -1
        """The number of the last batch."""
        self._ends: Mapping[int, int] | None = {}  # of this batch, by partition; the first offset may be higher than 0

    @property
    def ends(self) -> Mapping[int, int] | None:
        """The offset after the last one of this batch, by partition; None if they are not known."""
        return self._ends

    def most_records(self, batch_id: int) -> int | None:
        """Return how many offsets the batch has; None if they are not known. Compaction may have removed records."""
        starts = self._ends if self._last == batch_id - 1 else read_batch_ends(self._checkpoint, batch_id - 1)
        ends = read_batch_ends(self._checkpoint, batch_id)
        self._last, self._ends = batch_id, ends
        if starts is None or ends is None:
            return None
        counts = [end - starts.get(partition, 0) for partition, end in ends.items()]
        return sum(counts) if min(counts, default=0) >= 0 else None
