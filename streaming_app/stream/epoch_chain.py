"""Which leader epoch the record at an offset is of, and where two logs that once were the same part. Pure.

The epochs of a log are a chain: each begins at an offset and ends where the next one begins. A replica that is elected
without the newest records begins a higher epoch at a lower offset, so the chain tells an offset that was used twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

MAX_EPOCHS = 100
"""Of a partition, the newest ones: an epoch begins at each restart of its leader."""


class EpochStart(NamedTuple):
    """An epoch, and the offset of its first record."""

    epoch: int
    start: int


Chain = tuple[EpochStart, ...]
"""The epochs of a log in order; the first one need not be the first of the log."""


def epoch_at(chain: Sequence[EpochStart], offset: int) -> int | None:
    """Return the epoch of the record at an offset; None for one before the chain."""
    place = bisect_right(chain, offset, key=lambda one: one.start)
    return chain[place - 1].epoch if place else None


def up_to(chain: Sequence[EpochStart], end: int) -> Chain:
    """Return the chain of the records below an offset."""
    return tuple(one for one in chain if one.start < end)[-MAX_EPOCHS:]


def join(known: Chain, found: Sequence[EpochStart]) -> Chain:
    """Return a chain that goes on with what was found; `known` gives way where they differ."""
    if not found:
        return known
    return (*(one for one in known if one.start < found[0].start and one.epoch < found[0].epoch), *found)


def find_parting(known: Sequence[EpochStart], end: int, ask: Callable[[int], tuple[int, int]]) -> int:
    """Return the first offset below `end` that is of another record in the log than in the chain; `end` if none is.

    `ask` returns the newest epoch of the log that is not above the given one, and its end; -1 and -1 if it has none.
    """
    ends = [*(one.start for one in known[1:]), end]
    for place in range(len(known) - 1, -1, -1):
        epoch, parting = ask(known[place].epoch)
        if epoch == known[place].epoch:
            return min(parting, ends[place])
        if place == len(known) - 1 and parting >= end:  # its records were compacted away, and nothing was cut
            return end
    return 0
