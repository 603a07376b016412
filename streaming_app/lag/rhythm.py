"""How often a group commits to a partition, and whether its lag falls.

Of several commits between two passes one is counted, and the time between commits is never less than the time between
passes. Of that time only the part counts in which there was something to commit.
"""

from __future__ import annotations

from array import array
from math import ceil

_BUCKETS = 24  # of the time between commits: up to 1 s, 2 s, 4 s, ... half a year
_MAX_COUNT = 250  # in a bucket; then all counts are halved, so that old commits lose weight
_RESTORED_COUNT = 100  # so that what goes wrong just after a start is not taken for usual
_WINDOW_SECONDS = 600.0
_STEP_SECONDS = 25.0  # between two entries of the window
_MANY = 8  # entries
_FREQUENT = 64.0  # seconds between commits


class CommitIntervals:
    """Counts of the times between commits."""

    __slots__ = ("_counts", "usual")

    def __init__(self) -> None:
        self._counts: bytearray | None = None
        self.usual: float | None = None
        """How far apart 95 of 100 commits are at most, in seconds, as a power of two; None before the second commit."""

    def add(self, seconds: float) -> None:
        """Count the time between two commits."""
        if seconds <= 0:
            return
        counts = self._counts = bytearray(_BUCKETS) if self._counts is None else self._counts
        bucket = _bucket(seconds)
        if counts[bucket] >= _MAX_COUNT:
            counts[:] = bytes(count // 2 for count in counts)
        counts[bucket] += 1
        missing, bucket = ceil(sum(counts) * 0.95), 0
        while missing > counts[bucket]:
            missing -= counts[bucket]
            bucket += 1
        self.usual = float(1 << bucket)

    def restore(self, usual: float) -> None:
        """Begin with what an earlier run found."""
        self._counts = bytearray(_BUCKETS)
        self._counts[_bucket(usual)] = _RESTORED_COUNT
        self.usual = float(1 << _bucket(usual))


def _bucket(seconds: float) -> int:
    return min(_BUCKETS - 1, (ceil(seconds) - 1).bit_length())


class LagTrend:
    """The lag of the last ten minutes, while there was some at each pass."""

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = array("d")  # pairs of time and lag

    def clear(self) -> None:
        """Begin again: there is no lag."""
        del self._window[:]

    def add(self, lag: int, now: float) -> None:
        """Add the lag of a pass."""
        window = self._window
        if window and 0 <= now - window[-2] < _STEP_SECONDS:
            window[-1] = min(window[-1], lag)
        else:
            window.extend((now, lag))
        while now - window[0] > _WINDOW_SECONDS or window[0] > now:
            del window[:2]

    def catch_up_seconds(self, usual: float | None) -> float | None:
        """Return when there will be no lag if it goes on like that; None if it does not fall.

        The lowest lag of the newest part of the window is compared with the one of the part before: the lowest, since a
        lag rises from one commit to the next, which is `usual` seconds after the one before. So a part is half of the
        window; a quarter, which notices sooner that a lag falls, if it has several commits.
        """
        lags = self._window[1::2]
        entries = len(lags)
        if entries < 2:  # noqa: PLR2004 - a part needs one
            return None
        is_frequent = usual is not None and usual <= _FREQUENT
        part = max(1, entries // (4 if is_frequent and entries >= _MANY else 2))
        begin, middle = (0 if part * 2 >= entries - 1 else entries - 2 * part), entries - part
        older, newer = min(lags[begin:middle]), min(lags[middle:])
        if newer >= older:
            return None
        seconds = self._window[2 * lags.index(newer, middle)] - self._window[2 * lags.index(older, begin)]
        return lags[-1] * seconds / (older - newer)
