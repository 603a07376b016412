"""The leader epochs of a log: the epoch of the record at an offset, and the offset at which two logs differ. Pure.

The epochs of a log are a chain: each begins at an offset, and ends where the next one begins. If a replica without the
newest records is elected, it begins a higher epoch at a lower offset. So the chain shows that an offset was used twice.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

MAX_EPOCHS = 100
"""The newest epochs that are kept per partition: each restart of its leader begins one."""


class EpochStart(NamedTuple):
    """An epoch, and the offset of its first record."""

    epoch: int
    start: int


Chain = tuple[EpochStart, ...]
"""The epochs of a log in order. The first one need not be the first of the log."""


def epoch_at(chain: Sequence[EpochStart], offset: int) -> int | None:
    """Return the epoch of the record at an offset; None if the chain begins later."""
    place = bisect_right(chain, offset, key=lambda one: one.start)
    return chain[place - 1].epoch if place else None


def up_to(chain: Sequence[EpochStart], end: int) -> Chain:
    """Return the chain of the records below an offset."""
    return tuple(one for one in chain if one.start < end)[-MAX_EPOCHS:]


def join(known: Chain, found: Sequence[EpochStart]) -> Chain:
    """Return `known` continued by `found`; where they differ, `found` counts."""
    if not found:
        return known
    return (*(one for one in known if one.start < found[0].start and one.epoch < found[0].epoch), *found)


def find_parting(
    known: Sequence[EpochStart], end: int, ask: Callable[[int], tuple[int, int]], has_record: Callable[[int, int], bool]
) -> int:
    """Return the first offset below `end` at which the log has another record than the chain; `end` if there is none.

    `ask` returns the log's newest epoch that is not above the given one, and its end offset; -1 and -1 if it has none.
    `has_record` returns whether the log has a record from the first offset to below the second one.
    """
    ends = [*(one.start for one in known[1:]), end]
    for place in range(len(known) - 1, -1, -1):
        epoch, parting = ask(known[place].epoch)
        if epoch == known[place].epoch:
            return min(parting, ends[place])
        if place == len(known) - 1 and parting >= end:
            # The log has no record of the epochs above `epoch`. Compaction removed them all, or a leader that did not
            # know these epochs wrote other records at their offsets.
            first = next(one.start for one in known if one.epoch > epoch)
            if not has_record(first, end):
                return end
    return 0
